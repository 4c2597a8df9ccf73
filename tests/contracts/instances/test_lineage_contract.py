"""Heirs, on every store: one for each link, made with the change of their predecessor or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lineage import Chain, Heir, Why
from gpuherd.ports.instance_port import Change, LeasedInstance
from tests.support.builders import an_instance
from tests.support.fake_clock import START


def change_with_heir(leased: LeasedInstance, heir_id: str, link: int = 2) -> Change:
    it = leased.instance
    chain = it.chain or Chain(it.id)
    heir = Heir(heir_id, link, Why.LOST, START)
    young = an_instance(id=heir_id, cloud_id=None, rental=None, chain=chain.of_heir(it.id, heir))
    return Change(replace(it, chain=chain.with_heir(heir)), heir=Change(young))


async def leased_old(store: Any) -> tuple[Instance, LeasedInstance]:
    old = await store.instances.add(Change(an_instance(id="inst_old", cloud_id=None, rental=None)))
    leased = await store.instance_leases.acquire(old.id, None)
    assert leased is not None
    return old, leased


async def test_an_heir_is_made_with_the_change_of_its_predecessor(store: Any) -> None:
    old, leased = await leased_old(store)
    saved = await store.instance_leases.save(leased, change_with_heir(leased, "inst_heir"))
    heir = await store.instances.get("inst_heir")
    assert heir.chain == Chain("inst_old", 2, replaces="inst_old", made_at=(START,))
    assert saved.instance.chain.heir.id == "inst_heir"
    assert (await store.instances.get(old.id)).chain == saved.instance.chain


@pytest.mark.proves("S2")
async def test_no_link_has_two(store: Any) -> None:
    _, leased = await leased_old(store)
    saved = await store.instance_leases.save(leased, change_with_heir(leased, "inst_heir"))
    with pytest.raises(StaleWrite):
        await store.instance_leases.save(saved, change_with_heir(saved, "inst_second"))
    with pytest.raises(NotFound):
        await store.instances.get("inst_second")
    assert (await store.instances.get("inst_old")).chain.heir.id == "inst_heir", "nothing was written"
    third = await store.instance_leases.save(saved, change_with_heir(saved, "inst_third", link=3))
    assert third.instance.chain.heir.id == "inst_third"


async def test_a_predecessor_that_has_changed_gets_none(store: Any) -> None:
    old, leased = await leased_old(store)
    await store.instances.update(Change(replace(old, reason="asked to delete")))
    with pytest.raises(StaleWrite):
        await store.instance_leases.save(leased, change_with_heir(leased, "inst_heir"))
    with pytest.raises(NotFound):
        await store.instances.get("inst_heir")


@pytest.mark.proves("S2")
async def test_two_that_make_it_at_once_make_one(store: Any, other_store: Any) -> None:
    old, _ = await leased_old(store)

    async def make(one: Any, heir_id: str) -> object:
        it = await one.instances.get(old.id)
        leased = LeasedInstance(it, (), (), (), "")
        return await one.instances.update(change_with_heir(leased, heir_id))

    done = await asyncio.gather(make(store, "inst_a"), make(other_store, "inst_b"), return_exceptions=True)
    assert sum(isinstance(it, Instance) for it in done) == 1
    assert sum(isinstance(it, StaleWrite) for it in done) == 1


async def test_instances_that_are_alone_have_no_lineage(store: Any) -> None:
    for name in ("a", "b"):
        await store.instances.add(Change(an_instance(id=f"inst_{name}", cloud_id=None, rental=None)))
    assert (await store.instances.get("inst_a")).chain is None
