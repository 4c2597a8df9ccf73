"""Reads a JSON body strictly.

What a program cannot have meant is refused before anything else looks at it.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.entrypoints.use_case_access import header

DEPTH_MAX = 20


# Each unknown one is a problem of its own; thousands would keep everybody else waiting.
FIELDS_MAX = 200


# Of quotes, commas and brackets: many times what any request has. To build a list of a few hundred thousand
# values takes a tenth of a second, for which everybody else would wait.
MARKS_MAX = 10_000


_NO_MARKS = bytes(set(range(256)) - set(b'",[]{}'))


def _invalid(code: str, message: str) -> InvalidRequest:
    return InvalidRequest([FieldProblem("body", code, message)])


async def read_body(receive: Receive) -> bytes:
    """Return a body as it came."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        # Nearly all come in one piece.
        return bytes(message.get("body", b""))
    parts = []
    while message["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()
    # Half a request is none.
    raise ClientDisconnect


async def read_optional_object(request: Request) -> dict[str, Any]:
    """Return the body as a JSON object; no body at all counts as an empty one."""
    raw = await read_body(request.receive)
    return _parsed(request, raw) if raw else {}


async def read_object(request: Request) -> dict[str, Any]:
    """Return the body as a JSON object, or say what is wrong with it."""
    return _parsed(request, await read_body(request.receive))


def _parsed(request: Request, raw: bytes) -> dict[str, Any]:
    if (header(request, b"content-encoding") or b"identity").lower() != b"identity":
        raise _invalid("INVALID_BODY", "a compressed body is not accepted")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _invalid("INVALID_JSON", "the body is not UTF-8") from None
    _check_structure(raw)
    try:
        value = _decode(text)
        if "\\u" in text:
            # A lone surrogate can be written in JSON but not in UTF-8, so it could never be stored or shown.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except InvalidRequest:
        raise
    except (ValueError, RecursionError):
        raise _invalid("INVALID_JSON", "the body is not valid JSON") from None
    if not isinstance(value, dict):
        raise _invalid("INVALID_BODY", "the body must be a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > FIELDS_MAX:
        raise _invalid("INVALID_BODY", f"an object has more than {FIELDS_MAX} fields")
    found = dict(pairs)
    if len(found) != len(pairs):
        # Which of two prices was meant? Better to ask than to guess.
        raise _invalid("DUPLICATE_FIELD", "a field appears twice in the same object")
    return found


def _no_constant(name: str) -> Any:
    raise _invalid("INVALID_JSON", f"{name} is not a JSON number")


# `json.loads` with any option makes a new decoder at each call.
_decode = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant).decode


def _check_structure(raw: bytes) -> None:
    """Refuse a body of very many values or of deep brackets, before anything is built of it.

    A few passes over the bytes tell: nothing runs for each character of a large body.
    """
    # A short body cannot have too many.
    if len(raw) > MARKS_MAX and len(raw.translate(None, _NO_MARKS)) > MARKS_MAX:
        raise _invalid("INVALID_BODY", "the body has far more values than any request needs")
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX:
        return
    # Without escaped backslashes and quotes, every other piece between quotes is outside of a string.
    pieces = raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    depth = 0
    for mark in b"".join(pieces).translate(None, _NO_MARKS):
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > DEPTH_MAX:
            raise _invalid("INVALID_JSON", f"the body is nested deeper than {DEPTH_MAX} levels")
