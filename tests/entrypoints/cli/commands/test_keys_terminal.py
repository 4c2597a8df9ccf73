"""`gpuherd keys` and `gpuherd audit` on a real terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuherd.usecases.views.service_view import describe_entry
from tests.entrypoints.cli.commands.test_keys import KEY, log, serving
from tests.entrypoints.cli.support import FakeApi
from tests.entrypoints.cli.terminal import terminal

pytestmark = pytest.mark.processes

SECRET = f"ghk_adaadaad_{'x' * 49}"


def key(**more: Any) -> dict[str, Any]:
    return {**KEY, "label": "ci \x1b[2J", "limits": {"maxGpus": 4, "maxHourlyUsd": "1.5"}, **more}


def test_a_new_key_is_shown_whole_with_a_warning(api: FakeApi) -> None:
    api.script(key(key=SECRET))
    with terminal(api.url, "keys", "create", "--scope", "write", columns=100) as it:
        assert it.end() == 0
        assert SECRET in it.text
        assert "never again" in it.text
        assert "4 GPUs, $1.5/h" in it.text
        assert "\x1b[2J" not in it.raw


@pytest.mark.parametrize("columns", [40, 160])
def test_the_keys_are_a_table_that_fits(api: FakeApi, columns: int) -> None:
    api.script({"keys": [key(), key(id="bobbobbo", status="revoked")], "total": 2})
    with terminal(api.url, "keys", "ls", columns=columns) as it:
        assert it.end() == 0
        assert "adaadaad" in it.text
        assert "revoked" in it.text
        assert all(len(line) <= columns for line in it.lines)
        assert "\x1b[2J" not in it.raw


def test_the_verdict_on_the_log_is_a_sentence(api: FakeApi) -> None:
    entries = log(3)
    api.script(serving(entries))
    with terminal(api.url, "audit", "verify", columns=200) as it:
        assert it.end() == 0
        assert entries[-1].hash in it.text
    entries[1] = replace(entries[1], hash="0" * 64)
    api.script(serving(entries))
    with terminal(api.url, "audit", "verify") as it:
        assert it.end() == 1
        assert "broken at entry 2" in it.text


def test_the_log_is_a_table(api: FakeApi) -> None:
    api.script(
        {
            "entries": [describe_entry(it).model_dump(mode="json") for it in log(2)],
            "total": 2,
            "nextCursor": None,
        }
    )
    with terminal(api.url, "audit", "ls", columns=160) as it:
        assert it.end() == 0
        assert "key.create" in it.text
