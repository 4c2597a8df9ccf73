"""`GET /api/events` goes on for as long as it should, and tells nobody what is not his."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.cloud.orphan import Orphan, OrphanFinding, OrphanVerdict
from gpuherd.domain.instance.instance_event import ACCOUNT, ORPHAN_DETECTED, Event
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.ports.event_port import AccountEvent
from gpuherd.ports.instance_port import Change
from gpuherd.ports.observation_port import LedgerWrite
from gpuherd.ports.webhook_port import OutboxEntries
from gpuherd.usecases.access.manage_keys import revoke_key
from gpuherd.usecases.events.stream_events import StreamLimits
from tests.entrypoints.http.conftest import KEY
from tests.support.builders import a_machine, an_event, an_instance, instance_id
from tests.support.event_streams import StreamedReply, asking
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key
from tests.support.scraping import scrape

EVENTS = "/api/events"
HISTORY = "/api/events/history"
MINE = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
def clock() -> FakeClock:
    # One that runs by itself would fill an idle stream with heartbeats.
    return FakeClock()


@pytest.fixture
async def app(plane: Plane) -> AsyncIterator[ASGIApp]:
    yield build_application(plane)
    assert plane.services.event_feed.streams == 0


async def happen(herd: Herd, n: int, *types: str, owner: str = "admin", **more: Any) -> None:
    """Make the n-th instance with these events."""
    kinds = types or ("instance.created",)
    events = tuple(an_event(n, sequence, type=kind, **more) for sequence, kind in enumerate(kinds, 1))
    name = more.get("reason") or f"job-{n}"
    await herd.instances.add(Change(an_instance(n, owner=owner, name=name), events=events))


async def happen_to_the_account(herd: Herd) -> None:
    orphan = Orphan(
        a_machine(1), OrphanFinding(OrphanVerdict.FOREIGN, "x"), first_seen_at=START, judged_at=START
    )
    news = AccountEvent(Event(ACCOUNT, 0, ORPHAN_DETECTED, START), lambda _: OutboxEntries())
    await herd.orphans.save([LedgerWrite(orphan, account=(news,))])


def names(reply: StreamedReply) -> list[str | None]:
    return [it["name"] for it in reply.events]


class TestTheStream:
    async def test_it_begins_at_once_and_tells_proxies_to_keep_out(
        self, app: ASGIApp, clock: FakeClock
    ) -> None:
        async with asking(app, EVENTS, MINE) as reply:
            await clock.settle()
            assert reply.status == 200
            assert reply.headers["content-type"] == "text/event-stream"
            assert reply.headers["cache-control"] == "no-store, no-transform"
            assert reply.headers["x-accel-buffering"] == "no"
            assert "content-length" not in reply.headers
            assert reply.headers["x-request-id"]
            assert reply.messages == [{"retry": "2000"}]
            assert not reply.complete

    async def test_an_event_comes_with_its_id_type_and_story(
        self, app: ASGIApp, herd: Herd, clock: FakeClock
    ) -> None:
        async with asking(app, EVENTS, MINE) as reply:
            await clock.settle()
            await happen(herd, 1, "instance.created", "instance.ready")
            await clock.advance(0.1)
            assert [(it["id"], it["event"]) for it in reply.messages[1:]] == [
                ("1", "instance.created"),
                ("2", "instance.ready"),
            ]
            assert reply.events[1] == {
                "id": 2,
                "instanceId": instance_id(1),
                "name": "job-1",
                "sequence": 2,
                "type": "instance.ready",
                "at": "2026-01-01T00:00:00.000000Z",
                "actor": "gpuherd",
                "reason": "",
                "before": None,
                "after": None,
                "details": {},
            }

    async def test_a_launch_over_the_api_is_heard_at_once(
        self, app: ASGIApp, api: httpx.AsyncClient, clock: FakeClock
    ) -> None:
        async with asking(app, EVENTS, MINE) as reply:
            await clock.settle()
            body = {"name": "fresh", "productName": "RTX 4090 24GB", "templateId": "101"}
            made = asyncio.create_task(api.post("/api/instances", json=body))
            while not made.done():
                await clock.advance(0.1)
            assert made.result().status_code == 201
            await clock.advance(0.1)
            assert names(reply)[0] == "fresh"

    async def test_events_of_the_account_ring_too(self, app: ASGIApp, herd: Herd, clock: FakeClock) -> None:
        async with asking(app, EVENTS, MINE, "instance=account") as reply:
            await clock.settle()
            await happen(herd, 1)
            await clock.advance(0.1)
            await happen_to_the_account(herd)
            await clock.advance(0.1)
            assert [(it["type"], it["instanceId"]) for it in reply.events] == [(ORPHAN_DETECTED, None)]

    async def test_fifty_streams_get_everything_in_order_while_instances_change(
        self, app: ASGIApp, herd: Herd, clock: FakeClock
    ) -> None:
        async with AsyncExitStack() as stack:
            replies = [await stack.enter_async_context(asking(app, EVENTS, MINE)) for _ in range(50)]
            await clock.settle()
            for n in range(1, 21):
                await happen(herd, n, "a", "b")
                await clock.advance(0.01 * (n % 3))
            await clock.advance(0.1)
            assert all(it.ids == list(range(1, 41)) for it in replies)

    @pytest.mark.parametrize(
        "evil",
        [
            "a\n\nevent: instance.ready\ndata: {}\n\n",
            "a\r\n\r\nid: 999\r\n\r\n",
            "a\rdata: x\r\r",
            "\u2028\u2029\x85\x0b\x0c\x1c",
            "\x1b[2J\x01</script>",
            "id: 7",
        ],
    )
    async def test_no_name_or_reason_can_break_out_of_its_message(
        self, app: ASGIApp, herd: Herd, clock: FakeClock, evil: str
    ) -> None:
        async with asking(app, EVENTS, MINE) as reply:
            await clock.settle()
            await happen(herd, 1, "a", reason=evil, details={evil: evil})
            await happen(herd, 2, "b")
            await clock.advance(0.1)
            assert [sorted(it) for it in reply.messages[1:]] == [["data", "event", "id"]] * 2
            assert reply.ids == [1, 2]
            assert reply.events[0]["name"] == reply.events[0]["reason"] == evil
            # Nothing but our own line breaks, whatever a client takes for one.
            assert reply.body.count(b"\n") == 2 + 2 * 4
            assert b"\r" not in reply.body

    async def test_a_quiet_stream_sends_a_comment_now_and_then(self, app: ASGIApp, clock: FakeClock) -> None:
        async with asking(app, EVENTS, MINE) as reply:
            await clock.advance(50)
            assert reply.body.count(b"\n: ") == 3
            assert reply.events == []

    async def test_a_script_in_a_browser_may_have_it_as_an_event_without_an_id(
        self, app: ASGIApp, clock: FakeClock
    ) -> None:
        async with asking(app, EVENTS, MINE, "keepAlive=event") as reply:
            await clock.advance(50)
            assert reply.messages[1:] == [{"event": "keep-alive", "data": "{}"}] * 3

    async def test_whoever_has_seen_it_open_misses_nothing(
        self, app: ASGIApp, herd: Herd, clock: FakeClock, plane: Plane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ready, asked, answers = plane.services.event_feed.ready, asyncio.Event(), asyncio.Event()

        async def slow() -> int:
            asked.set()
            await answers.wait()
            return await ready()

        monkeypatch.setattr(plane.services.event_feed, "ready", slow)
        async with asking(app, EVENTS, MINE) as reply:
            await asked.wait()
            await clock.settle()
            # It is not open before it has its place in the log.
            assert reply.status == 0
            answers.set()
            await clock.settle()
            assert reply.status == 200
            await happen(herd, 1)
            await clock.advance(1)
            assert names(reply) == ["job-1"]


class TestResuming:
    @pytest.mark.parametrize("by_header", [True, False])
    async def test_it_goes_on_behind_the_last_event(
        self, app: ASGIApp, herd: Herd, clock: FakeClock, by_header: bool
    ) -> None:
        for n in range(1, 6):
            await happen(herd, n)
        headers, query = ({"Last-Event-ID": "2"}, "") if by_header else ({}, "lastEventId=2")
        async with asking(app, EVENTS, MINE | headers, query) as reply:
            await clock.settle()
            await happen(herd, 6)
            await clock.advance(0.1)
            assert reply.ids == [3, 4, 5, 6]

    async def test_the_header_of_a_reconnect_counts_more_than_the_first_address(
        self, app: ASGIApp, herd: Herd, clock: FakeClock
    ) -> None:
        for n in range(1, 6):
            await happen(herd, n)
        async with asking(app, EVENTS, MINE | {"Last-Event-ID": "4"}, "lastEventId=1") as reply:
            await clock.settle()
            assert reply.ids == [5]

    async def test_after_each_disconnect_nothing_is_missing_and_nothing_doubled(
        self, app: ASGIApp, herd: Herd, clock: FakeClock
    ) -> None:
        got: list[int] = []
        for turn in range(8):
            last = {"Last-Event-ID": str(got[-1] if got else 0)}
            async with asking(app, EVENTS, MINE | last) as reply:
                await clock.settle()
                await happen(herd, turn * 2 + 1)
                await clock.advance(0.1 * (turn % 2))
            got += reply.ids
            await happen(herd, turn * 2 + 2)
        async with asking(app, EVENTS, MINE | {"Last-Event-ID": str(got[-1])}) as reply:
            await clock.settle()
        assert got + reply.ids == list(range(1, 17))

    async def test_an_id_of_something_forgotten_goes_on_with_the_oldest_that_is_kept(
        self, app: ASGIApp, herd: Herd, clock: FakeClock
    ) -> None:
        for n in range(1, 5):
            await happen(herd, n)
        table = herd.tables.event
        herd.database.write_now(lambda c: c.execute(table.delete().where(table.c.id < 3)).rowcount)
        async with asking(app, EVENTS, MINE | {"Last-Event-ID": "1"}) as reply:
            await clock.settle()
            assert reply.ids == [3, 4]

    @pytest.mark.parametrize("last", ["x", "-1", "1.5", "", " ", "²", "9" * 40, str(2**53 + 1)])
    async def test_a_last_id_that_is_none_is_400(self, app: ASGIApp, clock: FakeClock, last: str) -> None:
        async with asking(app, EVENTS, MINE | {"Last-Event-ID": last}) as reply:
            await clock.settle()
            assert reply.status == 400
            assert b"Last-Event-ID" in reply.body
        async with asking(app, EVENTS, MINE, f"lastEventId={last}") as reply:
            await clock.settle()
            assert reply.status == 400


class TestWhatOneMaySee:
    async def test_a_key_hears_of_its_own_instances_only(
        self, app: ASGIApp, herd: Herd, plane: Plane, clock: FakeClock
    ) -> None:
        ada, bob = await make_key(plane, "read"), await make_key(plane, "write")
        await happen(herd, 1, owner=bob.key.id)
        await happen(herd, 2, owner=ada.key.id)
        async with (
            asking(app, EVENTS, bearer(ada), "lastEventId=0") as reply,
            asking(app, EVENTS, MINE, "lastEventId=0") as everything,
        ):
            await clock.settle()
            await happen(herd, 3, owner=bob.key.id)
            await happen_to_the_account(herd)
            await happen(herd, 4, owner=ada.key.id)
            await happen(herd, 5)
            await clock.advance(20)
            assert names(reply) == ["job-2", "job-4"]
            assert names(everything) == ["job-1", "job-2", "job-3", None, "job-4", "job-5"]

    async def test_to_ask_for_another_s_instance_is_404_and_for_the_account_too(
        self, app: ASGIApp, herd: Herd, plane: Plane, clock: FakeClock
    ) -> None:
        ada = await make_key(plane, "read")
        await happen(herd, 1)
        for word in (instance_id(1), "job-1", "account", "nobody"):
            for path in (EVENTS, HISTORY):
                async with asking(app, path, bearer(ada), f"instance={word}") as reply:
                    await clock.settle()
                    assert reply.status == 404, (word, path)

    async def test_one_instance_by_name_or_id_and_one_type(
        self, app: ASGIApp, herd: Herd, clock: FakeClock
    ) -> None:
        await happen(herd, 1)
        await happen(herd, 2)
        queries = ("instance=job-2", f"instance={instance_id(2)}", "type=b", "type=b&instance=job-1")
        async with AsyncExitStack() as stack:
            replies = [await stack.enter_async_context(asking(app, EVENTS, MINE, it)) for it in queries]
            await clock.settle()
            for n in (1, 2):
                instance = await herd.get(instance_id(n))
                told = (an_event(n, 2, type="a"), an_event(n, 3, type="b"))
                await herd.instances.update(Change(instance, events=told))
            await clock.advance(0.1)
            assert [it.ids for it in replies] == [[5, 6], [5, 6], [4, 6], [4]]

    async def test_a_parameter_that_is_not_known_is_refused(self, app: ASGIApp, clock: FakeClock) -> None:
        for query in ("typ=a", "follow=true", "limit=5"):
            async with asking(app, EVENTS, MINE, query) as reply:
                await clock.settle()
                assert reply.status == 400


class TestEnding:
    async def test_a_revoked_key_hears_no_more_within_seconds(
        self, app: ASGIApp, herd: Herd, plane: Plane, clock: FakeClock
    ) -> None:
        ada = await make_key(plane, "read")
        async with asking(app, EVENTS, bearer(ada)) as reply, asking(app, EVENTS, MINE) as other:
            await clock.settle()
            await revoke_key(plane.services, ada.key.id, ADMIN)
            await clock.advance(2)
            assert (reply.complete, other.complete) == (True, False)

    async def test_a_key_that_expires_ends_its_stream(
        self, app: ASGIApp, plane: Plane, clock: FakeClock
    ) -> None:
        ada = await make_key(plane, "read", expires_at=START + timedelta(seconds=30))
        async with asking(app, EVENTS, bearer(ada)) as reply:
            await clock.advance(28)
            assert not reply.complete
            await clock.advance(4)
            assert reply.complete

    async def test_the_end_of_the_server_ends_every_stream(
        self, app: ASGIApp, plane: Plane, clock: FakeClock
    ) -> None:
        async with asking(app, EVENTS, MINE) as one, asking(app, EVENTS, MINE) as two:
            await clock.settle()
            plane.services.event_feed.close()
            await clock.settle()
            assert one.complete
            assert two.complete
        async with asking(app, EVENTS, MINE) as late:
            await clock.settle()
            assert (late.status, late.headers["retry-after"]) == (503, "5")

    async def test_a_client_that_reads_nothing_is_ended_and_comes_back_for_the_rest(
        self, app: ASGIApp, herd: Herd, plane: Plane, clock: FakeClock
    ) -> None:
        plane.services.event_feed.limits = StreamLimits(pending=10)
        async with asking(app, EVENTS, MINE) as reply:
            await clock.settle()
            reply.reads.clear()
            for n in range(1, 31):
                await happen(herd, n)
                await clock.advance(0.05)
            assert reply.ids == []
            reply.reads.set()
            await clock.settle()
            assert reply.complete
            first = reply.ids
        assert first == list(range(1, len(first) + 1))
        assert len(first) < 15
        async with asking(app, EVENTS, MINE | {"Last-Event-ID": str(first[-1])}) as again:
            await clock.settle()
            assert first + again.ids == list(range(1, 31))

    async def test_there_is_a_limit_for_each_key_and_one_for_all(
        self, app: ASGIApp, plane: Plane, clock: FakeClock
    ) -> None:
        plane.services.event_feed.limits = StreamLimits(streams=2, streams_of_key=1)
        ada, bob = await make_key(plane, "read"), await make_key(plane, "read")
        async with AsyncExitStack() as stack:
            replies = []
            for headers in (MINE, MINE, bearer(ada), bearer(bob)):
                replies.append(await stack.enter_async_context(asking(app, EVENTS, headers)))
                await clock.settle()
            assert [it.status for it in replies] == [200, 429, 200, 503]
            for refused in (replies[1], replies[3]):
                assert refused.headers["retry-after"] == "5"
                assert b"TOO_MANY_STREAMS" in refused.body


class TestTheGauge:
    async def test_it_counts_those_that_are_open_and_falls_when_a_client_leaves(
        self, app: ASGIApp, plane: Plane, clock: FakeClock
    ) -> None:
        async def shown() -> float:
            return (await scrape(plane.metrics)).value("gpuherd_event_streams")

        assert await shown() == 0
        async with asking(app, EVENTS, MINE):
            async with asking(app, EVENTS, MINE):
                await clock.settle()
                assert await shown() == 2
            assert await shown() == 1
        assert await shown() == 0


class TestHistory:
    async def test_it_is_read_backwards_by_cursor(self, api: httpx.AsyncClient, herd: Herd) -> None:
        for n in range(1, 6):
            await happen(herd, n)
        first = (await api.get(HISTORY, params={"limit": 2})).json()
        assert [it["name"] for it in first["events"]] == ["job-5", "job-4"]
        assert first["lastEventId"] == "5"
        second = (await api.get(HISTORY, params={"limit": 3, "cursor": first["nextCursor"]})).json()
        assert [it["name"] for it in second["events"]] == ["job-3", "job-2", "job-1"]
        assert second["nextCursor"] is None

    async def test_it_is_read_forwards_from_an_event(self, api: httpx.AsyncClient, herd: Herd) -> None:
        for n in range(1, 6):
            await happen(herd, n)
        last, got = "1", []
        while found := (await api.get(HISTORY, params={"limit": 2, "lastEventId": last})).json():
            last = found["lastEventId"]
            if not found["events"]:
                break
            got += [it["id"] for it in found["events"]]
        assert got == [2, 3, 4, 5]

    async def test_the_stream_goes_on_where_it_ends_also_when_nothing_was_found(
        self, app: ASGIApp, api: httpx.AsyncClient, herd: Herd, clock: FakeClock
    ) -> None:
        await happen(herd, 1)
        found = (await api.get(HISTORY, params={"type": "b"})).json()
        assert (found["events"], found["lastEventId"]) == ([], "1")
        await happen(herd, 2, "b")
        async with asking(app, EVENTS, MINE, f"type=b&lastEventId={found['lastEventId']}") as reply:
            await clock.settle()
            assert reply.ids == [2]

    async def test_a_key_finds_its_own_only(self, api: httpx.AsyncClient, herd: Herd, plane: Plane) -> None:
        ada = await make_key(plane, "read")
        await happen(herd, 1, owner=ada.key.id)
        await happen(herd, 2)
        await happen_to_the_account(herd)
        for params in ({}, {"lastEventId": "0"}):
            found = (await api.get(HISTORY, params=params, headers=bearer(ada))).json()
            assert [it["name"] for it in found["events"]] == ["job-1"]

    @pytest.mark.parametrize(
        "params",
        [
            {"limit": "0"},
            {"limit": "101"},
            {"cursor": "x"},
            {"lastEventId": "-1"},
            {"who": "me"},
            {"cursor": "1", "lastEventId": "1"},
        ],
    )
    async def test_nonsense_is_400(self, api: httpx.AsyncClient, params: dict[str, str]) -> None:
        assert (await api.get(HISTORY, params=params)).status_code == 400
