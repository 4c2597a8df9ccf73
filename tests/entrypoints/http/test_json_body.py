"""Reading a JSON body: what is nested deep or has very many values is refused before it is built."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from gpuherd.domain.errors import InvalidRequest
from gpuherd.entrypoints.http.json_body import DEPTH_MAX, MARKS_MAX, read_object


async def read(body: bytes) -> dict[str, Any]:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return await read_object(Request({"type": "http", "headers": []}, receive))


async def refusal_of(body: bytes) -> str:
    with pytest.raises(InvalidRequest) as refused:
        await read(body)
    return refused.value.problems[0].code


def nested(levels: int) -> bytes:
    """An object with lists in it, so many levels in all."""
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


async def test_nesting_is_read_up_to_its_limit() -> None:
    assert await read(nested(DEPTH_MAX)) == json.loads(nested(DEPTH_MAX))
    assert await refusal_of(nested(DEPTH_MAX + 1)) == "INVALID_JSON"


@pytest.mark.parametrize("text", ["[" * 50, '"' + "{[" * 30, '\\"[' * 30, "\\" * 3 + "[" * 30])
async def test_brackets_in_a_text_are_no_nesting(text: str) -> None:
    body = {"a": text, "b": [1]}
    assert await read(json.dumps(body).encode()) == body


async def test_a_text_that_ends_with_a_backslash_hides_no_nesting() -> None:
    deep = nested(DEPTH_MAX + 1)
    assert await refusal_of(b'{"x": "\\\\", "y": ' + deep + b', "z": "\\\\"}') == "INVALID_JSON"


@pytest.mark.parametrize("value", [b"[]", b"{}", b'""', b"0", b"[[]]"])
async def test_very_many_values_are_refused_before_they_are_built(value: bytes) -> None:
    body = b'{"a":[' + b",".join([value] * (MARKS_MAX + 1)) + b"]}"
    assert await refusal_of(body) == "INVALID_BODY"


async def test_a_long_text_is_no_problem() -> None:
    body = {"a": "x" * 500_000}
    assert await read(json.dumps(body).encode()) == body
