"""Every verb of both clients on the real application, over a simulated cloud."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import httpx
import pytest

from gpuherd.client.client_errors import (
    Conflict,
    Forbidden,
    InstanceFailed,
    InvalidRequest,
    NotFound,
    Unauthorized,
)
from gpuherd.client.webhook_verification import verify_webhook
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.lease_models import HealthCheckBody
from gpuherd.domain.webhooks.webhook_signing import Signer
from tests.client.support.real_app import RealAppClient
from tests.entrypoints.http.conftest import KEY, anonymous, clock, herd, meter, plane
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.unmanaged_machines import look, rent_outside_gpuherd
from tests.support.webhooks.receivers import BROKEN, OK, Hooks

__all__ = ["anonymous", "clock", "herd", "meter", "plane"]

WISH = {"product_name": "RTX 4090 24GB", "template_id": 101}
MINUTES = timedelta(minutes=3)
HOOK = "https://example.com/hook"


@pytest.fixture(params=["sync", "async"])
async def call(
    request: pytest.FixtureRequest, anonymous: httpx.AsyncClient, clock: FakeClock
) -> RealAppClient:
    return RealAppClient(request.param, anonymous, KEY, clock)


def created(name: str, wish: dict[str, Any], client: Any) -> Any:
    return client.instances.create(name, **wish)


async def rented(call: RealAppClient, herd: Herd, **wish: Any) -> Instance:
    made = await call(lambda it: it.instances.create("train-1", **{**WISH, **wish}))
    await herd.run_for(MINUTES)
    found: Instance = await call(lambda it: it.instances.get(made))
    assert found.usable, found
    return found


async def test_an_instance_from_its_create_to_its_end(call: RealAppClient, herd: Herd) -> None:
    made = await call(
        lambda it: it.instances.create(
            "train-1", **WISH, gpu_num=1, rootfs_size=60, max_hourly_price="2", labels={"team": "a"}
        )
    )
    assert (made.name, made.status, made.usable) == ("train-1", "creating", False)
    assert made.created_at == herd.clock.now()
    await herd.run_for(MINUTES)
    gpu = await call(lambda it: it.instances.wait("train-1"))
    assert gpu.usable and gpu.ssh and gpu.port_mappings and gpu.cloud_instance_id
    assert gpu.hourly_price > 0 and isinstance(gpu.hourly_price, Decimal)
    assert gpu.ready_at.tzinfo is UTC and gpu.labels == {"team": "a"} and gpu.template_id == "101"

    stopping = await call(lambda it: it.instances.stop(gpu))
    await herd.run_for(MINUTES)
    assert (await call(lambda it: it.instances.wait(gpu, "exited"))).status == "exited"
    operation = await call(lambda it: it.operations.get(stopping))
    assert (operation.type, operation.status) == ("stop", "succeeded")
    assert operation.phases[0].phase == "requested" and operation.ended_at

    check = HealthCheckBody(path="/", max_wait_time_ms=60_000)
    await call(lambda it: it.instances.start(gpu, health_check=check))
    await herd.run_for(MINUTES)
    ready = await call(lambda it: it.instances.wait(gpu))
    assert (ready.status, ready.health_check.status) == ("ready", "passed")

    await call(lambda it: it.instances.delete("train-1"))
    await herd.run_for(MINUTES)
    assert (await call(lambda it: it.instances.wait(gpu.id, until="deleted"))).status == "deleted"
    with pytest.raises(InstanceFailed):
        await call(lambda it: it.instances.wait(gpu.id))

    events = await call(lambda it: it.instances.events(gpu.id))
    assert events[0].type == "instance.created" and events[-1].after == "deleted"
    assert [it.sequence for it in events] == sorted(it.sequence for it in events)
    (attempt,) = await call(lambda it: it.instances.attempts(gpu.id))
    assert (attempt.n, attempt.error, attempt.cloud_instance_id) == (1, None, gpu.cloud_instance_id)


async def test_waiting_sees_it_come(call: RealAppClient, herd: Herd) -> None:
    told: list[str] = []
    made = await call(lambda it: it.instances.create("train-1", **WISH))
    waiting = call(lambda it: it.instances.wait(made, on_progress=lambda i: told.append(i.status)))
    gpu, _ = await asyncio.gather(waiting, herd.run_for(MINUTES))
    assert gpu.usable
    assert told[0] == "creating" and told[-1] == "running"


async def test_a_rental_is_over_when_its_block_is(call: RealAppClient, herd: Herd) -> None:
    inside: list[Instance] = []
    await asyncio.gather(call.renting(inside.append, **WISH), herd.run_for(MINUTES))
    assert [it.usable for it in inside] == [True]
    await herd.run_for(MINUTES)
    assert (await call(lambda it: it.instances.get(inside[0]))).status == "deleted"
    assert herd.world.alive() == []


async def test_a_repeated_create_is_one_instance(call: RealAppClient) -> None:
    one, same = [
        await call(lambda it: it.instances.create("train-1", **WISH, idempotency_key="k")) for _ in range(2)
    ]
    assert one.id == same.id
    with pytest.raises(InvalidRequest) as caught:
        await call(lambda it: it.instances.create("train-2", **WISH, idempotency_key="k"))
    assert caught.value.code == "IDEMPOTENCY_KEY_REUSED"


async def test_lists_go_through_everything(call: RealAppClient) -> None:
    for n in range(3):
        wish = {**WISH, "labels": {"n": str(n % 2)}}
        await call(partial(created, f"train-{n}", wish))
    assert {it.name for it in await call(lambda it: it.instances.list())} == {"train-0", "train-1", "train-2"}
    assert [it.name for it in await call(lambda it: it.instances.list(label=("n", "1")))] == ["train-1"]
    assert await call(lambda it: it.instances.list(status="deleted", name="train-1")) == []


async def test_jobs(call: RealAppClient, herd: Herd) -> None:
    gpu = await rented(call, herd)
    jobs = await call(lambda it: it.jobs.list(instance=gpu, status="COMPLETED"))
    assert {it.type for it in jobs} >= {"create_instance", "monitor_instance"}
    assert (await call(lambda it: it.jobs.get(jobs[0].id))).instance_id == gpu.id
    stats = await call(lambda it: it.jobs.stats())
    assert stats.total >= 2 and stats.completed == stats.total and sum(stats.by_type.values()) == stats.total
    with pytest.raises(Conflict):
        await call(lambda it: it.jobs.retry(jobs[0].id))


async def test_the_catalogue(call: RealAppClient) -> None:
    product, *_ = await call(lambda it: it.products("RTX 4090 24GB", billing_mode="onDemand"))
    assert product.available and product.gpu_hourly_price > 0 and product.regions[0].stock is not None
    assert len(await call(lambda it: it.products())) > 1
    templates = await call(lambda it: it.templates())
    one = await call(lambda it: it.template(101))
    assert one in templates and one.ports[0].port and one.problem is None
    assert "CN-HK-01" in {it.code for it in await call(lambda it: it.regions())}


async def test_the_account_as_a_whole(call: RealAppClient, herd: Herd) -> None:
    gpu = await rented(call, herd)
    whole = await call(lambda it: it.comprehensive())
    assert [(it.id, it.source, it.consistency) for it in whole.instances] == [
        (gpu.id, "merged", "consistent")
    ]
    assert whole.sources == {"local": 0, "novita": 0, "merged": 1}
    synced = await call(lambda it: it.comprehensive(include_novita_only=False, sync_local_state=True))
    assert synced.synced and not synced.stale
    seen = await call(lambda it: it.sync())
    assert (seen.listed, seen.complete) == (1, True)
    health = await call(lambda it: it.health())
    assert health.status == "healthy" and health.dependencies["database"]["status"] == "up"


async def test_orphans(call: RealAppClient, herd: Herd) -> None:
    one, other, third = (rent_outside_gpuherd(herd.world, f"stranger-{n}") for n in range(3))
    await look(herd, 600)
    await look(herd, 3000)
    ledger = await call(lambda it: it.orphans.list("foreign"))
    assert {it.cloud_id for it in ledger.orphans} == {one, other, third}
    assert ledger.hourly_price == sum(it.hourly_price for it in ledger.orphans) and ledger.braked is None
    assert ledger.orphans[0].age_s == 3600 and ledger.orphans[0].cost_so_far > 0
    found = await call(lambda it: it.orphans.get(one))
    assert (found.name, found.verdict) == ("stranger-0", "foreign")
    adopted = await call(lambda it: it.orphans.adopt(found))
    assert (adopted.name, adopted.cloud_instance_id) == ("stranger-0", one)
    assert (await call(lambda it: it.orphans.stop(other))).order == "stop"
    assert (await call(lambda it: it.orphans.delete(third))).order == "delete"
    assert await call(lambda it: it.orphans.resume()) == ()
    with pytest.raises(NotFound) as caught:
        await call(lambda it: it.orphans.get("nothing"))
    assert caught.value.code == "ORPHAN_NOT_FOUND"


async def test_webhooks(call: RealAppClient, herd: Herd) -> None:
    hooks = Hooks(herd.clock)
    herd.receiver.instead = hooks
    made = await call(lambda it: it.webhooks.endpoints.add(HOOK, events=["instance.ready"], label="billing"))
    assert made.secret.reveal().startswith("whsec_") and made.endpoint.label == "billing"
    assert await call(lambda it: it.webhooks.endpoints.list()) == (made.endpoint,)
    await rented(call, herd)
    (delivery,) = await call(lambda it: it.webhooks.deliveries.list(endpoint=made.endpoint.id))
    assert (delivery.type, delivery.state, delivery.tries) == ("instance.ready", "delivered", 1)
    whole = await call(lambda it: it.webhooks.deliveries.get(delivery))
    assert whole.log[0].status == 200 and whole.payload["type"] == "instance.ready"
    replayed = await call(lambda it: it.webhooks.deliveries.replay(delivery))
    assert (replayed.id, replayed.state, replayed.replays) == (delivery.id, "pending", 1)

    rotated = await call(lambda it: it.webhooks.endpoints.rotate(made.endpoint))
    assert rotated.secret != made.secret and rotated.endpoint.previous_secret_signs_until
    assert (await call(lambda it: it.webhooks.endpoints.enable(made.endpoint))).enabled
    tested = await call(lambda it: it.webhooks.test(endpoint=made.endpoint.id))
    assert (tested.accepted, tested.status) == (True, 200)
    hooks.answer = lambda _url, _body: BROKEN
    failed = await call(lambda it: it.webhooks.test(HOOK))
    assert not failed.accepted and failed.error
    hooks.answer = lambda _url, _body: OK
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert await call(lambda it: it.webhooks.replay(since, state="dead")) == 0
    await call(lambda it: it.webhooks.endpoints.remove(made.endpoint))
    with pytest.raises(NotFound):
        await call(lambda it: it.webhooks.endpoints.get(made.endpoint))


async def test_what_the_server_sends_is_what_verify_webhook_reads(call: RealAppClient, herd: Herd) -> None:
    gpu = await rented(call, herd, webhook_url=HOOK)
    made = await call(lambda it: it.webhooks.endpoints.add(HOOK))
    for event_id, body in herd.receiver.got:
        headers = Signer([made.secret]).headers(event_id, body, herd.clock.now())
        event = verify_webhook(headers, body, made.secret, clock=call.clock)
        assert (event.id, event.instance and event.instance.id) == (event_id, gpu.id)
    assert event.type == "instance.ready" and event.instance and event.instance.usable


async def test_keys_and_what_they_may(
    call: RealAppClient, anonymous: httpx.AsyncClient, clock: FakeClock, request: pytest.FixtureRequest
) -> None:
    until = clock.now() + timedelta(days=1)
    made = await call(
        lambda it: it.keys.create(
            ["read"], label="ci", expires_at=until, requests_per_minute=600, max_gpus=2, max_hourly_usd="1.50"
        )
    )
    assert (made.key.label, made.key.scopes, made.key.expires_at) == ("ci", ("read",), until)
    assert (made.key.limits.max_gpus, made.key.limits.max_hourly_usd) == (2, Decimal("1.5"))
    kind = request.node.callspec.params["call"]
    reader = RealAppClient(kind, anonymous, made.secret.reveal(), clock)
    assert await reader(lambda it: it.instances.list()) == []
    with pytest.raises(Forbidden):
        await reader(lambda it: it.instances.create("x", **WISH))
    assert [it.id for it in await call(lambda it: it.keys.list())] == [made.key.id]
    assert (await call(lambda it: it.keys.get(made.key.id))).status == "active"
    assert (await call(lambda it: it.keys.revoke(made.key.id))).status == "revoked"
    with pytest.raises(Unauthorized):
        await reader(lambda it: it.instances.list())


async def test_secrets_go_in_and_do_not_come_out(call: RealAppClient, herd: Herd) -> None:
    kept = await call(lambda it: it.secrets.set("hf", "canary"))
    assert (kept.name, kept.shared) == ("hf", False)
    assert (await call(lambda it: it.secrets.set("team", "canary", shared=True))).shared
    found = await call(lambda it: it.secrets.list())
    assert [it.name for it in found] == ["hf", "team"]
    assert "canary" not in repr([it.raw for it in found])
    assert await call(lambda it: it.secrets.get("hf")) == kept
    gpu = await rented(call, herd, envs={"HF_TOKEN": {"secret": "hf"}, "TEAM": {"secret": "team"}})
    assert gpu.envs == {"HF_TOKEN": {"secret": "hf"}, "TEAM": {"secret": "team"}}
    (machine,) = herd.world.alive()
    assert dict(machine.request.envs).items() >= {("HF_TOKEN", "canary"), ("TEAM", "canary")}
    assert (await call(lambda it: it.secrets.rotate())).resealed == 0
    assert (await call(lambda it: it.secrets.remove("team", shared=True))).removed
    await call(lambda it: it.secrets.remove("hf"))
    with pytest.raises(NotFound, match="SECRET_NOT_FOUND"):
        await call(lambda it: it.secrets.remove("hf"))


async def test_every_problem_of_a_wish_is_told(call: RealAppClient) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await call(lambda it: it.instances.create("train-1", **WISH, gpu_num=9, rootfs_size=1))
    assert {it.field for it in caught.value.errors} == {"gpuNum", "rootfsSize"}
    assert caught.value.request_id


async def test_a_held_plan_is_one_instance_and_a_key_knows_itself(call: RealAppClient) -> None:
    assert (await call(lambda it: it.keys.own())).scopes == ("admin",)
    plan = await call(lambda it: it.plan(**WISH, name="held", hold=True))
    shown = await call(lambda it: it.held_plan(plan.plan_id))
    assert (shown.name, shown.held_hourly_price, shown.instance_id) == ("held", plan.best_hourly_price, None)
    first = await call(lambda it: it.instances.rent_plan(plan))
    again = await call(lambda it: it.instances.rent_plan(plan.plan_id, idempotency_key="another"))
    assert first.id == again.id and first.name == "held"
    free = await call(lambda it: it.plan(**WISH))
    with pytest.raises(ValueError, match="not held"):
        await call(lambda it: it.instances.rent_plan(free))


async def test_a_plan_before_and_the_why_after(call: RealAppClient, herd: Herd) -> None:
    plan = await call(lambda it: it.plan(**WISH, gpu_num=2, regions=["CN-HK-01", "AS-SGP-02"]))
    assert plan.fits and not plan.reasons and plan.best
    assert [it.rank for it in plan.offers] == list(range(1, len(plan.offers) + 1))
    assert plan.best.hourly_price == plan.best_hourly_price == plan.best.gpu_hourly_price * 2
    assert plan.estimate_basis.source == "first_guess" and plan.estimated_ready_in_seconds == 240
    assert all(it.reason for it in plan.refused)
    impossible = await call(lambda it: it.plan(**WISH, name="n", max_hourly_price="0.01"))
    assert (impossible.fits, impossible.best) == (False, None)
    assert impossible.reasons[0].code == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    with pytest.raises(NotFound):
        await call(lambda it: it.plan("no such GPU", 101))

    made = await call(lambda it: it.instances.create("train-1", **WISH, regions=["CN-HK-01"]))
    await herd.run_for(timedelta(seconds=10))
    waiting = await call(lambda it: it.instances.why(made))
    assert waiting.waits.what == "machine" and waiting.waits.next_try_at and waiting.advice
    assert waiting.considered[0].ranked[0].region == "CN-HK-01"
    assert waiting.attempts[0].state == "bound" and waiting.attempts[0].tag
    await herd.run_for(MINUTES)
    told = await call(lambda it: it.instances.why("train-1"))
    assert told.waits is None and told.usable and [it.status for it in told.phases][-1] == "running"
    assert str(told).startswith("Accepted: 1 × RTX 4090 24GB") and str(told).count("\n") >= 4


async def test_volumes_are_made_listed_and_deleted(call: RealAppClient, herd: Herd) -> None:
    made = await call(lambda it: it.volumes.create("data", "CN-HK-01", 100))
    assert (await call(lambda it: it.volumes.list())) == (made,)
    assert made.hourly_price > 0 and herd.world.volumes.listed()[0].id == made.id
    with pytest.raises(Conflict):
        await call(lambda it: it.volumes.create("data", "CN-HK-01", 100))
    assert (await call(lambda it: it.volumes.delete(made))).removed
    with pytest.raises(NotFound):
        await call(lambda it: it.volumes.delete(made.id))


async def test_an_image_is_prewarmed_waited_for_and_removed(call: RealAppClient, herd: Herd) -> None:
    made = await call(lambda it: it.prewarms.create("a:1", "US-CA-06", products=["4090.16c62g"], note="n"))
    assert (made.state, made.products[0].product_name, made.note) == ("pending", "RTX 4090 24GB", "n")
    with pytest.raises(Conflict):
        await call(lambda it: it.prewarms.create("a:1", "US-CA-06", products=["4090.16c62g"]))
    await herd.run_for(timedelta(minutes=1))
    done = await call(lambda it: it.prewarms.wait(made))
    assert (done.id, done.state) == (made.id, "succeeded") and done.size_bytes > 10**8
    assert (await call(lambda it: it.prewarms.list(state="succeeded", region="us-ca-6"))) == (done,)
    assert (await call(lambda it: it.prewarms.quota())).used == 1
    assert (await call(lambda it: it.prewarms.delete(done))).removed
    with pytest.raises(NotFound):
        await call(lambda it: it.prewarms.delete(made.id))
