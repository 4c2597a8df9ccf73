"""A replacement that a person asks for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuherd.domain.api_key import ADMIN, Limits
from gpuherd.domain.errors import Conflict, QuotaExceeded
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.operation import OperationState
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.herd import Herd

MINUTE = timedelta(minutes=1)
CLAIM = IdempotencyClaim("user", "key", "body")


async def members(herd: Herd, it: Instance) -> list[Status]:
    return [member.status for member in await herd.instances.of_lineage(it.id)]


@pytest.mark.proves("S9")
async def test_it_is_one_replacement_however_often_it_is_asked_for(herd: Herd, world: World) -> None:
    old = await herd.settle(await herd.launch())
    asked = [herd.replace(old.id, claim=claim) for claim in (CLAIM, CLAIM, None, None)]
    answers = await asyncio.gather(*asked)
    assert len({it.operation.id for it in answers}) == 1
    await herd.run_for(5 * MINUTE)
    assert await members(herd, old) == [Status.DELETED, Status.RUNNING]
    operation, _ = await herd.operation(answers[0].operation.id)
    assert operation.state is OperationState.SUCCEEDED
    replayed = await herd.replace(old.id, claim=CLAIM)
    assert replayed.replayed
    assert len(world.alive()) == 1


@pytest.mark.proves("S9")
async def test_one_that_fails_leaves_the_old_one_as_it_was_and_is_not_repeated(
    herd: Herd, world: World
) -> None:
    old = await herd.settle(await herd.launch())
    world.faults.add(Fault(FaultKind.PULL_FAILURE))
    accepted = await herd.replace(old.id)
    await herd.run_for(10 * MINUTE)
    assert await members(herd, old) == [Status.RUNNING, Status.DELETED]
    operation, _ = await herd.operation(accepted.operation.id)
    assert operation.state is OperationState.FAILED
    assert operation.error is not None and operation.error.code == "STARTUP_FAILED"


async def test_limits_are_judged_at_once_and_with_the_new_one_in_the_place_of_the_old(herd: Herd) -> None:
    one = replace(ADMIN, limits=Limits(max_gpus=1))
    old = await herd.settle(await herd.launch(caller=one))
    with pytest.raises(QuotaExceeded):
        await herd.replace(old.id, caller=replace(ADMIN, limits=Limits(max_gpus=0)))
    assert (await herd.get(old.id)).chain is None
    assert (await herd.replace(old.id, caller=one)).instance.goal is Goal.RUNNING


async def test_only_what_can_be_used_is_replaced_and_not_while_another_is_under_way(
    herd: Herd, world: World
) -> None:
    new = await herd.launch()
    with pytest.raises(Conflict) as early:
        await herd.replace(new.id)
    assert early.value.code == "INSTANCE_NOT_REPLACEABLE"
    await herd.settle(new)
    accepted = await herd.replace(new.id)
    chain = accepted.instance.chain
    assert chain is not None and chain.heir is not None
    await herd.run_for(timedelta(seconds=40))
    young = await herd.get(chain.heir.id)
    if young.usable and (await herd.get(new.id)).status is not Status.DELETED:
        with pytest.raises(Conflict):
            await herd.replace(young.id)
