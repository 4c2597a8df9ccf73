"""A verb that is written once is a function here and a coroutine there; lists come page by page."""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import Any

import pytest

from gpuherd.client import AsyncGpuherd, Gpuherd, HealthCheck, Instance, SecretLost, UnexpectedReply
from tests.client.support.server import AnyClient, FakeReply, FakeServer, accepted, client_of, details, lost


def page(*ids: str, following: str | None = None) -> dict[str, Any]:
    return {"instances": [details(id=it) for it in ids], "total": 9, "nextCursor": following}


async def test_a_list_goes_on_to_its_last_page(call: AnyClient, server: FakeServer) -> None:
    server.script(page("a", "b", following="c1"), page("c", following="c2"), page())
    found = await call(lambda herd: herd.instances.list(status="running", label=("team", "a b")))
    assert [it.id for it in found] == ["a", "b", "c"]
    first = "GET /api/instances?status=running&label=team%3Da+b&limit=100"
    assert server.asked == [first, f"{first}&cursor=c1", f"{first}&cursor=c2"]


def test_pages_are_fetched_when_they_are_needed(server: FakeServer) -> None:
    herd = client_of("sync", server).herd
    assert isinstance(herd, Gpuherd)
    server.script(page("a", "b", following="c1"), page("c"))
    found = herd.instances.list()
    assert server.seen == []
    assert [next(found).id, next(found).id] == ["a", "b"]
    assert len(server.seen) == 1
    assert [it.id for it in found] == ["c"]


async def test_a_list_that_goes_in_circles_is_left(call: AnyClient, server: FakeServer) -> None:
    server.script(page("a", following="c1"))
    with pytest.raises(UnexpectedReply, match="for ever"):
        await call(lambda herd: herd.instances.list())


async def test_a_list_that_is_none_is_not_an_empty_one(call: AnyClient, server: FakeServer) -> None:
    server.script({"total": 0})
    for what in (
        lambda herd: herd.instances.list(),
        lambda herd: herd.products(),
        lambda herd: herd.keys.list(),
    ):
        with pytest.raises(UnexpectedReply, match="no list of"):
            await call(what)


async def test_a_name_is_never_taken_as_syntax(call: AnyClient, server: FakeServer) -> None:
    server.script(details())
    await call(lambda herd: herd.instances.get("../a/b?c=d#e %41"))
    assert server.asked == ["GET /api/instances/%2E%2E%2Fa%2Fb%3Fc%3Dd%23e%20%2541"]


async def test_an_empty_name_is_refused_here(call: AnyClient, server: FakeServer) -> None:
    for what in (lambda herd: herd.instances.delete(""), lambda herd: herd.keys.revoke("")):
        with pytest.raises(ValueError, match="names nothing"):
            await call(what)
    assert server.seen == []


async def test_an_instance_will_do_for_its_id(call: AnyClient, server: FakeServer) -> None:
    server.script(accepted(), accepted())
    await call(lambda herd: herd.instances.stop(Instance.of(details())))
    await call(lambda herd: herd.instances.restart(Instance.of(details())))
    assert server.asked == ["POST /api/instances/inst_1/stop", "POST /api/instances/inst_1/restart"]


async def test_only_what_is_wished_for_is_sent(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(details(), 201))
    await call(
        lambda herd: herd.instances.create(
            "a",
            "b",
            "7",
            gpu_num=2,
            rootfs_size=None,
            regions=("X", "Y"),
            billing_mode="onDemand",
            max_hourly_price=0.7,
            optimize="price",
            on_failure="keep",
            webhook_url="https://example.com",
            health_check=HealthCheck(target_port=80, expected_status=(200, 204), max_wait_time_ms=5000),
            wait_for_capacity_s=60,
            volumes={"v-1": "/data"},
        )
    )
    assert server.seen[0].body == {
        "name": "a",
        "productName": "b",
        "templateId": "7",
        "gpuNum": 2,
        "regions": ["X", "Y"],
        "billingMode": "onDemand",
        "maxHourlyPrice": "0.7",
        "optimize": "price",
        "onFailure": "keep",
        "webhookUrl": "https://example.com",
        "healthCheck": {"targetPort": 80, "expectedStatus": (200, 204), "maxWaitTimeMs": 5000},
        "waitForCapacity": {"seconds": 60},
        "volumes": [{"id": "v-1", "mountPath": "/data"}],
    }


async def test_a_secret_that_got_lost_is_told_with_what_was_made(call: AnyClient, server: FakeServer) -> None:
    server.script(lost(), FakeReply({"id": "k1", "key": None}, 201))
    with pytest.raises(SecretLost, match="key k1 was made") as caught:
        await call(lambda herd: herd.keys.create(["read"]))
    assert caught.value.id == "k1"


async def test_a_secret_is_nowhere_but_in_its_place(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply({"id": "k1", "key": "canary"}, 201))
    made = await call(lambda herd: herd.keys.create(["read"]))
    assert made.secret.reveal() == "canary"
    assert "canary" not in repr(made) and "canary" not in repr(made.key.raw)


async def test_a_time_without_a_zone_is_refused(call: AnyClient, server: FakeServer) -> None:
    with pytest.raises(ValueError, match="zone"):
        await call(lambda herd: herd.webhooks.replay(datetime(2026, 1, 1)))


async def test_an_unhealthy_server_is_an_answer(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply({"status": "unhealthy", "dependencies": {"database": {"status": "down"}}}, 503))
    assert (await call(lambda herd: herd.health())).status == "unhealthy"
    assert len(server.seen) == 1


def test_both_clients_have_the_same_verbs_with_words_about_them() -> None:
    one, other = Gpuherd("http://x", "k"), AsyncGpuherd("http://x", "k")
    assert _verbs(one) == _verbs(other)
    assert {"instances.create", "webhooks.deliveries.replay", "rent", "health"} <= _verbs(one)


def _verbs(it: Any, prefix: str = "") -> set[str]:
    found = set()
    for name in dir(it):
        if name.startswith("_") or name == "url":
            continue
        value = getattr(it, name)
        if callable(value):
            assert inspect.getdoc(value), f"{prefix}{name} has no docstring"
            found.add(prefix + name)
        else:
            found |= _verbs(value, f"{prefix}{name}.")
    return found
