"""start, stop and rm on a real terminal: the phases live, and the question before a delete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.support import Answer, FakeApi, SeenRequest, details, operation
from tests.cli.terminal import terminal

pytestmark = pytest.mark.processes

NAME = "train-\x1b[2J1"


def scripted(kind: str, state: str, *phases: str, **more: Any) -> Any:
    """Answer for ever as if the operation were here."""

    def answer(seen: SeenRequest) -> Answer:
        now = datetime.now(UTC)
        it = details("running", createdAt=(now - timedelta(hours=3)).isoformat(), **more)
        if seen.method in ("POST", "DELETE"):
            return Answer({"operationId": "op_1", "instanceId": "inst_1", "name": it["name"]}, 202)
        return Answer(operation(kind, state, *phases) if "operations" in seen.path else it)

    return answer


def orders(api: FakeApi) -> list[str]:
    return [seen.method for seen in api.seen if seen.method != "GET"]


def test_the_phases_are_shown_with_their_times(api: FakeApi) -> None:
    api.handler = scripted("stop", "succeeded", "requested", "stopping", "exited")
    with terminal(api.url, "stop", "train-1", "--wait") as screen:
        assert screen.end() == 0
    title, facts, *phases = screen.display
    assert (title, facts) == ("train-1  inst_1", "RTX 4090 24GB · CN-HK-01 · $0.35/h spot")
    assert [line.split() for line in phases] == [
        ["✓", "requested", "10", "s"],
        ["✓", "stopping", "10", "s"],
        ["✓", "exited", "in", "20", "s"],
    ]


def test_ctrl_c_detaches_and_says_how_to_come_back(api: FakeApi) -> None:
    api.handler = scripted("stop", "running", "requested", "stopping")
    with terminal(api.url, "stop", "train-1", "--wait") as screen:
        screen.until("stopping")
        screen.type("\x03")
        assert screen.end() == 130
    assert "gpuherd wait train-1 --for exited" in " ".join(screen.text.split())
    assert "Traceback" not in screen.text


def test_not_waiting_says_how_to_follow(api: FakeApi) -> None:
    api.handler = scripted("start", "running")
    with terminal(api.url, "start", "train-1") as screen:
        assert screen.end() == 0
    assert "follow it with: gpuherd wait train-1" in screen.text


def test_a_delete_shows_what_goes_and_asks(api: FakeApi) -> None:
    api.handler = scripted("delete", "succeeded", "requested", "deleted", name=NAME)
    with terminal(api.url, "rm", "x") as screen:
        screen.until("[y/N]")
        assert orders(api) == []
        screen.type("y\n")
        assert screen.end() == 0
    assert orders(api) == ["DELETE"]
    for words in (r"train-\x1b[2J1  inst_1", "$0.35/h spot", "created 3 h ago", "--for deleted"):
        assert words in screen.text


@pytest.mark.parametrize(("keys", "exit_code"), [("n\n", 1), ("\n", 1), ("\x03", 130), ("\x04", 130)])
def test_anything_but_a_yes_deletes_nothing(api: FakeApi, keys: str, exit_code: int) -> None:
    api.handler = scripted("delete", "running", "requested")
    with terminal(api.url, "rm", "train-1") as screen:
        screen.until("[y/N]")
        screen.answer(keys)
        assert screen.end() == exit_code
    assert orders(api) == []
    assert "nothing was deleted" in screen.text
    assert "Traceback" not in screen.text


def test_yes_asks_nothing(api: FakeApi) -> None:
    api.handler = scripted("delete", "succeeded", "requested", "deleting", "deleted")
    with terminal(api.url, "rm", "train-1", "--yes", "--wait") as screen:
        assert screen.end() == 0
    assert "[y/N]" not in screen.text
    assert screen.display[-1].split() == ["✓", "deleted", "in", "20", "s"]
