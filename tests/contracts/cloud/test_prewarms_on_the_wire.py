"""Image prewarm as Novita may answer: odd rows, logins where an id should be, lists that do not add up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuherd.adapters.novita.novita_images import NovitaPrewarms
from gpuherd.domain.cloud.template import (
    Prewarm,
    PrewarmOrder,
    PrewarmProduct,
    PrewarmState,
)
from gpuherd.domain.errors import CloudRefused, CloudUnavailable, OutcomeUnknown
from tests.adapters.novita.builders import open_transport
from tests.adapters.novita.raw_server import http, raw_server, saying

CANARY = "canary-of-a-registry"
ROW: dict[str, Any] = {"id": "t1", "imageUrl": "a:1", "clusterId": "c-1", "state": "Failed"}
ORDER = PrewarmOrder("a:1", "c-1")


async def listed(*rows: dict[str, Any], total: int | None = None) -> tuple[Prewarm, ...]:
    """Return what is read of these rows; every question gets the same answer, also the one for logins."""
    body = {"data": rows, "total": total or len(rows)}
    async with raw_server(saying(http(200, body))) as server, open_transport(server.base_url) as transport:
        return await NovitaPrewarms(transport).list_prewarms()


async def test_a_row_that_says_little_is_still_a_task() -> None:
    (task,) = await listed({**ROW, "reason": {}, "products": None, "imageSize": "", "completeTime": "0"})
    assert (task.region, task.state, task.reasons, task.products) == ("c-1", PrewarmState.FAILED, (), ())
    assert (task.size_bytes, task.created_at, task.completed_at) == (None, None, None)
    (task,) = await listed({**ROW, "state": "Paused", "reason": ["a\x1b[31m"]})
    assert (task.state, task.reasons) == (PrewarmState.UNKNOWN, ())


async def test_a_login_in_the_place_of_an_id_is_not_shown_and_nothing_that_may_quote_it() -> None:
    (task,) = await listed({**ROW, "repositoryAuth": f"robot:{CANARY}", "reason": [f"no {CANARY}"]})
    assert task.registry_auth_id == ""
    assert CANARY not in repr(task)
    assert "not shown" in task.reasons[0]


@pytest.mark.parametrize("total", [2, 7])
async def test_a_list_that_does_not_add_up_is_not_believed(total: int) -> None:
    with pytest.raises(CloudUnavailable):
        await listed(ROW, total=total)


async def test_only_what_is_wanted_is_sent() -> None:
    async with (
        raw_server(saying(http(200, {"id": "t1", "data": []}))) as server,
        open_transport(server.base_url) as transport,
    ):
        prewarms = NovitaPrewarms(transport)
        await prewarms.create_prewarm(ORDER)
        whole = PrewarmOrder("a:1", "c-1", "auth", (PrewarmProduct("p", "P"),), "note")
        await prewarms.create_prewarm(whole)
        await prewarms.delete_prewarm("t1")
    small, _, full, removal = server.requests
    assert json.loads(small.body) == {"imageUrl": "a:1", "clusterId": "c-1"}
    assert json.loads(full.body) == {
        "imageUrl": "a:1",
        "clusterId": "c-1",
        "repositoryAuth": "auth",
        "productIds": ["p"],
        "note": "note",
    }
    assert json.loads(removal.body) == {"ids": ["t1"]}


async def test_a_refusal_that_may_quote_a_login_is_shown_without_it() -> None:
    refusal = {"code": 400, "reason": "OPERATION_LIMIT", "message": f"no room for {CANARY}"}
    async with (
        raw_server(saying(http(400, refusal))) as server,
        open_transport(server.base_url) as transport,
    ):
        with pytest.raises(CloudRefused) as caught:
            await NovitaPrewarms(transport).create_prewarm(PrewarmOrder("a:1", "c-1", "auth"))
    assert CANARY not in str(caught.value)
    assert "OPERATION_LIMIT" in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"id": 7}', b"[]", b"<html>"])
async def test_a_task_without_an_id_may_be_there(raw: bytes) -> None:
    async with raw_server(saying(http(200, raw))) as server, open_transport(server.base_url) as transport:
        with pytest.raises(OutcomeUnknown):
            await NovitaPrewarms(transport).create_prewarm(ORDER)
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [{}, {"total": 1}, {"total": "x", "limit": 5}])
async def test_a_quota_that_cannot_be_read_is_none(body: dict[str, Any]) -> None:
    async with raw_server(saying(http(200, body))) as server, open_transport(server.base_url) as transport:
        with pytest.raises(CloudUnavailable):
            await NovitaPrewarms(transport).prewarm_quota()
