"""What the ports `HeldPlans` and `Instances` promise about plans: kept for their owner, rented once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.plan import HELD_FOR, HeldPlan
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.ports.instance_port import Change
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from tests.support.builders import an_instance
from tests.support.fake_clock import START
from tests.support.sql.databases import Store, all_at_once

PLAN = HeldPlan("plan_1", "ada", '{"name": "job"}', Decimal("0.358333333"), START, START + HELD_FOR)
# No herd in memory is asked to hold a plan.
IN_SQL = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
OF_PLAN = LaunchRequest("job", LaunchSpec("RTX 4090 24GB", "101"), plan=PLAN).claims


@IN_SQL
async def test_a_plan_is_found_by_its_owner_as_it_was_and_by_nobody_else(store: Store) -> None:
    await store.held_plans.add(PLAN)
    assert await store.held_plans.find("plan_1", "ada") == PLAN
    assert await store.held_plans.find("plan_1", "bob") is None
    assert await store.held_plans.find("plan_2", "ada") is None


@IN_SQL
async def test_plans_are_forgotten_when_they_are_old(store: Store) -> None:
    await store.held_plans.add(PLAN)
    await store.held_plans.add(replace(PLAN, id="plan_2", expires_at=START + timedelta(hours=1)))
    assert await store.retention.prune_plans(PLAN.expires_at) == 0
    assert await store.retention.prune_plans(PLAN.expires_at + timedelta(seconds=1)) == 1
    assert await store.held_plans.find("plan_2", "ada") is not None


@pytest.mark.proves("A1")
async def test_twenty_at_once_with_one_plan_and_keys_of_their_own_are_one_instance(store: Store) -> None:
    def with_key(n: int) -> tuple[IdempotencyClaim, ...]:
        return (IdempotencyClaim("ada", f"run-{n}", "asked"), *OF_PLAN)

    answers = await all_at_once(20, lambda n: store.instances.add(Change(an_instance(n)), *with_key(n)))
    assert len({it.id for it in answers}) == 1
    everything = await store.everything()
    assert (len(everything["instance"]), len(everything["claim"])) == (1, 2)
