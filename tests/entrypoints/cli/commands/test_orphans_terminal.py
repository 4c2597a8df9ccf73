"""`gpuherd orphans` on a real terminal: the table with its sum, and the question before a delete."""

from __future__ import annotations

from typing import Any

import pytest

from tests.entrypoints.cli.commands.test_orphans import ledger, orphan
from tests.entrypoints.cli.support import Answer, FakeApi, SeenRequest
from tests.entrypoints.cli.terminal import terminal

pytestmark = pytest.mark.processes

NAME = "evil\x1b[2J"


def scripted(**more: Any) -> Any:
    """Answer as a server with one orphan, whose name is not to be trusted."""

    def answer(seen: SeenRequest) -> Answer:
        if seen.method == "POST":
            return Answer(orphan(name=NAME, order="delete"), 202)
        return Answer(orphan(name=NAME) if seen.path != "/api/orphans" else ledger(orphan(name=NAME), **more))

    return answer


def orders(api: FakeApi) -> list[str]:
    return [seen.path for seen in api.seen if seen.method == "POST"]


def test_the_table_shows_whose_they_are_and_what_they_cost(api: FakeApi) -> None:
    api.handler = scripted()
    with terminal(api.url, "orphans") as screen:
        assert screen.end() == 0
    head, row, *rest = screen.display
    assert head.split()[:3] == ["CLOUD", "ID", "VERDICT"]
    assert row.split()[:3] == ["m-1", "foreign", "evil\\x1b[2J"]
    assert "$0.35/h" in row
    assert "$1.20" in row
    assert "1 machine without an instance, $0.35/h" in " ".join(rest)


def test_a_brake_is_told_with_the_way_on(api: FakeApi) -> None:
    api.handler = scripted(braked="3 machines would be deleted")
    with terminal(api.url, "orphans") as screen:
        assert screen.end() == 0
    words = " ".join(screen.text.split())
    assert "the collector is braked: 3 machines would be deleted" in words
    assert "gpuherd orphans resume" in words


@pytest.mark.parametrize(("answer", "gone"), [("y\r", ["/api/orphans/m-1/delete"]), ("n\r", [])])
def test_a_delete_shows_what_will_be_lost_and_asks(api: FakeApi, answer: str, gone: list[str]) -> None:
    api.handler = scripted()
    with terminal(api.url, "orphans", "delete", "m-1") as screen:
        screen.until("Delete it with all its data?")
        screen.type(answer)
        assert screen.end() == (0 if gone else 1)
    assert orders(api) == gone
    assert "it carries no tag of gpuherd" in " ".join(screen.text.split())


def test_a_resume_asks_too(api: FakeApi) -> None:
    api.handler = scripted()
    with terminal(api.url, "orphans", "resume") as screen:
        screen.until("held back?")
        screen.type("n\r")
        assert screen.end() == 1
    assert orders(api) == []
