"""`gpuherd why`: the story with its times, what is waited for, and what to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.entrypoints.cli.support import Cli, FakeApi, details, problem
from tests.entrypoints.cli.terminal import terminal
from tests.entrypoints.cli.test_terminal import EVIL, SEEN, assert_tame


def record(now: datetime, **more: Any) -> dict[str, Any]:
    """The record of an instance whose program does not answer yet, as the API tells it."""

    def at(seconds: float) -> str:
        return (now + timedelta(seconds=seconds)).isoformat()

    return {
        "instanceId": "inst_1",
        "name": "train-1",
        "status": "health_checking",
        "statusReason": "waiting for the application",
        "usable": False,
        "advice": "See that the program listens.",
        "story": [
            {"at": at(-300), "text": "Accepted.", "times": 1, "lastAt": None},
            {"at": at(-299), "text": "The cloud took no order.", "times": 3, "lastAt": at(-250)},
            {"at": at(-120), "text": "The machine runs.", "times": 1, "lastAt": None},
        ],
        "waits": {
            "for": "application",
            "sentence": "Waiting for the application: port 8888: refused.",
            "since": at(-90),
            "nextTryAt": at(20),
            "until": at(190),
            "deadline": at(900),
        },
        "phases": [
            {"status": "creating", "at": at(-300), "seconds": 180.0},
            {"status": "health_checking", "at": at(-120), "seconds": None},
        ],
        "health": {"status": "in_progress", "endpoints": [{"port": 8888, "error": "refused"}]},
        "considered": [],
        "attempts": [],
        **more,
    }


def test_in_a_pipe_it_is_the_whole_record(cli: Cli, api: FakeApi) -> None:
    told = record(cli.clock.now())
    api.script(details(), told)
    result = cli("why", "train-1")
    assert (result.exit_code, json.loads(result.stdout)) == (0, told)
    assert [seen.path for seen in api.seen] == [
        "/api/instances/train-1",
        "/api/instances/inst_1/attempts",
    ]


def test_nobody_is_called_so(cli: Cli, api: FakeApi) -> None:
    api.script(problem(404, "INSTANCE_NOT_FOUND"))
    assert cli("why", "nobody").exit_code == 4


@pytest.mark.processes
class TestOnATerminal:
    def test_the_story_and_what_is_waited_for(self, api: FakeApi) -> None:
        api.script(details(), record(datetime.now(UTC)))
        with terminal(api.url, "why", "inst_1") as screen:
            assert screen.end() == 0
        title, head, first, second, third, *facts = screen.display
        assert title == "train-1  inst_1"
        assert head.split() == ["WHEN", "TOOK", "WHAT"]
        assert " ".join(first.split()) == "5 min ago 1 s Accepted."
        assert " ".join(second.split()).endswith("2 min 59 s The cloud took no order. (3 times)")
        assert " ".join(third.split()) == "2 min ago The machine runs."
        shown = {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in facts}
        assert shown["status"] == "health_checking"
        assert shown["phases"].startswith("creating 3 min 00 s, health_checking 2 min")
        assert shown["waits for"] == "application"
        assert shown["because"] == "Waiting for the application: port 8888: refused."
        assert shown["since"].startswith("1 min 3")
        assert shown["next try"].startswith("in 1") or shown["next try"] == "in 20 s"
        assert shown["given up"] == "in 3 min"
        assert shown["health"] == "in_progress; port 8888: refused"
        assert shown["you can"] == "See that the program listens."

    def test_what_has_ended_waits_for_nothing(self, api: FakeApi) -> None:
        now = datetime.now(UTC)
        ended = record(now, status="failed", waits=None, statusReason="sold out", advice=None, health=None)
        api.script(details("failed"), ended)
        with terminal(api.url, "why", "inst_1") as screen:
            assert screen.end() == 0
        text = "\n".join(screen.display)
        assert "because  sold out" in text
        for absent in ("waits for", "next try", "given up", "you can", "health  "):
            assert absent not in text

    def test_what_is_never_given_up(self, api: FakeApi) -> None:
        waits = {
            "for": "removal",
            "sentence": "Asked to delete.",
            "since": None,
            "nextTryAt": None,
            "until": None,
        }
        api.script(details(), record(datetime.now(UTC), status="deleting", waits=waits))
        with terminal(api.url, "why", "inst_1") as screen:
            assert screen.end() == 0
        words = " ".join(screen.text.split())
        assert "next try now" in words
        assert "given up never: it is tried until it is done" in words

    @pytest.mark.parametrize("columns", [40, 20])
    def test_a_narrow_terminal_gets_narrow_lines(self, api: FakeApi, columns: int) -> None:
        long = [{"at": datetime.now(UTC).isoformat(), "text": "because " * 30}]
        api.script(details(), record(datetime.now(UTC), name="n" * 90, story=long))
        with terminal(api.url, "why", "inst_1", columns=columns) as screen:
            assert screen.end() == 0
        assert_tame(screen, columns)

    def test_a_record_cannot_command_the_terminal(self, api: FakeApi) -> None:
        now = datetime.now(UTC)
        evil = record(
            now,
            name=EVIL,
            instanceId=EVIL,
            status=EVIL,
            advice=EVIL,
            story=[{"at": now.isoformat(), "text": EVIL, "times": EVIL}],
            waits={"for": EVIL, "sentence": EVIL},
            phases=[{"status": EVIL}],
            health={"status": EVIL, "endpoints": [{"port": EVIL, "error": EVIL}]},
        )

        api.script(details(), evil)
        with terminal(api.url, "why", "inst_1", columns=400) as screen:
            assert screen.end() == 0
        assert_tame(screen, 400)
        assert screen.text.count(SEEN) >= 9
