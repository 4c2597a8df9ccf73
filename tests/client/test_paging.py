"""Lists: entry by entry, page by page, and with the answer that they were read from."""

from __future__ import annotations

from typing import Any

import pytest

from gpuherd.client import AsyncGpuherd, Gpuherd, UnexpectedReply
from tests.client.support.server import AnyClient, FakeServer, details


def page(*ids: str, following: str | None = None) -> dict[str, Any]:
    return {"instances": [details(id=it) for it in ids], "total": 3, "nextCursor": following}


async def test_entries_are_fetched_page_by_page(call: AnyClient, server: FakeServer) -> None:
    server.script(page("inst_1", "inst_2", following="c"), page("inst_3"))
    found = await call(lambda herd: herd.instances.list(page_size=2))
    assert [it.id for it in found] == ["inst_1", "inst_2", "inst_3"]
    assert server.asked == ["GET /api/instances?limit=2", "GET /api/instances?limit=2&cursor=c"]


async def test_one_page_has_its_place_and_its_answer(call: AnyClient, server: FakeServer) -> None:
    answer = page("inst_1", following="c")
    server.script(answer)
    one = await call(lambda herd: herd.instances.list(page_size=1).page("b"))
    assert ([it.id for it in one.entries], one.total, one.next_cursor) == (["inst_1"], 3, "c")
    assert one.raw == answer
    assert server.asked == ["GET /api/instances?limit=1&cursor=b"]


async def test_all_pages_one_after_the_other(call: AnyClient, server: FakeServer) -> None:
    server.script(page("inst_1", following="c"), page("inst_2"))
    pages = await call(lambda herd: herd.instances.list().pages())
    assert [it.next_cursor for it in pages] == ["c", None]


async def test_a_list_that_leads_back_to_itself_is_not_followed(call: AnyClient, server: FakeServer) -> None:
    server.script(page("inst_1", following="c"))
    with pytest.raises(UnexpectedReply, match="same page"):
        await call(lambda herd: herd.instances.list())


async def test_a_whole_list_is_a_tuple_with_its_answer(call: AnyClient, server: FakeServer) -> None:
    answer = {"regions": [{"code": "CN-HK-01"}], "total": 1}
    server.script(answer)
    regions = await call(lambda herd: herd.regions())
    assert ([it.code for it in regions], regions.raw) == (["CN-HK-01"], answer)
    assert isinstance(regions, tuple)


async def test_the_audit_log_can_be_read_oldest_first(call: AnyClient, server: FakeServer) -> None:
    entry = {
        "n": 1,
        "at": "2026-05-01T12:00:00.000000Z",
        "actor": "admin",
        "action": "key.create",
        "target": "adaadaad",
        "before": "",
        "after": "{}",
        "requestId": "r",
        "hash": "h",
    }
    server.script({"entries": [entry], "total": 1, "nextCursor": None})
    (found,) = await call(lambda herd: herd.audit.list(order="asc"))
    assert (found.n, found.actor, found.request_id, found.hash) == (1, "admin", "r", "h")
    assert server.asked == ["GET /api/audit?order=asc&limit=100"]


async def test_the_past_is_read_from_an_event_on(call: AnyClient, server: FakeServer) -> None:
    server.script({"events": [], "nextCursor": None, "lastEventId": "9"})
    history = await call(lambda herd: herd.history("inst_1", type="instance.ready", since=7, limit=5))
    assert (history.events, history.last_event_id) == ((), "9")
    asked = "instance=inst_1&type=instance.ready&limit=5&lastEventId=7"
    assert server.asked == [f"GET /api/events/history?{asked}"]


@pytest.mark.parametrize("kind", [Gpuherd, AsyncGpuherd])
def test_both_clients_have_the_same_lists(kind: type) -> None:
    herd = kind("http://x", "k")
    assert {type(it).__name__.removeprefix("Async") for it in (herd.instances.list(), herd.jobs.list())} == {
        "Paged"
    }
