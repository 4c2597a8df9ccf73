"""`gpuherd lease` on a real terminal: what it says of an end."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.entrypoints.cli.support import FakeApi, details
from tests.entrypoints.cli.terminal import terminal

pytestmark = pytest.mark.processes


def changed(then: str | None, usd: str | None) -> dict[str, Any]:
    ends_at = None if then is None else (datetime.now(UTC) + timedelta(hours=2, minutes=5)).isoformat()
    return {"instanceId": "inst_1", "endsAt": ends_at, "then": then, "costUntilEnd": usd}


@pytest.mark.parametrize(
    ("status", "then", "usd", "said"),
    [
        ("ready", "stop", "0.7", "train-1 is stopped in 2 h, and costs $0.70 until then"),
        (
            "exited",
            "stop",
            "0.01",
            "train-1 is stopped already; its lease ends in 2 h, and it costs $0.01 until then",
        ),
        ("exited", "delete", "0", "train-1 is deleted in 2 h, and costs nothing until then"),
    ],
)
def test_what_is_stopped_is_not_said_to_be_stopped_then(
    api: FakeApi, status: str, then: str, usd: str, said: str
) -> None:
    api.script(details(status), changed(then, usd))
    with terminal(api.url, "lease", "train-1", "+2h", columns=120) as screen:
        assert screen.end() == 0
    assert re.sub(r"in 2 h \d+ min", "in 2 h", screen.display[0]) == said


def test_a_stopped_one_without_an_end_runs_only_once_it_is_started(api: FakeApi) -> None:
    api.script(details("exited"), changed(None, None))
    with terminal(api.url, "lease", "train-1", "--none", columns=120) as screen:
        assert screen.end() == 0
    assert screen.display[0] == "train-1 has no end: once started, it runs until somebody stops it"
