"""`gpuherd events` in a pipe: one JSON object a line, once each, in order, whatever the network does."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.support import DROPPED, Answer, Cli, FakeApi, SeenRequest, details, problem


def event(n: int, **more: Any) -> dict[str, Any]:
    base = {
        "id": n,
        "instanceId": "inst_1",
        "name": "train-1",
        "sequence": n,
        "type": "instance.ready",
        "at": "2026-05-01T12:00:00.000000Z",
        "reason": "it answers",
        "before": "running",
        "after": "ready",
    }
    return base | more


def history(*events: dict[str, Any], last: int = 0) -> dict[str, Any]:
    return {"events": list(events), "nextCursor": None, "lastEventId": str(last)}


def stream(*numbers: int, rest: bytes = b"") -> Answer:
    """A stream that ends after these events."""
    told = b"".join(b"id: %d\nevent: e\ndata: %b\n\n" % (n, json.dumps(event(n)).encode()) for n in numbers)
    body = b"retry: 2000\n\n" + told + rest
    return Answer(body, headers={"Content-Type": "text/event-stream"})


GONE = problem(404, "INSTANCE_NOT_FOUND", detail="it was forgotten")


def numbers(stdout: str) -> list[int]:
    return [json.loads(line)["id"] for line in stdout.splitlines()]


def asked(api: FakeApi) -> list[tuple[str, str | None]]:
    return [(seen.path, seen.headers.get("Last-Event-ID")) for seen in api.seen]


class TestThePast:
    def test_the_latest_come_oldest_first_one_a_line(self, cli: Cli, api: FakeApi) -> None:
        api.script(history(event(3), event(2), last=3))
        result = cli("events")
        assert result.exit_code == 0
        assert [json.loads(line) for line in result.stdout.splitlines()] == [event(2), event(3)]
        assert api.seen[0].query == [("limit", "50")]

    def test_everything_since_an_event_is_read_page_by_page(self, cli: Cli, api: FakeApi) -> None:
        api.script(history(event(8), event(9), last=9), history(event(12), last=12), history(last=12))
        assert numbers(cli("events", "--since", "7").stdout) == [8, 9, 12]
        assert [dict(seen.query)["lastEventId"] for seen in api.seen] == ["7", "9", "12"]

    def test_a_server_that_does_not_get_on_is_not_asked_for_ever(self, cli: Cli, api: FakeApi) -> None:
        api.script(history(event(8), last=7))
        assert numbers(cli("events", "--since", "7").stdout) == [8]

    def test_filters_are_passed_on_and_a_name_becomes_an_id(self, cli: Cli, api: FakeApi) -> None:
        def answer(seen: SeenRequest) -> Answer:
            found = seen.path.startswith("/api/instances/")
            return Answer(details(id="inst_7") if found else history())

        api.handler = answer
        cli("events", "train-1", "--type", "instance.ready", "-n", "5")
        assert sorted(api.seen[-1].query) == [
            ("instance", "inst_7"),
            ("limit", "5"),
            ("type", "instance.ready"),
        ]
        cli("events", "account")
        assert ("instance", "account") in api.seen[-1].query

    def test_an_unknown_instance_ends_with_its_code(self, cli: Cli, api: FakeApi) -> None:
        api.script(GONE)
        assert cli("events", "nobody").exit_code == 4


class TestFollowing:
    def test_it_goes_on_from_the_last_event_after_every_break(self, cli: Cli, api: FakeApi) -> None:
        api.script(
            history(event(2), last=3),
            stream(4, 5),
            stream(6, rest=b'id: 7\ndata: {"id":'),
            DROPPED,
            problem(503, "STORE_UNAVAILABLE", detail="the disk is full", retryAfter=3),
            stream(7),
            GONE,
        )
        result = cli("events", "-f")
        assert numbers(result.stdout) == [2, 4, 5, 6, 7]
        assert [last for _, last in asked(api)] == [None, "3", "5", "6", "6", "6", "7"]
        assert api.seen[1].headers["Accept"] == "text/event-stream"
        assert result.exit_code == 4
        assert result.stderr.count("trying again") == 1
        assert "connected again; nothing was missed" in result.stderr
        # The server's own word for how long counts.
        assert max(cli.clock.slept) == 3

    def test_without_any_event_it_begins_where_the_log_ends(self, cli: Cli, api: FakeApi) -> None:
        api.script(history(last=40), GONE)
        cli("events", "-f", "--json")
        assert asked(api)[1] == ("/api/events", "40")

    def test_since_and_follow_together_miss_nothing(self, cli: Cli, api: FakeApi) -> None:
        api.script(history(event(8), last=9), history(last=9), stream(10), GONE)
        assert numbers(cli("events", "-f", "--since", "7").stdout) == [8, 10]
        assert asked(api)[2] == ("/api/events", "9")

    def test_the_pauses_grow_and_shrink_again(self, cli: Cli, api: FakeApi) -> None:
        busy = problem(503, "TOO_MANY_STREAMS")
        api.script(history(), *[busy] * 8, stream(1), busy, GONE)
        cli("events", "-f")
        longest = [0.25, 0.5, 1, 2, 4, 8, 8, 8, 0.25, 0.25]
        assert all(most / 2 <= slept <= most for slept, most in zip(cli.clock.slept, longest, strict=True))

    def test_a_server_that_sends_something_else_is_not_gpuherd(self, cli: Cli, api: FakeApi) -> None:
        api.script(history(), stream(1, rest=b"data: hello\n\n"))
        result = cli("events", "-f")
        assert numbers(result.stdout) == [1]
        assert result.exit_code == 8

    def test_a_revoked_key_ends_it(self, cli: Cli, api: FakeApi) -> None:
        api.script(history(), stream(1), problem(401, "UNAUTHORIZED"))
        assert cli("events", "-f").exit_code == 3
