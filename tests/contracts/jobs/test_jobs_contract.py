"""What the port `Jobs` promises about taking jobs, their ends, and what people see of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuherd.adapters.sql import service_tables
from gpuherd.adapters.stores.job_store import OVERDUE, PASS_MAX, TAKES_MAX
from gpuherd.domain.errors import NotFound
from gpuherd.domain.job import Job, JobStatus, Priority
from gpuherd.ports.job_port import JobQuery
from tests.support.builders import a_reconcile_job, instance_id
from tests.support.fake_clock import START
from tests.support.sql.databases import Store, all_at_once

MINUTE = timedelta(minutes=1)


async def listed(store: Store, **query: object) -> list[str]:
    """Return the ids on a page."""
    page = await store.jobs.page(JobQuery(**query))  # type: ignore[arg-type]
    assert page.total == len(page.jobs)
    return [it.id for it in page.jobs]


class TestTaking:
    async def test_a_new_job_is_pending_and_due_after_its_delay(self, store: Store) -> None:
        new = a_reconcile_job(delay=MINUTE, payload={"a": [1, "ü"]})
        assert await store.jobs.enqueue([new]) == 1
        assert await store.jobs.get(new.id) == Job(
            id=new.id,
            kind="create_instance",
            status=JobStatus.PENDING,
            priority=Priority.HIGH,
            attempts=0,
            max_attempts=3,
            created_at=START,
            instance_id=instance_id(1),
            payload={"a": [1, "ü"]},
            next_retry_at=START + MINUTE,
        )

    async def test_an_unknown_job_is_not_found_under_the_right_code(self, store: Store) -> None:
        with pytest.raises(NotFound) as caught:
            await store.jobs.get("job_nobody")
        assert caught.value.code == "JOB_NOT_FOUND"

    async def test_a_key_is_taken_once_while_its_job_lives(self, store: Store) -> None:
        first, second, other = a_reconcile_job(1), a_reconcile_job(1, name="again"), a_reconcile_job(2)
        assert await store.jobs.enqueue([first, second, other]) == 2
        assert await store.jobs.enqueue([second]) == 0
        assert await listed(store) == [other.id, first.id]

    @pytest.mark.parametrize("end", ["finished", "gave_up"])
    async def test_a_key_is_free_again_when_its_job_has_ended(self, store: Store, end: str) -> None:
        await store.jobs.enqueue([a_reconcile_job()])
        await (
            store.jobs.mark_finished(a_reconcile_job().id)
            if end == "finished"
            else store.jobs.mark_failed(a_reconcile_job().id, "no")
        )
        assert await store.jobs.enqueue([a_reconcile_job(name="again")]) == 1

    async def test_two_processes_at_once_take_a_key_once_between_them(
        self, store: Store, other_store: Store
    ) -> None:
        """Both sweep after a crash, and find the same work unscheduled."""
        books = (store.jobs, other_store.jobs)
        for n in range(5):
            answers = await all_at_once(
                10,
                lambda m: books[m % 2].enqueue([a_reconcile_job(n, name=f"-{m}")]),  # noqa: B023
            )
            assert sorted(answers) == [0] * 9 + [1]
        assert len(await store.rows(service_tables.job)) == 5


class TestRunning:
    @pytest.fixture(autouse=True)
    async def job(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job(max_attempts=3)])

    async def test_a_started_job_is_returned_with_the_time(self, store: Store) -> None:
        await store.clock.advance(5)
        job = await store.jobs.mark_started(a_reconcile_job().id)
        assert job is not None
        assert (job.status, job.processed_at) == (JobStatus.PROCESSING, START + timedelta(seconds=5))
        assert job.payload == a_reconcile_job().payload

    async def test_an_ended_or_unknown_job_is_not_started(self, store: Store) -> None:
        assert await store.jobs.mark_started("job_nobody") is None
        await store.jobs.mark_finished(a_reconcile_job().id)
        before = await store.everything()
        assert await store.jobs.mark_started(a_reconcile_job().id) is None
        assert await store.everything() == before

    async def test_a_start_answers_an_earlier_wake(self, store: Store) -> None:
        """Else a pass that finds its instance busy would be woken again and again by one old wake."""
        await store.jobs.wake_or_enqueue([a_reconcile_job()])
        await store.jobs.mark_started(a_reconcile_job().id)
        await store.jobs.snooze(a_reconcile_job().id, MINUTE)
        assert (await store.jobs.get(a_reconcile_job().id)).next_retry_at == START + MINUTE

    async def test_one_process_gets_a_job(self, store: Store, other_store: Store) -> None:
        books = (store.jobs, other_store.jobs)
        started = await all_at_once(10, lambda n: books[n % 2].mark_started(a_reconcile_job().id))
        assert len([it for it in started if it is not None]) == 1

    async def test_a_job_that_is_not_due_is_not_started(self, store: Store) -> None:
        await store.jobs.mark_started(a_reconcile_job().id)
        await store.jobs.snooze(a_reconcile_job().id, MINUTE)
        await store.clock.advance(59.9)
        assert await store.jobs.mark_started(a_reconcile_job().id) is None
        await store.clock.advance(0.1)
        assert await store.jobs.mark_started(a_reconcile_job().id) is not None

    async def test_a_shorter_snooze_replaces_a_longer_one(self, store: Store) -> None:
        await store.jobs.mark_started(a_reconcile_job().id)
        for delay in (2 * MINUTE, MINUTE, 2 * MINUTE):
            await store.jobs.snooze(a_reconcile_job().id, delay)
        assert (await store.jobs.get(a_reconcile_job().id)).next_retry_at == START + MINUTE

    async def test_finishing_is_noted_once(self, store: Store) -> None:
        await store.jobs.mark_finished(a_reconcile_job().id)
        await store.clock.advance(60)
        await store.jobs.mark_finished(a_reconcile_job().id)
        await store.jobs.mark_finished("job_nobody")
        job = await store.jobs.get(a_reconcile_job().id)
        assert (job.status, job.completed_at, job.error) == (JobStatus.COMPLETED, START, "")

    @pytest.mark.proves("F55")
    async def test_stumbling_counts_and_fails_at_the_maximum(self, store: Store) -> None:
        for attempts in (1, 2):
            job = await store.jobs.record_failure(a_reconcile_job().id, f"error {attempts}")
            assert (job.status, job.attempts) == (JobStatus.PENDING, attempts)
            assert (await store.jobs.get(a_reconcile_job().id)).status is JobStatus.PENDING
        await store.clock.advance(60)
        job = await store.jobs.record_failure(a_reconcile_job().id, "error 3")
        assert job == await store.jobs.get(a_reconcile_job().id)
        assert (job.status, job.attempts, job.error) == (JobStatus.FAILED, 3, "error 3")
        assert job.completed_at == START + MINUTE

    async def test_giving_up_fails_at_once_whatever_tries_are_left(self, store: Store) -> None:
        await store.jobs.mark_failed(a_reconcile_job().id, "410 Gone")
        job = await store.jobs.get(a_reconcile_job().id)
        assert (job.status, job.attempts, job.error) == (JobStatus.FAILED, 1, "410 Gone")
        assert job.completed_at == START

    async def test_a_finished_job_does_not_fail_afterwards(self, store: Store) -> None:
        await store.jobs.mark_finished(a_reconcile_job().id)
        await store.jobs.mark_failed(a_reconcile_job().id, "late")
        assert (await store.jobs.get(a_reconcile_job().id)).status is JobStatus.COMPLETED


class TestTakes:
    """A job that ends its process would do so at every start, and no other work would be done."""

    @pytest.fixture(autouse=True)
    async def job(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job()])

    async def die(self, store: Store) -> bool:
        """Begin a pass in a process that ends. Return True if the pass began."""
        began = await store.jobs.mark_started(a_reconcile_job().id)
        await store.jobs.take_over()
        return began is not None

    @pytest.mark.proves("F55")
    async def test_a_job_in_which_five_processes_ended_is_given_up(self, store: Store) -> None:
        assert [await self.die(store) for _ in range(TAKES_MAX + 1)] == [True] * TAKES_MAX + [False]
        job = await store.jobs.get(a_reconcile_job().id)
        assert job.status is JobStatus.FAILED
        assert "5 processes in a row" in job.error

    async def test_a_pass_that_ends_is_no_death(self, store: Store) -> None:
        for _ in range(3):
            assert [await self.die(store) for _ in range(TAKES_MAX - 1)] == [True] * (TAKES_MAX - 1)
            await store.jobs.mark_started(a_reconcile_job().id)
            await store.jobs.snooze(a_reconcile_job().id, timedelta(0))

    async def test_only_what_runs_is_taken_over(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job(2, delay=MINUTE), a_reconcile_job(3)])
        await store.jobs.mark_started(a_reconcile_job().id)
        await store.jobs.mark_finished(a_reconcile_job(3).id)
        assert await store.jobs.take_over([a_reconcile_job(n).id for n in (1, 2, 3)]) == 1
        assert (await store.jobs.get(a_reconcile_job().id)).next_retry_at == START
        assert (await store.jobs.get(a_reconcile_job(2).id)).next_retry_at == START + MINUTE

    async def test_a_delivery_that_was_lost_is_repeated(self, store: Store) -> None:
        assert await store.jobs.deliver_overdue(10) == 0
        await store.clock.advance(OVERDUE.total_seconds() + 0.001)
        assert await store.jobs.deliver_overdue(10) == 1

    async def test_a_pass_whose_end_nobody_has_written_is_taken_over(self, store: Store) -> None:
        await store.jobs.mark_started(a_reconcile_job().id)
        await store.clock.advance(PASS_MAX.total_seconds())
        assert await store.jobs.deliver_overdue(10) == 0
        await store.clock.advance(0.001)
        assert await store.jobs.deliver_overdue(10) == 1
        assert (await store.jobs.get(a_reconcile_job().id)).status is JobStatus.PENDING


class TestDue:
    async def test_priority_comes_first_and_then_age(self, store: Store) -> None:
        await store.jobs.enqueue(
            [
                a_reconcile_job(1, kind="watch", priority=Priority.NORMAL),
                a_reconcile_job(2, kind="watch", priority=Priority.HIGH),
                a_reconcile_job(3, kind="watch", priority=Priority.HIGH, delay=MINUTE),
                a_reconcile_job(4, kind="watch", priority=Priority.NORMAL),
                a_reconcile_job(5, kind="send"),
                a_reconcile_job(6, kind="other"),
            ]
        )
        due, next_due_at = await store.jobs.due({("watch",): 2, ("send",): 2})
        assert [it.id for it in due] == [a_reconcile_job(n).id for n in (2, 1, 5)]
        assert next_due_at == START + MINUTE

    async def test_nothing_is_due(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job(kind="watch", delay=MINUTE)])
        assert await store.jobs.due({("send",): 2}) == ([], None)
        assert await store.jobs.due({("watch",): 2}) == ([], START + MINUTE)


class TestPagesAndStats:
    @pytest.fixture(autouse=True)
    async def one_of_each(self, store: Store) -> None:
        """1 waits, 2 runs, 3 is done, 4 has failed, 5 waits."""
        monitor = {"kind": "monitor_instance"}
        await store.jobs.enqueue(
            [
                a_reconcile_job(1),
                a_reconcile_job(2),
                a_reconcile_job(3),
                a_reconcile_job(4, **monitor),
                a_reconcile_job(5, **monitor),
            ]
        )
        await store.jobs.mark_started(a_reconcile_job(2).id)
        await store.jobs.mark_finished(a_reconcile_job(3).id)
        await store.jobs.mark_started(a_reconcile_job(4).id)
        await store.jobs.mark_failed(a_reconcile_job(4).id, "no")

    @pytest.mark.parametrize(
        ("n", "status"),
        [
            (1, JobStatus.PENDING),
            (2, JobStatus.PROCESSING),
            (3, JobStatus.COMPLETED),
            (4, JobStatus.FAILED),
            (5, JobStatus.PENDING),
        ],
    )
    async def test_each_has_its_status(self, store: Store, n: int, status: JobStatus) -> None:
        job = await store.jobs.get(a_reconcile_job(n).id)
        assert job.status is status
        assert (job.next_retry_at is not None) == (n in (1, 5))

    async def test_filters_choose_by_status_kind_and_instance(self, store: Store) -> None:
        one, two, three, four, five = (a_reconcile_job(n).id for n in range(1, 6))
        assert await listed(store) == [five, four, three, two, one]
        assert await listed(store, status=JobStatus.PENDING) == [five, one]
        assert await listed(store, status=JobStatus.PROCESSING) == [two]
        assert await listed(store, status=JobStatus.COMPLETED) == [three]
        assert await listed(store, status=JobStatus.FAILED) == [four]
        assert await listed(store, kind="monitor_instance") == [five, four]
        assert await listed(store, kind="monitor_instance", status=JobStatus.PENDING) == [five]
        assert await listed(store, instance_id=instance_id(2)) == [two]
        assert await listed(store, instance_id=instance_id(2), kind="send_webhook") == []

    async def test_a_page_shows_the_same_job_as_a_single_look(self, store: Store) -> None:
        for job in (await store.jobs.page(JobQuery())).jobs:
            assert job == await store.jobs.get(job.id)

    async def test_a_walk_shows_each_once(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job(n) for n in range(6, 106)])
        query, seen = JobQuery(limit=9), []
        while True:
            page = await store.jobs.page(query)
            assert page.total == 105
            seen += [it.id for it in page.jobs]
            if page.next_cursor is None:
                break
            query = replace(query, cursor=page.next_cursor)
        assert seen == [a_reconcile_job(n).id for n in reversed(range(1, 106))]

    async def test_stats_count_by_status_and_kind(self, store: Store) -> None:
        stats = await store.jobs.stats()
        assert stats.by_status == {
            JobStatus.PENDING: 2,
            JobStatus.PROCESSING: 1,
            JobStatus.COMPLETED: 1,
            JobStatus.FAILED: 1,
        }
        assert stats.by_kind == {"create_instance": 3, "monitor_instance": 2}

    async def test_stats_know_how_long_the_oldest_due_job_has_waited(self, store: Store) -> None:
        assert (await store.jobs.stats()).oldest_due_s == 0.0
        await store.clock.advance(90.5)
        await store.jobs.enqueue([a_reconcile_job(6)])
        assert (await store.jobs.stats()).oldest_due_s == await store.jobs.oldest_due_s() == 90.5

    async def finish_waiting(self, store: Store) -> None:
        for n in (1, 5):
            await store.jobs.mark_finished(a_reconcile_job(n).id)

    @pytest.mark.parametrize("kind", ["a_kind", "create_instance", "z_kind"])
    async def test_the_oldest_of_every_kind_counts(self, store: Store, kind: str) -> None:
        await self.finish_waiting(store)
        await store.jobs.enqueue([a_reconcile_job(6, kind=kind)])
        await store.clock.advance(30)
        await store.jobs.enqueue([a_reconcile_job(7), a_reconcile_job(8, kind="another_kind")])
        await store.clock.advance(5)
        assert await store.jobs.oldest_due_s() == 35

    async def test_a_job_that_is_not_due_yet_does_not_wait(self, store: Store) -> None:
        await self.finish_waiting(store)
        await store.jobs.enqueue([a_reconcile_job(6, delay=MINUTE)])
        assert (await store.jobs.stats()).oldest_due_s == 0.0


class TestPrune:
    async def test_only_jobs_that_ended_before_are_forgotten(self, store: Store) -> None:
        await store.jobs.enqueue([a_reconcile_job(n) for n in (1, 2, 3, 4)])
        await store.jobs.mark_finished(a_reconcile_job(1).id)
        await store.jobs.mark_failed(a_reconcile_job(2).id, "no")
        await store.clock.advance(60)
        await store.jobs.mark_finished(a_reconcile_job(3).id)
        assert await store.jobs.prune(START) == 0
        assert await store.jobs.prune(START + MINUTE) == 2
        assert await listed(store) == [a_reconcile_job(4).id, a_reconcile_job(3).id]
        assert await store.jobs.prune(START + 2 * MINUTE) == 1
        assert await listed(store) == [a_reconcile_job(4).id]
