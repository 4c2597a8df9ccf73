"""Whatever the domain can say, the store can remember: every field comes back as it was, type and all."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings

from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.instance.instance import Instance, SettledCost
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.domain.job import NewJob
from gpuherd.domain.webhooks.webhook_delivery import Delivery
from gpuherd.ports.instance_port import Change
from tests.support.builders import a_list, an_instance, instance_id
from tests.support.memory.store import MemoryStore
from tests.support.sql.databases import Store
from tests.support.strategies import every

# The examples of one test share a database, so each takes ids that no other has.
_numbers = itertools.count(1)
some = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def same(found: object, meant: object) -> bool:
    """Tell whether two values are equal down to their types (an enum's member equals its text)."""
    return found == meant and repr(found) == repr(meant)


def mine(meant: Instance, n: int) -> Instance:
    """Return an instance with ids of its own. What it has cost is the meter's to write, not a turn's."""
    cloud_id = f"m-{n}" if meant.cloud_id else None
    chain = None if meant.chain is None else replace(meant.chain, lineage=f"inst_{n}")
    return replace(meant, id=instance_id(n), cloud_id=cloud_id, chain=chain, cost=SettledCost())


class TestRoundTrip:
    @some
    @given(every(Instance))
    async def test_instances(self, store: Store, meant: Instance) -> None:
        n = next(_numbers)
        meant = mine(meant, n)
        await store.instances.add(Change(meant))
        assert same(await store.instances.get(meant.id), meant)

    @some
    @given(every(Instance))
    async def test_saved_instances(self, store: Store, meant: Instance) -> None:
        """A save writes the same fields as an add, over whatever was there; labels are set once."""
        n = next(_numbers)
        await store.instances.add(Change(an_instance(n, version=meant.version)))
        leased = await store.instance_leases.acquire(instance_id(n), None)
        assert leased is not None
        meant = mine(meant, n)
        saved = await store.instance_leases.save(leased, Change(meant))
        assert same(saved.instance, replace(meant, version=meant.version + 1))
        assert same(await store.instances.get(meant.id), saved.instance)

    @some
    @given(every(Attempt), every(Attempt))
    async def test_attempts(self, store: Store, first: Attempt, then: Attempt) -> None:
        n = next(_numbers)
        await store.instances.add(Change(an_instance(n)))
        leased = await store.instance_leases.acquire(instance_id(n), None)
        assert leased is not None
        first = replace(first, instance_id=instance_id(n), tag=f"tag-{n}")
        leased = await store.instance_leases.save(leased, Change(leased.instance, attempt=first))
        assert same(await store.instances.attempts(instance_id(n)), (first,))
        then = replace(then, instance_id=instance_id(n), tag=f"tag-{n}", n=first.n)
        await store.instance_leases.save(leased, Change(leased.instance, attempt=then))
        assert same(await store.instances.attempts(instance_id(n)), (then,))

    @some
    @given(every(Event))
    async def test_events(self, store: Store, meant: Event) -> None:
        n = next(_numbers)
        meant = replace(meant, instance_id=instance_id(n))
        await store.instances.add(Change(an_instance(n), events=(meant,)))
        assert same(await store.instances.events(instance_id(n)), (meant,))

    @some
    @given(every(Delivery), every(Delivery))
    async def test_deliveries(self, store: Store, first: Delivery, then: Delivery) -> None:
        n = next(_numbers)
        first = replace(first, id=f"msg_{n}", instance_id=instance_id(n))
        await store.instances.add(Change(an_instance(n), deliveries=(first,)))
        assert same(await store.outbox.get(first.id), first)
        # The bytes, and whose secret signs them, are the same at every try, whatever a later save says.
        await store.outbox.save(replace(then, id=first.id))
        kept = replace(then, id=first.id, body=first.body, owner=first.owner)
        assert same(await store.outbox.get(first.id), kept)

    @some
    @given(every(ObservedMachine), every(ObservedMachine))
    async def test_machines_and_sightings(
        self, store: Store, first: ObservedMachine, then: ObservedMachine
    ) -> None:
        cloud_id = f"m-{next(_numbers)}"
        for meant in (first, then):
            # The price that a list shows need not be kept.
            meant = replace(meant, machine=replace(meant.machine, cloud_id=cloud_id, hourly_usd=None))
            await store.observations.record(a_list(), [meant], [])
            assert same((await store.observations.all_known())[cloud_id], meant)

    @some
    @given(every(ListRecord))
    async def test_lists(self, store: Store, meant: ListRecord) -> None:
        # Later than all that other examples wrote, so that it is the last.
        begun = datetime(9999, 1, 1, tzinfo=meant.started_at.tzinfo) + timedelta(
            seconds=next(_numbers), microseconds=meant.started_at.microsecond
        )
        meant = replace(meant, started_at=begun)
        await store.observations.record(meant, [], [])
        last = await store.observations.last_list()
        assert last is not None
        # The store numbers them.
        assert same(replace(last, id=meant.id), meant)

    @some
    @given(every(NewJob, delay=timedelta(0)))
    async def test_jobs(self, store: Store, meant: NewJob) -> None:
        n = next(_numbers)
        meant = replace(meant, id=f"job_{n}", key=f"key-{n}")
        await store.jobs.enqueue([meant])
        found = await store.jobs.get(meant.id)
        for name in ("kind", "payload", "instance_id", "priority", "max_attempts"):
            assert same(getattr(found, name), getattr(meant, name)), name

    async def test_a_time_from_another_zone_is_the_same_moment_in_utc(self, store: Store) -> None:
        if isinstance(store, MemoryStore):
            pytest.skip("memory keeps the very object")
        kathmandu = timezone(timedelta(hours=5, minutes=45))
        meant = an_instance(created_at=datetime(2026, 3, 1, 4, 5, 6, 789012, kathmandu))
        await store.instances.add(Change(meant))
        found = await store.instances.get(meant.id)
        assert found == meant
        assert (found.created_at.utcoffset(), found.deadline.utcoffset()) == (timedelta(0), timedelta(0))
