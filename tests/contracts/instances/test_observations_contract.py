"""What the port `Observations` promises: lists are written down, and nothing that they show is overlooked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql import rental_tables
from gpuherd.adapters.stores.observation_store import LIST_RETENTION, _record
from gpuherd.domain.blast_limit import Bound
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.observation import ObservedMachine, Witness
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.job import JobStatus
from gpuherd.ports.instance_port import Change, LeasedInstance
from tests.support.builders import (
    a_list,
    a_machine,
    a_reconcile_job,
    a_running_instance,
    a_sighting,
    a_tagged_machine,
    an_attempt,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import START
from tests.support.sql.databases import Store, wait_for_lock_contention

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


async def see(store: Store, *observations: ObservedMachine, forget: tuple[str, ...] = ()) -> set[int]:
    """Record a list and return the numbers of the instances that it concerns."""
    concerned = await store.observations.record(a_list(), observations, forget)
    for it in concerned:
        assert it == await store.instances.get(it.id), "what is returned is what is now true"
    return {int(it.key) for it in concerned}


class TestWhatWasSeen:
    async def test_nothing_is_known_at_first(self, store: Store) -> None:
        assert dict(await store.observations.all_known()) == {}
        assert await store.observations.last_list() is None

    async def test_changes_overwrite_and_the_rest_stays(self, store: Store) -> None:
        await see(store, a_sighting(a_machine(1)), a_sighting(a_machine(2)))
        changed = a_sighting(a_machine(2, phase=Phase.STOPPED), changed_at=START + SECOND)
        await see(store, changed)
        assert dict(await store.observations.all_known()) == {
            "machine-1": a_sighting(a_machine(1)),
            "machine-2": changed,
        }

    async def test_the_forgotten_are_gone(self, store: Store) -> None:
        await see(store, a_sighting(a_machine(1)), a_sighting(a_machine(2)))
        await see(store, forget=("machine-1", "never-seen"))
        assert set(await store.observations.all_known()) == {"machine-2"}

    async def test_a_list_of_thousands_fits(self, store: Store) -> None:
        many = [a_sighting(a_tagged_machine(n)) for n in range(2_500)]
        await store.instances.add(Change(a_running_instance(2_400)))
        assert await see(store, *many) == {2_400}
        assert len(await store.observations.all_known()) == 2_500
        await see(store, forget=tuple(it.machine.cloud_id for it in many))
        assert dict(await store.observations.all_known()) == {}


class TestUnsettling:
    async def test_the_instance_on_a_changed_machine_is_unsettled_and_others_are_not(
        self, store: Store
    ) -> None:
        await store.instances.add(Change(a_running_instance(1)))
        await store.instances.add(Change(a_running_instance(2)))
        assert not await store.observations.any_unsettled()
        assert await see(store, a_sighting(a_machine(1))) == {1}
        assert not (await store.instances.get(instance_id(1))).settled
        assert (await store.instances.get(instance_id(2))).settled
        assert await store.observations.any_unsettled()

    async def test_only_what_has_a_machine_or_may_have_one_moves(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1)))
        assert not await store.observations.any_unsettled(), "it only waits for an offer"
        refused = an_attempt(2, state=AttemptState.REJECTED)
        await store.instances.add(Change(an_instance(2), attempt=refused))
        assert not await store.observations.any_unsettled()
        await store.instances.add(Change(an_instance(3), attempt=an_attempt(3, state=AttemptState.UNKNOWN)))
        assert await store.observations.any_unsettled()

    async def test_an_instance_is_found_by_the_tag_of_any_of_its_attempts(self, store: Store) -> None:
        ended = an_instance(1, status=Status.FAILED, settled=True)
        await store.instances.add(Change(ended, attempt=an_attempt(1, state=AttemptState.ABANDONED)))
        late = a_tagged_machine(1, cloud_id="late")
        assert await see(store, a_sighting(late)) == {1}
        assert not (await store.instances.get(instance_id(1))).settled

    async def test_a_tag_counts_only_as_the_end_of_a_name(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1, settled=True), attempt=an_attempt(1)))
        look_alike = a_machine(9, name=a_tagged_machine(1).name + "x")
        assert await see(store, a_sighting(look_alike)) == set()

    async def test_an_instance_that_moves_anyway_is_returned_too(self, store: Store) -> None:
        await store.instances.add(Change(a_running_instance(1, settled=False)))
        assert await see(store, a_sighting(a_machine(1))) == {1}

    async def test_a_machine_that_is_bound_and_tagged_concerns_its_instance_once(self, store: Store) -> None:
        await store.instances.add(Change(a_running_instance(1), attempt=an_attempt(1)))
        concerned = await store.observations.record(a_list(), [a_sighting(a_tagged_machine(1))], [])
        assert [it.id for it in concerned] == [instance_id(1)]

    async def test_a_quiet_list_concerns_nobody(self, store: Store) -> None:
        await store.instances.add(Change(a_running_instance(1)))
        assert await see(store) == set()
        assert (await store.instances.get(instance_id(1))).settled

    async def test_a_list_that_cannot_be_written_unsettles_nobody(self, store: Store) -> None:
        await store.instances.add(Change(a_running_instance(1)))
        before = await store.everything()
        twice = [a_sighting(a_machine(1)), a_sighting(a_machine(1))]
        with pytest.raises(sa.exc.IntegrityError):
            await store.observations.record(a_list(), twice, [])
        assert await store.everything() == before


class TestNewsDuringATurn:
    """A list may come between a turn's look and its last word. That word must not hide the news."""

    @pytest.fixture
    async def leased(self, store: Store) -> LeasedInstance:
        watched = a_running_instance(1, settled=False)
        await store.instances.add(Change(watched, jobs=(a_reconcile_job(),)))
        await store.jobs.mark_started(a_reconcile_job().id)
        leased = await store.instance_leases.acquire(instance_id(1), a_reconcile_job().id)
        assert leased is not None
        return leased

    def rest(self, leased: LeasedInstance) -> Change:
        return Change(replace(leased.instance, settled=True), finished_job=a_reconcile_job().id)

    async def test_a_turn_that_missed_the_news_cannot_go_to_rest(
        self, store: Store, leased: LeasedInstance
    ) -> None:
        await see(store, a_sighting(a_machine(1, phase=Phase.STOPPED)))
        with pytest.raises(StaleWrite):
            await store.instance_leases.save(leased, self.rest(leased))
        assert not (await store.instances.get(instance_id(1))).settled
        assert (await store.jobs.get(a_reconcile_job().id)).status is JobStatus.PROCESSING

    async def test_the_next_turn_sees_the_news_and_may_rest(
        self, store: Store, leased: LeasedInstance
    ) -> None:
        await see(store, a_sighting(a_machine(1, phase=Phase.STOPPED)))
        await store.instance_leases.release(leased)
        again = await store.instance_leases.acquire(instance_id(1), a_reconcile_job().id)
        assert again is not None
        assert [it.machine.phase for it in again.observations] == [Phase.STOPPED]
        await store.instance_leases.save(again, self.rest(again))
        assert (await store.instances.get(instance_id(1))).settled

    async def test_the_news_does_not_cost_the_turn_what_it_learned(
        self, store: Store, leased: LeasedInstance
    ) -> None:
        """A create's answer must be kept, even if the machine was listed before the answer came."""
        await see(store, a_sighting(a_machine(1)))
        await store.instance_leases.save(leased, Change(replace(leased.instance, reason="rented")))

    async def test_news_about_others_does_not_keep_a_turn_from_rest(
        self, store: Store, leased: LeasedInstance
    ) -> None:
        await see(store, a_sighting(a_machine(2)))
        await store.instance_leases.save(leased, self.rest(leased))
        assert (await store.instances.get(instance_id(1))).settled

    async def test_on_postgresql_a_list_that_is_just_being_written_counts_too(
        self, store: Store, leased: LeasedInstance
    ) -> None:
        """Another replica lists: its transaction is open while our turn wants to go to rest."""
        if store.database.is_sqlite:
            pytest.skip("SQLite has one writer, so nothing is just being written")
        engine = sa.create_engine(store.database.url)
        try:
            with engine.connect() as listing:
                _record(listing, a_list(), [a_sighting(a_machine(1, phase=Phase.STOPPED))], [])
                resting = asyncio.create_task(store.instance_leases.save(leased, self.rest(leased)))
                await wait_for_lock_contention(store)
                listing.commit()
            with pytest.raises(StaleWrite):
                await resting
        finally:
            engine.dispose()
        assert not (await store.instances.get(instance_id(1))).settled


class TestWitnesses:
    OLD = START - HOUR

    async def witnesses(self, store: Store, limit: int = 10) -> list[str]:
        return sorted(await store.observations.witnesses(START - timedelta(minutes=5), limit))

    async def test_only_machines_in_use_bear_witness(self, store: Store) -> None:
        for n, status in enumerate(Status):
            await store.instances.add(Change(a_running_instance(n, status=status)))
        await see(store, *(a_sighting(a_machine(n), first_seen_at=self.OLD) for n in range(len(Status))))
        witnesses = await self.witnesses(store, limit=100)
        assert {list(Status)[int(it.removeprefix("machine-"))] for it in witnesses} == {
            Status.RUNNING,
            Status.HEALTH_CHECKING,
            Status.READY,
            Status.EXITED,
        }

    async def test_only_bound_ones_that_were_seen_long_ago_and_are_not_missing(self, store: Store) -> None:
        for n in (1, 2, 3, 4, 5):
            await store.instances.add(Change(a_running_instance(n)))
        await see(
            store,
            a_sighting(a_machine(1), first_seen_at=START - timedelta(minutes=5)),
            a_sighting(a_machine(2), first_seen_at=START - timedelta(minutes=4)),
            a_sighting(a_machine(3), first_seen_at=self.OLD, missing_since=START, missing_lists=1),
            a_sighting(a_machine(9), first_seen_at=self.OLD),
            a_sighting(a_machine(5), first_seen_at=self.OLD),
        )
        assert await self.witnesses(store) == ["machine-1", "machine-5"]

    async def test_no_more_than_asked_for(self, store: Store) -> None:
        for n in range(5):
            await store.instances.add(Change(a_running_instance(n)))
        await see(store, *(a_sighting(a_machine(n), first_seen_at=self.OLD) for n in range(5)))
        assert len(await self.witnesses(store, limit=3)) == 3


class TestWhoseMachines:
    async def test_a_machine_is_known_that_was_seen_or_is_bound_or_has_the_tag_of_a_call(
        self, store: Store
    ) -> None:
        await see(store, a_sighting(a_machine(1)))
        await store.instances.add(Change(a_running_instance(2)))
        await store.instances.add(Change(an_instance(3), attempt=an_attempt(3)))
        knows_any = store.observations.knows_any
        strangers = [a_machine(n) for n in range(100, 2_600)]
        assert not await knows_any([])
        assert not await knows_any([*strangers, a_tagged_machine(4)])
        for ours in (a_machine(1), a_machine(2), a_tagged_machine(3, cloud_id="late")):
            assert await knows_any([*strangers, ours])

    async def test_instances_count_on_their_machines_until_they_end(self, store: Store) -> None:
        for n, status in enumerate((Status.RUNNING, Status.EXITED, Status.FAILED, Status.DELETED)):
            await store.instances.add(Change(a_running_instance(n, status=status)))
        await store.instances.add(Change(a_running_instance(8, goal=Goal.DELETED)))
        await store.instances.add(Change(an_instance(9)))
        bound_to = store.observations.bound_to
        assert await bound_to([]) == Bound(0, 3)
        assert await bound_to([f"machine-{n}" for n in range(2_500)]) == Bound(2, 3)
        assert await bound_to(["machine-1", "nobodys"]) == Bound(1, 3)


class TestLists:
    async def test_the_last_is_the_one_that_was_written_last_whatever_the_clock_said(
        self, store: Store
    ) -> None:
        last = a_list(SECOND, complete=False, witness=Witness.MISSING, machines=0)
        for record in (a_list(), a_list(HOUR), last):
            await store.observations.record(record, [], [])
        assert await store.observations.last_list() == last

    async def test_the_last_believable_one_is_complete_and_lacks_no_witness(self, store: Store) -> None:
        assert await store.observations.last_believable_list() is None
        believable = a_list(SECOND, witness=Witness.NONE)
        doubtful = (
            a_list(2 * SECOND, complete=False),
            a_list(3 * SECOND, witness=Witness.MISSING),
        )
        for record in (a_list(HOUR), believable, *doubtful):
            await store.observations.record(record, [], [])
        assert await store.observations.last_believable_list() == believable

    async def test_the_last_vouched_one_has_shown_a_machine_that_surely_exists(self, store: Store) -> None:
        assert await store.observations.last_vouched_list() is None
        vouched = a_list(SECOND, witness=Witness.SEEN)
        others = (a_list(2 * SECOND, witness=Witness.NONE), a_list(3 * SECOND, witness=Witness.MISSING))
        for record in (vouched, a_list(HOUR, complete=False, witness=Witness.SEEN), *others):
            await store.observations.record(record, [], [])
        assert await store.observations.last_vouched_list() == vouched

    async def test_each_has_a_higher_number_than_the_one_before(self, store: Store) -> None:
        numbers = []
        for minute in range(3):
            await store.observations.record(a_list(minute * SECOND), [], [])
            last = await store.observations.last_list()
            assert last is not None
            numbers.append(last.id)
        assert 0 < numbers[0] < numbers[1] < numbers[2]

    async def test_those_since_a_moment_come_oldest_first(self, store: Store) -> None:
        for seconds in (0, 3, 1, 2):
            await store.observations.record(a_list(seconds * SECOND), [], [])
        since = await store.observations.lists_since(START + SECOND)
        assert list(since) == [a_list(2 * SECOND), a_list(3 * SECOND)]

    async def test_lists_are_kept_for_a_day(self, store: Store) -> None:
        old, just_kept = a_list(-LIST_RETENTION - timedelta(microseconds=1)), a_list(-LIST_RETENTION)
        for record in (old, just_kept, a_list()):
            await store.observations.record(record, [], [])
        kept = {row.started_at for row in await store.rows(rental_tables.list_record)}
        assert kept == {just_kept.started_at, START}
