"""`gpuherd lease` and `gpuherd keep`: until when, and what was noted."""

from __future__ import annotations

import pytest

from tests.cli.support import Answer, Cli, FakeApi, details
from tests.cli.terminal import terminal

CHANGED = {"instanceId": "inst_1", "endsAt": "2026-12-24T18:00:00Z", "then": "stop", "costUntilEnd": None}


@pytest.mark.parametrize("said", ["y", "2026-12-24", "2026-12-24T18:00", "18:00Z"])
def test_an_end_that_is_no_moment_is_refused_with_an_example(cli: Cli, api: FakeApi, said: str) -> None:
    refused = cli("lease", "train-1", "--until", said)
    assert refused.exit_code == 2
    assert "say a moment with its time zone, like 2026-12-24T18:00Z" in refused.stderr
    assert "Value error" not in refused.stderr and "%" not in refused.stderr
    assert api.seen == []


@pytest.mark.parametrize(
    "said",
    ["2026-12-24T18:00Z", "2026-12-24T18:00:00Z", "2026-12-24T19:00+01:00", "2026-12-24T19:00:00+0100"],
)
def test_an_end_is_a_moment_in_any_time_zone(cli: Cli, api: FakeApi, said: str) -> None:
    api.script(details("ready"), CHANGED)
    assert cli("lease", "train-1", "--until", said).exit_code == 0
    until = api.seen[1].body["until"]
    assert until.startswith(("2026-12-24T18:00:00", "2026-12-24T19:00:00+01:00"))


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("ready", "train-1 is in use"),
        ("creating", "train-1 is in use"),
        ("failed", "train-1 is failed: it is not in use, and silence does not end it"),
        ("exited", "train-1 is exited: it is not in use, and silence does not end it"),
    ],
)
def test_only_what_can_be_used_is_said_to_be_in_use(api: FakeApi, status: str, told: str) -> None:
    api.script(details(status), Answer({}, 204))
    with terminal(api.url, "keep", "train-1") as screen:
        assert screen.end() == 0
    assert screen.display[0].rstrip() == told
