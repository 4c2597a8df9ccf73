"""What the port `Turns` promises: one turn at a time, and no save by anybody whose view is old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql import rental_tables, service_tables
from gpuherd.adapters.stores.instance_locks import LEASE_TERM
from gpuherd.adapters.stores.row_codec import attempt_row
from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.rent_attempt import ATTEMPTS_KEPT, OPEN_STATES, AttemptState
from gpuherd.domain.job import JobStatus
from gpuherd.ports.instance_port import Change, LeasedInstance
from tests.support.builders import (
    a_delivery,
    a_list,
    a_machine,
    a_reconcile_job,
    a_running_instance,
    a_sighting,
    a_tagged_machine,
    an_attempt,
    an_event,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import START
from tests.support.memory.store import MemoryStore
from tests.support.sql.databases import Store, all_at_once

MINUTE = timedelta(minutes=1)


async def acquire(store: Store, n: int = 1) -> LeasedInstance:
    leased = await store.instance_leases.acquire(instance_id(n), None)
    assert leased is not None
    return leased


def a_full_change(leased: LeasedInstance) -> Change:
    """A change that writes into every table that a change can touch."""
    return Change(
        replace(leased.instance, status=Status.FAILED),
        events=(an_event(sequence=7),),
        attempt=an_attempt(),
        deliveries=(a_delivery(sequence=7),),
        jobs=(a_reconcile_job(name="next", key="next"),),
        finished_job=a_reconcile_job().id,
    )


@contextmanager
def after_each_statement(store: Store, call: Callable[..., None]) -> Iterator[None]:
    """Call something after each statement of this store, in the thread and the transaction that ran it."""
    engines = (store.database._write_engine, store.database._read_engine)
    for engine in engines:
        sa.event.listen(engine, "after_cursor_execute", call)
    try:
        yield
    finally:
        for engine in engines:
            sa.event.remove(engine, "after_cursor_execute", call)


@pytest.fixture(autouse=True)
async def first_instance(store: Store) -> None:
    await store.instances.add(Change(an_instance(), jobs=(a_reconcile_job(),)))


class TestLease:
    async def test_a_turn_shows_the_instance_and_excludes_a_second_one(self, store: Store) -> None:
        leased = await acquire(store)
        assert leased.instance == an_instance()
        assert await store.instance_leases.acquire(instance_id(1), None) is None

    async def test_of_an_instance_that_is_not_there_the_caller_is_told(self, store: Store) -> None:
        """The store may have lost it, and nobody else has its turn."""
        with pytest.raises(NotFound):
            await store.instance_leases.acquire(instance_id(9), None)

    @pytest.mark.proves("F28")
    async def test_of_fifty_that_begin_at_once_exactly_one_gets_the_turn(
        self, store: Store, other_store: Store
    ) -> None:
        processes = (store, other_store)
        instance_leases = await all_at_once(
            50, lambda n: processes[n % 2].instance_leases.acquire(instance_id(1), None)
        )
        assert len([it for it in instance_leases if isinstance(it, LeasedInstance)]) == 1
        assert instance_leases.count(None) == 49

    async def test_a_lease_holds_one_instance_and_no_other(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(2)))
        await acquire(store, 1)
        assert (await acquire(store, 2)).instance.id == instance_id(2)

    async def test_a_lease_that_ran_out_can_be_taken_and_not_a_moment_earlier(self, store: Store) -> None:
        first = await acquire(store)
        await store.clock.advance(LEASE_TERM.total_seconds() - 0.000001)
        assert await store.instance_leases.acquire(instance_id(1), None) is None
        await store.clock.advance(0.000001)
        assert (await acquire(store)).token != first.token

    async def test_an_ended_turn_frees_the_instance_and_ending_again_is_quiet(self, store: Store) -> None:
        leased = await acquire(store)
        await store.instance_leases.release(leased)
        await store.instance_leases.release(leased)
        assert (await acquire(store)).token != leased.token

    async def test_the_last_change_frees_the_instance(self, store: Store) -> None:
        leased = await acquire(store)
        await store.instance_leases.save(leased, Change(leased.instance, releases_lease=True))
        assert (await acquire(store)).token != leased.token

    async def test_ending_a_turn_after_its_last_change_leaves_the_next_one_alone(self, store: Store) -> None:
        leased = await acquire(store)
        await store.instance_leases.save(leased, Change(leased.instance, releases_lease=True))
        await acquire(store)
        await store.instance_leases.release(leased)
        assert await store.instance_leases.acquire(instance_id(1), None) is None

    async def test_a_last_change_that_was_overtaken_frees_nothing_until_the_turn_ends(
        self, store: Store
    ) -> None:
        leased = await acquire(store)
        await store.instances.update(Change(leased.instance))
        with pytest.raises(StaleWrite):
            await store.instance_leases.save(leased, Change(leased.instance, releases_lease=True))
        assert await store.instance_leases.acquire(instance_id(1), None) is None
        await store.instance_leases.release(leased)
        await acquire(store)

    async def test_ending_a_lost_turn_does_not_end_the_one_that_took_over(self, store: Store) -> None:
        lost = await acquire(store)
        await store.clock.advance(LEASE_TERM.total_seconds())
        await acquire(store)
        await store.instance_leases.release(lost)
        assert await store.instance_leases.acquire(instance_id(1), None) is None

    async def test_forgetting_leases_frees_everything(self, store: Store) -> None:
        leased = await acquire(store)
        store.instance_leases.release_all_leases()
        with pytest.raises(StaleWrite):
            await store.instance_leases.save(leased, Change(leased.instance))
        await acquire(store)

    async def test_begin_answers_what_rang_before(self, store: Store) -> None:
        await store.jobs.mark_started(a_reconcile_job().id)
        await store.jobs.wake_or_enqueue([a_reconcile_job()])
        assert [row.due_at for row in await store.rows(service_tables.job)] != [None]
        await store.instance_leases.acquire(instance_id(1), a_reconcile_job().id)
        assert [row.due_at for row in await store.rows(service_tables.job)] == [None]


class TestView:
    async def test_a_turn_sees_its_attempts_oldest_first(self, store: Store) -> None:
        leased = await acquire(store)
        for number in (1, 2, 3):
            rejected = an_attempt(number=number, state=AttemptState.REJECTED)
            leased = await store.instance_leases.save(leased, Change(leased.instance, attempt=rejected))
        assert leased.open_attempt is None
        # A late word on the first does not make it the last.
        late = an_attempt(number=1, state=AttemptState.REJECTED, error="late")
        leased = await store.instance_leases.save(leased, Change(leased.instance, attempt=late))
        await store.instance_leases.release(leased)
        again = await acquire(store)
        assert [it.n for it in again.attempts] == [1, 2, 3]
        assert leased.attempts == again.attempts

    async def test_a_turn_sees_the_bound_machine_and_those_with_its_tags(self, store: Store) -> None:
        await store.instances.add(Change(a_running_instance(2), attempt=an_attempt(2, cloud_id="machine-2")))
        bound, doubled = a_machine(2), a_tagged_machine(2, cloud_id="surplus")
        other = a_tagged_machine(3)
        await store.observations.record(a_list(), [a_sighting(it) for it in (bound, doubled, other)], [])
        assert {it.machine.cloud_id for it in (await acquire(store, 2)).observations} == {
            "machine-2",
            "surplus",
        }
        assert (await acquire(store, 1)).observations == ()

    async def test_lists_since_the_open_attempt_are_evidence_oldest_first(self, store: Store) -> None:
        lists = [a_list(it * MINUTE) for it in (0, 3, 1, 2)]
        for record in lists:
            await store.observations.record(record, [], [])
        leased = await acquire(store)
        assert leased.lists == ()
        attempt = an_attempt(sent_at=START + MINUTE)
        leased = await store.instance_leases.save(leased, Change(leased.instance, attempt=attempt))
        await store.instance_leases.release(leased)
        assert (await acquire(store)).lists == (a_list(2 * MINUTE), a_list(3 * MINUTE))

    async def test_lists_since_the_removal_are_evidence_only_while_releasing(self, store: Store) -> None:
        for minute in range(4):
            await store.observations.record(a_list(minute * MINUTE), [], [])
        asked = an_instance(2, releasing=True, asked_at=START + MINUTE)
        await store.instances.add(Change(asked))
        await store.instances.add(Change(replace(asked, id=instance_id(3), releasing=False)))
        assert (await acquire(store, 2)).lists == (a_list(2 * MINUTE), a_list(3 * MINUTE))
        assert (await acquire(store, 3)).lists == ()


class TestListsBeforeSightings:
    """A list is committed together with what it showed; a turn must never see the one without the other."""

    @pytest.fixture
    async def an_unknown_create(self, store: Store) -> None:
        if isinstance(store, MemoryStore):
            pytest.skip("memory is read in one piece")
        leased = await acquire(store)
        unknown = an_attempt(state=AttemptState.UNKNOWN)
        await store.instance_leases.save(
            leased, Change(leased.instance, attempt=unknown, releases_lease=True)
        )

    @pytest.mark.usefixtures("an_unknown_create")
    async def test_evidence_is_read_in_this_order(self, store: Store) -> None:
        tables_read: list[str] = []

        def note(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
            tables_read.extend(it for it in ("list_record", "sighting") if f"FROM {it}" in statement)

        with after_each_statement(store, note):
            leased = await acquire(store)
            await store.instance_leases.refresh(leased)
        assert tables_read == ["list_record", "sighting"] * 2

    @pytest.mark.usefixtures("an_unknown_create")
    @pytest.mark.parametrize("look", ["acquire", "refresh"])
    async def test_a_list_that_is_committed_meanwhile_is_not_seen_without_its_machine(
        self, store: Store, other_store: Store, look: str
    ) -> None:
        if store.database.is_sqlite:
            pytest.skip("a transaction on SQLite sees one moment only")
        leased = await acquire(store)
        if look == "acquire":
            await store.instance_leases.release(leased)
        loop = asyncio.get_running_loop()
        committed: list[object] = []

        def commit_a_list(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
            if committed or not ("FROM list_record" in statement or "FROM sighting" in statement):
                return
            record = other_store.observations.record(a_list(MINUTE), [a_sighting(a_tagged_machine())], [])
            committed.append(asyncio.run_coroutine_threadsafe(record, loop).result(10))

        with after_each_statement(store, commit_a_list):
            seen = await (acquire(store) if look == "acquire" else store.instance_leases.refresh(leased))
        assert committed
        assert not seen.lists or [it.machine for it in seen.observations] == [a_tagged_machine()]


class TestSave:
    async def test_a_save_writes_everything_and_the_turn_goes_on(self, store: Store) -> None:
        leased = await acquire(store)
        saved = await store.instance_leases.save(leased, a_full_change(leased))
        assert saved.instance == await store.instances.get(instance_id(1))
        assert (saved.instance.status, saved.instance.version) == (Status.FAILED, 1)
        assert saved.open_attempt == an_attempt()
        assert await store.instances.events(instance_id(1)) == (an_event(sequence=7),)
        assert await store.outbox.get(a_delivery(sequence=7).id) == a_delivery(sequence=7)
        assert (await store.jobs.get(a_reconcile_job().id)).status is JobStatus.COMPLETED
        assert (await store.jobs.get(a_reconcile_job(name="next").id)).status is JobStatus.PENDING
        again = await store.instance_leases.save(saved, Change(saved.instance))
        assert again.instance.version == 2

    @pytest.mark.proves("F56")
    async def test_a_turn_that_was_lost_writes_nothing(self, store: Store) -> None:
        lost = await acquire(store)
        await store.clock.advance(LEASE_TERM.total_seconds())
        await acquire(store)
        before = await store.everything()
        with pytest.raises(StaleWrite):
            await store.instance_leases.save(lost, a_full_change(lost))
        assert await store.everything() == before

    async def test_a_turn_that_has_ended_writes_nothing(self, store: Store) -> None:
        leased = await acquire(store)
        await store.instance_leases.release(leased)
        before = await store.everything()
        with pytest.raises(StaleWrite):
            await store.instance_leases.save(leased, a_full_change(leased))
        assert await store.everything() == before

    async def test_an_old_version_writes_nothing(self, store: Store) -> None:
        leased = await acquire(store)
        await store.instance_leases.save(leased, Change(replace(leased.instance, reason="newer")))
        before = await store.everything()
        with pytest.raises(StaleWrite):
            await store.instance_leases.save(leased, a_full_change(leased))
        assert await store.everything() == before

    async def test_a_save_that_fails_half_way_leaves_nothing(self, store: Store) -> None:
        leased = await acquire(store)
        leased = await store.instance_leases.save(
            leased, Change(leased.instance, events=(an_event(sequence=7),))
        )
        before = await store.everything()
        with pytest.raises(sa.exc.IntegrityError):
            await store.instance_leases.save(leased, a_full_change(leased))
        assert await store.everything() == before

    async def test_a_finished_job_makes_room_for_the_next_under_the_same_key(self, store: Store) -> None:
        leased = await acquire(store)
        follow_up = a_reconcile_job(name="b", kind="monitor_instance")
        await store.instance_leases.save(
            leased, Change(leased.instance, finished_job=a_reconcile_job().id, jobs=(follow_up,))
        )
        assert (await store.jobs.get(a_reconcile_job().id)).status is JobStatus.COMPLETED
        assert (await store.jobs.get(follow_up.id)).status is JobStatus.PENDING


class TestOneOpenAttempt:
    @pytest.mark.parametrize("first", sorted(OPEN_STATES))
    @pytest.mark.parametrize("second", sorted(OPEN_STATES))
    async def test_a_second_open_attempt_is_refused_whole(
        self, store: Store, first: AttemptState, second: AttemptState
    ) -> None:
        leased = await acquire(store)
        leased = await store.instance_leases.save(
            leased, Change(leased.instance, attempt=an_attempt(state=first))
        )
        before = await store.everything()
        change = replace(a_full_change(leased), attempt=an_attempt(number=2, state=second))
        with pytest.raises(StaleWrite):
            await store.instance_leases.save(leased, change)
        assert await store.everything() == before

    @pytest.mark.proves("R7")
    async def test_the_database_itself_refuses_it(self, store: Store) -> None:
        if isinstance(store, MemoryStore):
            pytest.skip("there is no way into memory behind the ports' back")
        leased = await acquire(store)
        await store.instance_leases.save(leased, Change(leased.instance, attempt=an_attempt()))
        second = attempt_row(an_attempt(number=2, state=AttemptState.UNKNOWN))
        with pytest.raises(sa.exc.IntegrityError):
            await store.run(sa.insert(rental_tables.attempt).values(**second))
        closed = attempt_row(an_attempt(number=2, state=AttemptState.REJECTED))
        await store.run(sa.insert(rental_tables.attempt).values(**closed))
        reopen = sa.update(rental_tables.attempt).where(rental_tables.attempt.c.n == 2).values(state="sent")
        with pytest.raises(sa.exc.IntegrityError):
            await store.run(reopen)

    async def test_a_resolved_attempt_makes_room_for_the_next(self, store: Store) -> None:
        leased = await acquire(store)
        for number in (1, 2):
            leased = await store.instance_leases.save(
                leased, Change(leased.instance, attempt=an_attempt(number=number))
            )
            done = an_attempt(number=number, state=AttemptState.ABANDONED)
            leased = await store.instance_leases.save(leased, Change(leased.instance, attempt=done))
        assert [it.state for it in await store.instances.attempts(instance_id(1))] == ["abandoned"] * 2

    async def test_old_refusals_are_forgotten_so_that_no_turn_costs_more_than_the_one_before(
        self, store: Store
    ) -> None:
        leased = await acquire(store)
        given_up = an_attempt(number=1, state=AttemptState.ABANDONED)
        leased = await store.instance_leases.save(leased, Change(leased.instance, attempt=given_up))
        last = ATTEMPTS_KEPT + 30
        for number in range(2, last + 1):
            sent = an_attempt(number=number)
            leased = await store.instance_leases.save(leased, Change(leased.instance, attempt=sent))
            refused = replace(sent, state=AttemptState.REJECTED)
            leased = await store.instance_leases.save(leased, Change(leased.instance, attempt=refused))
        kept = [1, *range(last - ATTEMPTS_KEPT + 1, last + 1)]
        assert [it.n for it in await store.instances.attempts(instance_id(1))] == kept
        assert [it.n for it in (await store.instance_leases.refresh(leased)).attempts] == kept

    async def test_attempts_of_others_stay(self, store: Store) -> None:
        refused = an_attempt(2, state=AttemptState.REJECTED)
        await store.instances.add(Change(an_instance(2), attempt=refused))
        leased = await acquire(store)
        await store.instance_leases.save(
            leased, Change(leased.instance, attempt=an_attempt(number=ATTEMPTS_KEPT + 1))
        )
        assert [it.n for it in await store.instances.attempts(instance_id(2))] == [1]

    async def test_two_instances_may_each_have_one(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(2), attempt=an_attempt(2)))
        leased = await acquire(store, 1)
        await store.instance_leases.save(leased, Change(leased.instance, attempt=an_attempt(1)))


class TestHandingOn:
    """A turn that ends its job and leaves the rest to another one, which is due later."""

    async def hand_on(self, store: Store, leased: LeasedInstance) -> datetime | None:
        following = a_reconcile_job(name="-next", kind="monitor_instance", delay=MINUTE)
        change = Change(
            leased.instance, finished_job=a_reconcile_job().id, jobs=(following,), releases_lease=True
        )
        await store.instance_leases.save(leased, change)
        return (await store.jobs.get(following.id)).next_retry_at

    async def test_the_next_job_is_due_after_its_delay(self, store: Store) -> None:
        await store.jobs.mark_started(a_reconcile_job().id)
        leased = await store.instance_leases.acquire(instance_id(1), a_reconcile_job().id)
        assert leased is not None
        assert await self.hand_on(store, leased) == START + MINUTE

    async def test_news_that_the_turn_has_not_seen_make_it_due_at_once(self, store: Store) -> None:
        await store.jobs.mark_started(a_reconcile_job().id)
        leased = await store.instance_leases.acquire(instance_id(1), a_reconcile_job().id)
        assert leased is not None
        await store.jobs.wake_or_enqueue([a_reconcile_job(name="-news")])
        assert await self.hand_on(store, leased) == START

    @pytest.mark.postgres
    async def test_a_wake_up_that_misses_the_old_job_wakes_the_next_one(
        self, store: Store, other_store: Store
    ) -> None:
        if store.database.is_sqlite:
            pytest.skip("SQLite has one writer, so nobody hands a key on in the middle of a wake-up")
        leased = await store.instance_leases.acquire(instance_id(1), a_reconcile_job().id)
        assert leased is not None
        await store.jobs.mark_finished(a_reconcile_job().id)
        loop = asyncio.get_running_loop()
        handed_on: list[int] = []

        def hand_on(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
            # The wake-up has found no unfinished job; the next one is committed before it inserts its own.
            if not handed_on and statement.startswith("UPDATE job SET due_at"):
                following = a_reconcile_job(name="-next", delay=MINUTE)
                taken = asyncio.run_coroutine_threadsafe(other_store.jobs.enqueue([following]), loop)
                handed_on.append(taken.result(10))

        with after_each_statement(store, hand_on):
            await store.jobs.wake_or_enqueue([a_reconcile_job(name="-news")])
        assert handed_on == [1]
        assert (await store.jobs.get(a_reconcile_job(name="-next").id)).next_retry_at == START
