"""What the store promises the reading side: all that is not deleted, and a word after each change."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.stores.instance_locks import SqlInstanceLeases
from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.adapters.stores.observation_store import SqlObservations
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.ports.clock_port import Ids
from gpuherd.ports.instance_port import Change, InstanceLeases, Instances
from gpuherd.ports.observation_port import Observations
from tests.support.builders import (
    a_list,
    a_running_instance,
    a_sighting,
    a_tagged_machine,
    an_attempt,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import FakeClock
from tests.support.memory.instances.instances import MemoryInstances
from tests.support.memory.instances.leases import MemoryInstanceLeases
from tests.support.memory.instances.observations import MemoryObservations
from tests.support.memory.tables import Tables
from tests.support.sql.databases import Store


async def test_all_live_instances_come_newest_first_and_deleted_ones_do_not(store: Store) -> None:
    for n in range(1, 6):
        status = Status.DELETED if n == 3 else Status.RUNNING
        await store.instances.add(Change(a_running_instance(n, status=status)))
    live = await store.instances.all_live()
    assert [it.instance.id for it in live] == [instance_id(n) for n in (5, 4, 2, 1)]
    assert live[0].instance == await store.instances.get(instance_id(5))
    assert {it.open_tag for it in live} == {None}


async def test_only_the_tag_of_an_open_create_call_comes_along(store: Store) -> None:
    for n, state in enumerate(AttemptState, 1):
        attempt = an_attempt(n, number=2, state=state)
        await store.instances.add(Change(an_instance(n), attempt=an_attempt(n, state=AttemptState.REJECTED)))
        leased = await store.instance_leases.acquire(instance_id(n), None)
        assert leased is not None
        await store.instance_leases.save(leased, Change(leased.instance, attempt=attempt))
    tags = {it.instance.id: it.open_tag for it in await store.instances.all_live()}
    assert tags == {
        instance_id(n): an_attempt(n, number=2).tag
        if state in (AttemptState.SENT, AttemptState.UNKNOWN)
        else None
        for n, state in enumerate(AttemptState, 1)
    }


class Announced:
    """A store that tells what it announces."""

    def __init__(self, database: Database | Tables, clock: FakeClock):
        self.heard: list[Sequence[str]] = []
        ids = Ids(clock, random.Random(1))
        self.instances: Instances
        self.instance_leases: InstanceLeases
        self.observations: Observations
        if isinstance(database, Tables):
            self.instances = MemoryInstances(database, clock, self.heard.append)
            self.instance_leases = MemoryInstanceLeases(database, clock, ids, self.heard.append)
            self.observations = MemoryObservations(database, self.heard.append)
        else:
            self.instances = SqlInstances(database, clock, self.heard.append)
            self.instance_leases = SqlInstanceLeases(database, clock, ids, self.heard.append)
            self.observations = SqlObservations(database, self.heard.append)


@pytest.fixture
def announced(database: Database | Tables, store_clock: FakeClock) -> Announced:
    return Announced(database, store_clock)


async def test_a_new_instance_is_announced_and_a_replayed_claim_is_not(announced: Announced) -> None:
    claim = IdempotencyClaim("admin", "key", "print")
    await announced.instances.add(Change(an_instance(1)), claim)
    assert announced.heard == [[instance_id(1)]]
    await announced.instances.add(Change(an_instance(2)), claim)
    assert announced.heard == [[instance_id(1)]]


async def test_a_save_is_announced_and_a_stale_one_is_not(announced: Announced) -> None:
    await announced.instances.add(Change(an_instance(1)))
    announced.heard.clear()
    leased = await announced.instance_leases.acquire(instance_id(1), None)
    assert leased is not None
    assert announced.heard == []
    await announced.instance_leases.save(leased, Change(replace(leased.instance, reason="new")))
    assert announced.heard == [[instance_id(1)]]
    with pytest.raises(StaleWrite):
        await announced.instance_leases.save(leased, Change(replace(leased.instance, reason="overtaken")))
    await announced.instance_leases.release(leased)
    assert announced.heard == [[instance_id(1)]]


async def test_a_list_announces_whom_it_unsettles(announced: Announced) -> None:
    await announced.instances.add(Change(a_running_instance(1)))
    await announced.instances.add(Change(a_running_instance(2)))
    announced.heard.clear()
    await announced.observations.record(a_list(), [a_sighting(a_tagged_machine(2))], [])
    assert [list(it) for it in announced.heard] == [[instance_id(2)]]
    assert (await announced.instances.get(instance_id(2))).settled is False
