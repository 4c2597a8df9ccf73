"""The ledger of orphans keeps its promises on SQLite, on PostgreSQL and in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.adapters.sql import service_tables
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.cloud.orphan import (
    Orphan,
    OrphanEnding,
    OrphanFinding,
    OrphanOrder,
    OrphanVerdict,
)
from gpuherd.domain.errors import Conflict, StaleWrite
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.instance_event import ACCOUNT, ORPHAN_DETECTED, Event
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.webhooks.webhook_delivery import Delivery
from gpuherd.ports.event_port import AccountEvent
from gpuherd.ports.instance_port import Change
from gpuherd.ports.observation_port import LedgerWrite
from gpuherd.ports.webhook_port import OutboxEntries
from tests.support.builders import (
    a_delivery,
    a_list,
    a_machine,
    a_running_instance,
    a_sending_job,
    a_sighting,
    a_tagged_machine,
    an_attempt,
    an_event,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import START
from tests.support.sql.databases import Store

MINUTE = timedelta(minutes=1)


def an_orphan(
    machine: Machine | None = None, verdict: OrphanVerdict = OrphanVerdict.FOREIGN, **changes: Any
) -> Orphan:
    it = Orphan(
        machine or a_machine(1), OrphanFinding(verdict, "because"), first_seen_at=START, judged_at=START
    )
    return replace(it, **changes)


async def see(store: Store, *observations: ObservedMachine) -> None:
    await store.observations.record(a_list(), observations, [])


async def save(store: Store, *orphans: Orphan) -> None:
    await store.orphans.save([LedgerWrite(it) for it in orphans])


async def candidates(store: Store) -> list[str]:
    found = await store.orphans.candidates()
    return sorted((it.orphan or it.sighting.machine).cloud_id for it in found)  # type: ignore[union-attr]


class TestStrays:
    async def test_a_listed_machine_without_an_instance_is_one(self, store: Store) -> None:
        await see(store, a_sighting(a_machine(1)), a_sighting(a_tagged_machine(2)))
        assert await candidates(store) == ["machine-1", "machine-2"]

    async def test_one_that_an_instance_has_is_none(self, store: Store) -> None:
        for n, status in enumerate(Status):
            await store.instances.add(Change(a_running_instance(n, status=status)))
        await see(store, *(a_sighting(a_machine(n)) for n in range(len(Status))))
        doubtful = {Status.FAILED, Status.DELETED}
        # Of these the domain decides.
        assert await candidates(store) == sorted(
            f"machine-{n}" for n, status in enumerate(Status) if status in doubtful
        )

    @pytest.mark.parametrize("state", AttemptState)
    async def test_one_that_an_open_call_waits_for_is_none(self, store: Store, state: AttemptState) -> None:
        await store.instances.add(Change(an_instance(1), attempt=an_attempt(1, state=state)))
        await see(store, a_sighting(a_tagged_machine(1)))
        is_open = state in (AttemptState.SENT, AttemptState.UNKNOWN)
        assert await candidates(store) == ([] if is_open else ["machine-1"])

    async def test_each_comes_with_all_records_about_it(self, store: Store) -> None:
        bound = a_running_instance(2, cloud_id="machine-1", status=Status.DELETED)
        made = an_attempt(2, state=AttemptState.BOUND, cloud_id="machine-1")
        named = an_instance(1)
        call = an_attempt(1, state=AttemptState.ABANDONED)
        await store.instances.add(Change(bound, attempt=made))
        await store.instances.add(Change(named, attempt=call))
        seen = a_sighting(a_tagged_machine(1))
        await see(store, seen)
        (candidate,) = await store.orphans.candidates()
        records = candidate.records
        assert records.bound == await store.instances.get(bound.id)
        assert records.named == await store.instances.get(named.id)
        assert (records.attempt, records.bound_attempt) == (call, made)
        assert (candidate.sighting, candidate.orphan) == (seen, None)
        assert await store.orphans.records(seen.machine) == candidate.records

    async def test_one_that_is_not_listed_any_more_and_has_no_line_is_none(self, store: Store) -> None:
        await see(store, a_sighting(a_machine(1), missing_since=START, missing_lists=1))
        assert await candidates(store) == []

    @pytest.mark.parametrize(
        ("changes", "restless"),
        [
            ({}, True),
            ({"confirmed_at": START}, False),
            ({"confirmed_at": START, "order": OrphanOrder.STOP, "ordered_at": START}, True),
            ({"confirmed_at": START, "verdict": OrphanVerdict.UNRECORDED}, True),
            ({"confirmed_at": START, "verdict": OrphanVerdict.SURPLUS}, True),
        ],
        ids=["unconfirmed", "at rest", "ordered", "unrecorded", "surplus"],
    )
    async def test_a_foreign_machine_at_rest_needs_no_thought(
        self, store: Store, changes: dict[str, Any], restless: bool
    ) -> None:
        await see(store, a_sighting(a_machine(1)))
        await save(store, an_orphan(**changes))
        assert await candidates(store) == (["machine-1"] if restless else [])

    async def test_a_line_at_rest_needs_a_thought_when_its_machine_is_missed_or_claimed(
        self, store: Store
    ) -> None:
        rest = [an_orphan(a_machine(n), confirmed_at=START) for n in (1, 2, 3)]
        await save(store, *rest)
        await see(
            store, a_sighting(a_machine(1), missing_since=START, missing_lists=1), a_sighting(a_machine(2))
        )
        assert await candidates(store) == ["machine-1", "machine-3"]
        await store.instances.add(Change(a_running_instance(2)))
        assert await candidates(store) == ["machine-1", "machine-2", "machine-3"]

    async def test_a_closed_line_is_no_reason_to_overlook_a_machine(self, store: Store) -> None:
        await see(store, a_sighting(a_machine(1)))
        await save(store, an_orphan(gone_at=START, ending=OrphanEnding.GONE))
        (candidate,) = await store.orphans.candidates()
        assert candidate.orphan is not None
        assert not candidate.orphan.is_open


class TestLines:
    async def test_a_line_comes_back_as_it_was_written(self, store: Store) -> None:
        it = an_orphan(
            a_tagged_machine(1, created_at=START),
            OrphanVerdict.SURPLUS,
            confirmed_at=START + MINUTE,
            gpus_usd=Decimal("0.35"),
            changed_at=START,
            order=OrphanOrder.DELETE,
            ordered_at=START,
            ordered_by="operator",
            asked_at=START,
            tries=3,
            error="no",
        )
        await save(store, it)
        assert await store.orphans.open() == (replace(it, version=1),)
        assert (await store.orphans.entry("machine-1")).orphan == replace(it, version=1)

    async def test_its_machine_is_shown_as_the_lists_show_it_now(self, store: Store) -> None:
        await save(store, an_orphan())
        renamed = a_sighting(a_machine(1, name="renamed"), changed_at=START + MINUTE)
        await see(store, renamed)
        (it,) = await store.orphans.open()
        assert (it.machine, it.changed_at) == (renamed.machine, START + MINUTE)

    async def test_closed_lines_are_not_open_and_are_forgotten_in_time(self, store: Store) -> None:
        await save(store, an_orphan(gone_at=START, ending=OrphanEnding.ADOPTED, adopted_as=instance_id(1)))
        assert await store.orphans.open() == ()
        assert await store.orphans.forget(START) == 0
        assert (await store.orphans.entry("machine-1")).orphan is not None
        assert await store.orphans.forget(START + MINUTE) == 1
        assert (await store.orphans.entry("machine-1")).orphan is None

    async def test_open_lines_are_never_forgotten(self, store: Store) -> None:
        await save(store, an_orphan())
        assert await store.orphans.forget(START + timedelta(days=365)) == 0

    async def test_nothing_is_known_of_what_was_never_seen(self, store: Store) -> None:
        entry = await store.orphans.entry("nobody")
        assert (entry.orphan, entry.sighting) == (None, None)

    async def test_a_line_that_has_changed_meanwhile_is_not_written_over(self, store: Store) -> None:
        await save(store, an_orphan())
        with pytest.raises(StaleWrite):
            await save(store, an_orphan(tries=1))
        with pytest.raises(StaleWrite):
            await save(store, an_orphan(tries=1, version=2))
        await save(store, an_orphan(tries=1, version=1))
        assert [it.tries for it in await store.orphans.open()] == [1]


class TestEvents:
    async def test_an_event_on_an_instance_stands_or_falls_with_the_line(self, store: Store) -> None:
        instance = await store.instances.add(Change(an_instance(1)))
        told = Change(replace(instance, sequence=1), events=(an_event(1, type=ORPHAN_DETECTED),))
        await store.orphans.save([LedgerWrite(an_orphan(), change=told)])
        assert [it.type for it in await store.instances.events(instance.id)] == [ORPHAN_DETECTED]
        before = await store.everything()
        with pytest.raises(StaleWrite):
            # The instance has moved on.
            await store.orphans.save([LedgerWrite(an_orphan(a_machine(2)), change=told)])
        assert await store.everything() == before

    async def test_the_account_has_a_sequence_of_its_own_and_its_webhooks(self, store: Store) -> None:
        def outbox_entries_for(event: Event) -> OutboxEntries:
            it: Delivery = replace(
                a_delivery(1, event.sequence), instance_id=ACCOUNT, sequence=event.sequence
            )
            return OutboxEntries((it,), (a_sending_job(it),))

        news = AccountEvent(Event(ACCOUNT, 0, ORPHAN_DETECTED, START), outbox_entries_for)
        await store.orphans.save([LedgerWrite(an_orphan(a_machine(n)), account=(news,)) for n in (1, 2)])
        await store.orphans.save([LedgerWrite(an_orphan(a_machine(3)), account=(news,))])
        assert [it.sequence for it in await store.instances.events(ACCOUNT)] == [1, 2, 3]
        assert [row.sequence for row in await store.rows(service_tables.delivery)] == [1, 2, 3]
        assert len(await store.rows(service_tables.job)) == 3


class TestAsking:
    async def test_one_asker_gets_through(self, store: Store, other_store: Store) -> None:
        await save(store, an_orphan(order=OrphanOrder.DELETE, ordered_at=START))
        (it,) = await store.orphans.open()
        asked = replace(it, asked_at=START, tries=1)
        answers = await asyncio.gather(
            store.orphans.begin_order(asked), other_store.orphans.begin_order(asked)
        )
        assert sorted(it is not None for it in answers) == [False, True]
        assert [it.tries for it in await store.orphans.open()] == [1]

    async def test_nobody_asks_about_a_machine_that_an_instance_counts_on(self, store: Store) -> None:
        await save(store, an_orphan())
        (it,) = await store.orphans.open()
        await store.instances.add(Change(a_running_instance(1)))
        assert await store.orphans.begin_order(it) is None

    async def test_one_that_outlived_its_instance_may_be_asked_about(self, store: Store) -> None:
        await save(store, an_orphan())
        (it,) = await store.orphans.open()
        await store.instances.add(Change(a_running_instance(1, status=Status.DELETED)))
        assert await store.orphans.begin_order(it) is not None

    async def test_nobody_asks_about_a_closed_line(self, store: Store) -> None:
        it = an_orphan(gone_at=START)
        await save(store, it)
        assert await store.orphans.begin_order(replace(it, version=1)) is None


CLOSED: dict[str, Any] = {"gone_at": START, "ending": OrphanEnding.ADOPTED}


class TestAdopting:
    async def test_instance_and_line_are_written_together(self, store: Store) -> None:
        await save(store, an_orphan())
        new = Change(a_running_instance(1, settled=False))
        closed = an_orphan(**CLOSED, adopted_as=instance_id(1), version=1)
        assert await store.orphans.adopt(closed, new, is_new=True) == new.instance
        assert (await store.instances.get(instance_id(1))).cloud_id == "machine-1"
        assert await store.orphans.open() == ()

    async def test_an_instance_that_is_there_is_written_over_its_version(self, store: Store) -> None:
        old = await store.instances.add(Change(an_instance(1)))
        change = Change(replace(old, cloud_id="machine-1"))
        adopted = await store.orphans.adopt(an_orphan(**CLOSED), change, is_new=False)
        assert adopted.version == old.version + 1
        with pytest.raises(StaleWrite):
            await store.orphans.adopt(an_orphan(a_machine(2), **CLOSED), change, is_new=False)

    async def test_a_machine_that_is_bound_is_refused_and_nothing_written(self, store: Store) -> None:
        await store.instances.add(Change(a_running_instance(1)))
        before = await store.everything()
        with pytest.raises(Conflict) as refused:
            change = Change(a_running_instance(2, cloud_id="machine-1"))
            await store.orphans.adopt(an_orphan(**CLOSED), change, is_new=True)
        assert refused.value.code == "ORPHAN_CLAIMED"
        assert await store.everything() == before

    async def test_a_deleted_instance_lets_go(self, store: Store) -> None:
        await store.instances.add(Change(a_running_instance(1, status=Status.DELETED)))
        change = Change(a_running_instance(2, cloud_id="machine-1"))
        await store.orphans.adopt(an_orphan(**CLOSED), change, is_new=True)
        assert (await store.instances.get(instance_id(1))).cloud_id is None

    async def test_an_id_that_is_taken_meanwhile_is_a_stale_write(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1)))
        before = await store.everything()
        with pytest.raises(StaleWrite):
            await store.orphans.adopt(an_orphan(**CLOSED), Change(a_running_instance(1)), is_new=True)
        assert await store.everything() == before


class TestCounting:
    async def test_only_what_the_collector_ordered_lately_counts(self, store: Store) -> None:
        order: dict[str, Any] = {"order": OrphanOrder.DELETE, "ordered_by": "collector"}
        await save(
            store,
            an_orphan(a_machine(1), **order, ordered_at=START + MINUTE),
            an_orphan(a_machine(2), **order, ordered_at=START + MINUTE, gone_at=START + MINUTE),
            an_orphan(a_machine(3), **order, ordered_at=START),
            an_orphan(a_machine(4), **{**order, "ordered_by": "operator"}, ordered_at=START + MINUTE),
            an_orphan(a_machine(5), **{**order, "order": OrphanOrder.STOP}, ordered_at=START + MINUTE),
        )
        assert await store.orphans.ordered_since(START, "collector") == 2

    async def test_deleted_instances_do_not_count(self, store: Store) -> None:
        for n, status in enumerate(Status):
            await store.instances.add(Change(an_instance(n, status=status)))
        assert await store.orphans.live_instances() == len(Status) - 1


class TestTurnsOfTheForgetful:
    """A turn of an instance without a machine sees every machine that carries a tag of the instance."""

    async def seen(self, store: Store) -> list[str]:
        leased = await store.instance_leases.acquire(instance_id(1), None)
        assert leased is not None
        await store.instance_leases.release(leased)
        return sorted(it.machine.cloud_id for it in leased.observations)

    async def test_machines_of_calls_without_a_record_are_seen(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1)))
        mine = [a_tagged_machine(1, attempt=n, cloud_id=f"mine-{n}") for n in (1, 12)]
        others = [a_tagged_machine(2), a_machine(3), a_machine(4, env_tag=an_attempt(1, 3).tag)]
        await see(store, *map(a_sighting, (*mine, *others)))
        assert await self.seen(store) == ["machine-4", "mine-1", "mine-12"]

    async def test_one_that_has_its_machine_does_not_look_for_others(self, store: Store) -> None:
        await store.instances.add(Change(a_running_instance(1)))
        await see(store, a_sighting(a_machine(1)), a_sighting(a_tagged_machine(1, cloud_id="other")))
        assert await self.seen(store) == ["machine-1"]

    async def test_what_somebody_wants_removed_is_not_seen(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1)))
        await see(store, a_sighting(a_tagged_machine(1)))
        it = an_orphan(a_tagged_machine(1), order=OrphanOrder.DELETE, ordered_at=START)
        await save(store, it)
        assert await self.seen(store) == []

    async def test_a_refresh_sees_what_was_listed_meanwhile(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1)))
        leased = await store.instance_leases.acquire(instance_id(1), None)
        assert leased is not None
        await see(store, a_sighting(a_tagged_machine(1)))
        assert [it.machine.cloud_id for it in (await store.instance_leases.refresh(leased)).observations] == [
            "machine-1"
        ]
