"""`gpuherd events` on a real terminal: lines for people, and Ctrl-C as the way to end it."""

from __future__ import annotations

import pytest

from tests.entrypoints.cli.commands.test_events import event, history, stream
from tests.entrypoints.cli.support import Answer, FakeApi, SeenRequest
from tests.entrypoints.cli.terminal import terminal

pytestmark = pytest.mark.processes


def test_ctrl_c_ends_it_well_and_evil_names_are_shown(api: FakeApi) -> None:
    evil = event(1, name="evil\x1b[2J", reason="because\x1b]0;you\x07")

    def answer(seen: SeenRequest) -> Answer:
        last = seen.headers.get("Last-Event-ID")
        if last is None:
            return Answer(history(evil, last=1))
        return stream(int(last) + 1) if int(last) < 3 else stream()

    api.handler = answer
    with terminal(api.url, "events", "-f", columns=120, env={"TZ": "UTC"}) as screen:
        screen.until("     3  2026-05-01")
        screen.type("\x03")
        assert screen.end() == 0
    lines = [line for line in screen.display if "2026-05-01 12:00:00" in line]
    assert "evil\\x1b[2J" in lines[0]
    assert "because\\x1b]0;you\\x07" in lines[0]
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert lines[1].split()[3:] == ["train-1", "ready", "it", "answers"]


def test_where_nothing_happened_that_is_said(api: FakeApi) -> None:
    api.script(history())
    with terminal(api.url, "events") as screen:
        assert screen.end() == 0
    assert "nothing has happened yet" in screen.text
