"""What is spent has a limit: budgets refuse, warn, and end what they do not hold, by the cloud's bill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.errors import BudgetExhausted, InvalidRequest
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_event import CauseCode
from gpuherd.domain.instance.lease import Lease, Terms
from gpuherd.domain.money.budget import (
    AtLimit,
    Budget,
    BudgetScope,
    ScopeKind,
)
from gpuherd.domain.money.period import BudgetPeriod
from gpuherd.domain.webhooks.webhook_endpoint import WebhookEndpoint
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_machine import machine_charges
from gpuherd.simulator.world import World
from gpuherd.usecases.instances.change_lease import LeaseOrder
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from gpuherd.usecases.money.manage_budgets import BudgetRequest
from tests.support.budgets import USD
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
# Enough to be accepted, and used up after twenty minutes.
LITTLE = 0.06
# Of the machine that is rented here, in dollars an hour.
PRICE = 0.175
RED = {"team": "red"}


async def a_budget(herd: Herd, usd: float, **changes: Any) -> Budget:
    fields: dict[str, Any] = {
        "name": "nlp",
        "scope": BudgetScope(),
        "amount": int(usd * USD),
        "period": BudgetPeriod.TOTAL,
        "at_limit": AtLimit.STOP,
    }
    return await herd.add_budget(BudgetRequest(**{**fields, **changes}), ADMIN)


async def launch(
    herd: Herd, name: str = "job", labels: Mapping[str, str] = RED, terms: Terms | None = None
) -> Instance:
    request = LaunchRequest(name, herd.wish, labels=dict(labels))
    request = request if terms is None else replace(request, terms=terms)
    return (await herd.launch_request(request)).instance


def bill(world: World) -> float:
    """Return what the cloud charges for everything, in dollars."""
    machines = world.machines.values()
    return sum(float(it.usd) for machine in machines for it in machine_charges(machine, world.now()))


async def event_types(herd: Herd) -> list[str]:
    return [it.type for it in herd.rows(herd.tables.event) if it.type.startswith("budget.")]


@pytest.mark.proves("B2")
async def test_what_runs_is_stopped_before_the_amount_is_passed(herd: Herd, world: World) -> None:
    budget = await a_budget(herd, 0.3)
    for n in range(5):
        await herd.settle(await launch(herd, f"job-{n}"))
    await herd.run_for(30 * MINUTE)
    stopped = await herd.instances.all_live()
    assert {(it.instance.status, it.instance.goal) for it in stopped} == {(Status.EXITED, Goal.STOPPED)}
    # The lead is enough for the stop, and not much more is left unspent than it is worth.
    lead = 5 * PRICE * 120 / 3600
    assert 0.3 - 2 * lead <= bill(world) <= 0.3
    (ended,) = {
        (it.actor, it.cause.code if it.cause else None)
        for row in stopped
        for it in await herd.events(row.instance.id)
        if it.type == "instance.stopping"
    }
    assert ended == (f"budget:{budget.id}", CauseCode.BUDGET_EXHAUSTED)


async def test_it_is_told_once_to_endpoints_and_explained(herd: Herd) -> None:
    await a_budget(herd, LITTLE)
    instance = await herd.settle(await launch(herd))
    await herd.run_for(30 * MINUTE)
    # It is stopped before 95 % are spent.
    assert await event_types(herd) == ["budget.warning", "budget.warning", "budget.exhausted"]
    why = await herd.why(await herd.get(instance.id))
    assert any("budget 'nlp' is used up" in it.text for it in why.story)


@pytest.mark.parametrize("at_limit", [AtLimit.WARN, AtLimit.BLOCK])
async def test_one_that_stops_nothing_lets_it_run(herd: Herd, at_limit: AtLimit) -> None:
    await a_budget(herd, LITTLE, at_limit=at_limit)
    instance = await herd.settle(await launch(herd))
    await herd.run_for(30 * MINUTE)
    assert (await herd.get(instance.id)).usable
    assert (await event_types(herd))[-1] == "budget.exhausted"
    if at_limit is AtLimit.WARN:
        await launch(herd, "another")
        return
    with pytest.raises(BudgetExhausted):
        await launch(herd, "another")


async def test_a_delete_takes_what_is_stopped_and_costs_a_disk(herd: Herd, world: World) -> None:
    await a_budget(herd, 0.12, at_limit=AtLimit.DELETE)
    herd.wish = replace(herd.wish, disk_gb=1000)
    instance = await herd.settle(await launch(herd))
    await herd.stop(instance.id)
    await herd.run_for(HOUR)
    assert (await herd.get(instance.id)).status is Status.DELETED
    assert bill(world) <= 0.12


async def test_only_what_is_in_the_scope_is_ended(herd: Herd) -> None:
    await a_budget(herd, LITTLE, scope=BudgetScope(ScopeKind.LABEL, "team", "red"))
    red = await herd.settle(await launch(herd))
    blue = await herd.settle(await launch(herd, "blue", {"team": "blue"}))
    await herd.run_for(30 * MINUTE)
    assert (await herd.get(red.id)).status is Status.EXITED
    assert (await herd.get(blue.id)).usable


async def test_what_still_boots_or_waits_is_deleted(herd: Herd, world: World) -> None:
    await a_budget(herd, 0.05)
    world.faults.add(Fault(FaultKind.SLOW_PULL, factor=100_000))
    booting = await launch(herd)
    await herd.run_for(19 * MINUTE)
    assert (await herd.get(booting.id)).status is Status.DELETED
    assert bill(world) <= 0.05


@pytest.mark.proves("B3")
async def test_a_create_of_unknown_outcome_is_found_and_removed(herd: Herd, world: World) -> None:
    await a_budget(herd, 0.06)
    world.faults.add(Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, endpoints=(ApiEndpoint.CREATE,), count=1))
    lost = await launch(herd)
    await herd.run_for(timedelta(seconds=3))
    assert (await herd.attempts(lost.id))[0].is_open
    budget = await herd.change_budget("nlp", {"amount": 1}, ADMIN)
    assert budget.amount == 1
    await herd.run_for(10 * MINUTE)
    assert (await herd.get(lost.id)).status is Status.DELETED
    assert {it.turns[-1].status for it in world.machines.values()} == {"removed"}


@pytest.mark.proves("B5")
async def test_it_stays_used_up_until_the_amount_is_raised(herd: Herd) -> None:
    await a_budget(herd, LITTLE)
    instance = await herd.settle(await launch(herd))
    await herd.run_for(30 * MINUTE)
    with pytest.raises(BudgetExhausted):
        await launch(herd, "another")
    with pytest.raises(BudgetExhausted):
        await herd.start(instance.id)
    assert (await herd.get(instance.id)).status is Status.EXITED
    await herd.change_budget("nlp", {"amount": USD}, ADMIN)
    assert (await event_types(herd))[-1] == "budget.reset"
    await herd.start(instance.id)
    assert (await herd.settle(instance)).usable


async def test_a_new_day_lets_creates_go_on_and_starts_nothing(herd: Herd) -> None:
    await a_budget(herd, LITTLE, period=BudgetPeriod.DAY)
    instance = await herd.settle(await launch(herd))
    await herd.run_for(30 * MINUTE)
    with pytest.raises(BudgetExhausted):
        await launch(herd, "another")
    await herd.run_jobs_for(24 * HOUR)
    await herd.run_for(MINUTE)
    assert (await event_types(herd))[-1] == "budget.reset"
    assert (await herd.get(instance.id)).status is Status.EXITED
    await launch(herd, "another")


@pytest.mark.proves("B6")
async def test_a_wall_clock_that_is_set_ahead_uses_nothing_up(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    await a_budget(herd, 0.1)
    instance = await herd.settle(await launch(herd))
    clock.jump_wall(10 * 3600)
    # Before any list has been able to notice.
    await herd.review_budgets()
    await herd.run_for(10 * MINUTE)
    assert (await herd.get(instance.id)).usable
    assert await event_types(herd) == []
    await herd.run_for(30 * MINUTE)
    assert (await herd.get(instance.id)).status is Status.EXITED
    assert bill(world) <= 0.1


async def test_a_strict_one_holds_whole_leases(herd: Herd, world: World) -> None:
    await a_budget(herd, 0.09, strict=True)
    with pytest.raises(InvalidRequest) as raised:
        await launch(herd)
    assert raised.value.code == "LEASE_REQUIRED"
    leased = Terms(Lease(seconds=1200))
    instance = await herd.settle(await launch(herd, terms=leased))
    with pytest.raises(BudgetExhausted):
        await launch(herd, "another", terms=leased)
    with pytest.raises(BudgetExhausted):
        await herd.extend(instance.id, LeaseOrder(seconds=2400))
    with pytest.raises(InvalidRequest) as taken:
        await herd.remove_lease(instance.id)
    assert taken.value.code == "LEASE_REQUIRED"
    await herd.extend(instance.id, LeaseOrder(seconds=600))
    await herd.run_for(20 * MINUTE)
    assert (await herd.get(instance.id)).status is Status.EXITED
    assert bill(world) <= 0.09


async def test_a_plan_says_that_a_budget_would_refuse(herd: Herd) -> None:
    request = LaunchRequest("job", herd.wish, caller=ADMIN)
    assert not (await herd.plan(request)).obstacles
    await a_budget(herd, 0.001)
    (refusal,) = (await herd.plan(request)).obstacles
    assert refusal.code == "BUDGET_EXHAUSTED"


async def test_what_was_counted_is_all_that_it_may_cost(herd: Herd) -> None:
    await a_budget(herd, 1)
    instance = await launch(herd)
    assert instance.wish.hourly_usd_max == instance.expected_hourly_usd is not None


async def test_webhooks_go_to_endpoints_and_not_to_the_url_of_an_instance(
    herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = WebhookEndpoint("wep_1", "https://hooks.example/all", herd.clock.now(), "root")
    herd.tell_endpoints(endpoint)
    await a_budget(herd, LITTLE, warn_percent=(80,))
    request = LaunchRequest("job", herd.wish, webhook_url="https://hooks.example/own")
    await herd.settle((await herd.launch_request(request)).instance)
    await herd.run_for(30 * MINUTE)
    told = [json.loads(row.body) for row in herd.rows(herd.tables.delivery) if row.type.startswith("budget.")]
    assert [(it["type"], it["data"]["percent"]) for it in told] == [
        ("budget.warning", 80),
        ("budget.exhausted", None),
    ]
    assert told[0]["data"]["scope"] == {"all": True}
    assert {row.url for row in herd.rows(herd.tables.delivery) if row.type.startswith("budget.")} == {
        endpoint.url
    }


class TestOnSqlite:
    """The same with the sums of SQL."""

    async def test_the_bill_stays_within_the_amount(self, herd: Herd, world: World) -> None:
        await a_budget(herd, 0.15, scope=BudgetScope(ScopeKind.LABEL, "team", "red"))
        for n in range(3):
            await herd.settle(await launch(herd, f"job-{n}"))
        await herd.run_for(20 * MINUTE)
        assert 0.15 - 3 * PRICE * 240 / 3600 <= bill(world) <= 0.15
        live = await herd.instances.all_live()
        assert {it.instance.status for it in live} == {Status.EXITED}


async def test_what_has_vanished_is_not_reconciled_again_and_again_for_a_budget(
    herd: Herd, world: World
) -> None:
    await a_budget(herd, LITTLE)
    it = await herd.settle(await launch(herd))
    world.delete(it.cloud_id or "")
    await herd.run_for(5 * MINUTE)
    await herd.change_budget("nlp", {"amount": 1}, ADMIN)
    await herd.run_for(MINUTE)
    before = await herd.get(it.id)
    assert before.status is Status.FAILED
    await herd.run_for(5 * MINUTE)
    assert (await herd.get(it.id)).version == before.version
