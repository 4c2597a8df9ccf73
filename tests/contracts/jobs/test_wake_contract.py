"""What the port `Jobs` promises about waking jobs, and about work that nobody does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuherd.adapters.sql import service_tables
from gpuherd.adapters.stores.job_store import QUARANTINE
from gpuherd.domain.instance.lease import term_of
from gpuherd.domain.job import JobStatus, Priority
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.ports.instance_port import Change
from gpuherd.ports.job_port import JobQuery
from tests.support.builders import a_delivery, a_reconcile_job, a_sending_job, an_instance, instance_id
from tests.support.fake_clock import START
from tests.support.sql.databases import Store, all_at_once

HOUR = timedelta(hours=1)


async def due_at(store: Store, job_id: str) -> object:
    """Return when a job is due; of one that runs: when it was woken."""
    return {row.id: row.due_at for row in await store.rows(service_tables.job)}[job_id]


class TestRing:
    async def test_a_waiting_job_is_due_at_once(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job(delay=HOUR)])
        await store.clock.advance(60)
        await store.jobs.wake_or_enqueue([a_reconcile_job(name="other")])
        assert (await store.jobs.get(a_reconcile_job().id)).next_retry_at == START + timedelta(minutes=1)

    async def test_a_job_that_is_due_already_does_not_lose_its_place(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job()])
        await store.clock.advance(60)
        await store.jobs.wake_or_enqueue([a_reconcile_job()])
        assert await due_at(store, a_reconcile_job().id) == START

    async def test_a_running_job_has_one_more_pass_at_once(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job()])
        await store.jobs.mark_started(a_reconcile_job().id)
        await store.clock.advance(60)
        await store.jobs.wake_or_enqueue([a_reconcile_job()])
        assert (await store.jobs.get(a_reconcile_job().id)).status is JobStatus.PROCESSING
        await store.jobs.snooze(a_reconcile_job().id, HOUR)
        found = await store.jobs.get(a_reconcile_job().id)
        assert (found.status, found.next_retry_at) == (JobStatus.PENDING, START + timedelta(minutes=1))

    async def test_a_new_job_is_taken_where_none_lives(self, store: Store) -> None:
        await store.jobs.wake_or_enqueue([a_reconcile_job(name="a")])
        await store.jobs.mark_finished(a_reconcile_job(name="a").id)
        await store.jobs.wake_or_enqueue([a_reconcile_job(name="b"), a_reconcile_job(2)])
        living = [row.id for row in await store.rows(service_tables.job) if row.state == "PENDING"]
        assert sorted(living) == sorted([a_reconcile_job(name="b").id, a_reconcile_job(2).id])

    async def test_only_the_keys_that_were_rung_are_woken(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job(1, delay=HOUR), a_reconcile_job(2, delay=HOUR)])
        await store.jobs.wake_or_enqueue([a_reconcile_job(2)])
        assert (await store.jobs.get(a_reconcile_job(1).id)).next_retry_at == START + HOUR
        assert (await store.jobs.get(a_reconcile_job(2).id)).next_retry_at == START

    async def test_a_job_that_is_woken_for_something_urgent_is_urgent_from_then_on(
        self, store: Store
    ) -> None:
        normal = a_reconcile_job(delay=HOUR, priority=Priority.NORMAL)
        await store.jobs.enqueue([normal, a_reconcile_job(2, delay=HOUR, priority=Priority.NORMAL)])
        for priority in (Priority.HIGH, Priority.NORMAL):
            await store.jobs.wake_or_enqueue([a_reconcile_job(name="other", priority=priority)])
            assert (await store.jobs.get(normal.id)).priority is Priority.HIGH
        assert (await store.jobs.get(a_reconcile_job(2).id)).priority is Priority.NORMAL

    async def test_of_very_many_each_is_woken_or_taken(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job(n, delay=HOUR) for n in range(0, 1200, 2)])
        await store.jobs.wake_or_enqueue([a_reconcile_job(n, name="other") for n in range(1200)])
        waiting = (await store.jobs.page(JobQuery(limit=1200))).jobs
        assert len(waiting) == 1200
        assert {it.next_retry_at for it in waiting} == {START}

    async def test_two_processes_that_ring_at_once_leave_one_job(
        self, store: Store, other_store: Store
    ) -> None:
        books = (store.jobs, other_store.jobs)
        for n in range(5):

            async def wake(m: int, n: int = n) -> None:
                await books[m % 2].wake_or_enqueue([a_reconcile_job(n, name=f"-{m}")])

            answers = await all_at_once(10, wake)
            assert answers == [None] * 10
        assert len(await store.rows(service_tables.job)) == 5


class TestUnattended:
    async def left(self, store: Store, limit: int = 100) -> tuple[list[str], list[str]]:
        found = await store.jobs.unscheduled(limit)
        return sorted(it.id for it in found.instances), sorted(it.id for it in found.deliveries)

    async def test_an_unsettled_instance_without_a_job_is_found(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1)))
        await store.instances.add(Change(an_instance(2, settled=True)))
        await store.instances.add(Change(an_instance(3), jobs=(a_reconcile_job(3),)))
        found = await store.jobs.unscheduled(100)
        assert found.instances == (an_instance(1),)
        assert found.deliveries == ()

    async def test_a_settled_instance_is_found_when_some_time_of_it_is_over(self, store: Store) -> None:
        term = term_of(60, START, timedelta(0))
        due, far = an_instance(1, settled=True, lease_term=term), an_instance(2, settled=True)
        ended = an_instance(3, settled=True, lease_term=replace(term, ended=True))
        for it in (due, far, ended):
            await store.instances.add(Change(it))
        await store.clock.advance(59)
        assert await self.left(store) == ([], [])
        await store.clock.advance(1)
        assert await self.left(store) == ([due.id], [])
        await store.jobs.enqueue([a_reconcile_job(1)])
        assert await self.left(store) == ([], [])

    async def test_an_end_that_is_moved_is_due_when_it_is_then(self, store: Store) -> None:
        saved = await store.instances.add(
            Change(an_instance(1, settled=True, lease_term=term_of(60, START, timedelta(0))))
        )
        await store.instances.update(Change(replace(saved, lease_term=term_of(7200, START, timedelta(0)))))
        await store.clock.advance(3600)
        assert await self.left(store) == ([], [])

    async def test_a_pending_delivery_without_a_job_is_found(self, store: Store) -> None:
        lost, done, dead, attended = (a_delivery(sequence=n) for n in range(4))
        done, dead = (
            replace(done, state=DeliveryState.DELIVERED),
            replace(dead, state=DeliveryState.DEAD),
        )
        await store.instances.add(
            Change(
                an_instance(settled=True),
                deliveries=(lost, done, dead, attended),
                jobs=(a_sending_job(attended),),
            )
        )
        found = await store.jobs.unscheduled(100)
        assert found.deliveries == (lost,)
        assert found.instances == ()

    async def test_a_finished_job_attends_to_nothing(self, store: Store) -> None:
        await store.instances.add(
            Change(
                an_instance(1),
                deliveries=(a_delivery(),),
                jobs=(a_reconcile_job(1), a_sending_job(a_delivery())),
            )
        )
        assert await self.left(store) == ([], [])
        await store.jobs.mark_finished(a_reconcile_job(1).id)
        await store.jobs.mark_finished(a_sending_job(a_delivery()).id)
        assert await self.left(store) == ([instance_id(1)], [a_delivery().id])

    async def test_a_job_of_another_sort_attends_to_nothing(self, store: Store) -> None:
        sending = a_sending_job(a_delivery(1))
        await store.instances.add(Change(an_instance(1), jobs=(sending,)))
        stray = a_reconcile_job(9, key="turn:of-nobody", instance_id=None)
        await store.jobs.enqueue([stray])
        assert await self.left(store) == ([instance_id(1)], [])

    @pytest.mark.proves("F55")
    async def test_a_turn_that_failed_for_good_is_left_alone_for_a_while(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1), jobs=(a_reconcile_job(1),)))
        await store.jobs.mark_failed(a_reconcile_job(1).id, "poison")
        await store.clock.advance(QUARANTINE.total_seconds() - 0.000001)
        assert await self.left(store) == ([], [])
        await store.clock.advance(0.000001)
        assert await self.left(store) == ([instance_id(1)], [])

    async def test_a_webhook_that_failed_does_not_keep_its_instance_from_moving(self, store: Store) -> None:
        sending = a_sending_job(a_delivery(1))
        await store.instances.add(Change(an_instance(1), jobs=(sending,)))
        await store.jobs.mark_failed(sending.id, "410")
        assert await self.left(store) == ([instance_id(1)], [])

    async def test_no_more_than_asked_for(self, store: Store) -> None:
        for n in range(5):
            await store.instances.add(Change(an_instance(n), deliveries=(a_delivery(n),)))
        instances, deliveries = await self.left(store, limit=3)
        assert (len(instances), len(deliveries)) == (3, 3)
