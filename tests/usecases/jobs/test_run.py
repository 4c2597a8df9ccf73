"""Running a job: one line in the log and one word for the meter, however it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import structlog
from structlog.contextvars import get_contextvars, merge_contextvars
from structlog.testing import LogCapture

from gpuherd.domain.errors import StaleWrite, StoreUnavailable
from gpuherd.jobs.job import Job, JobStatus, Priority
from gpuherd.jobs.outcome import Done, GiveUp, Outcome, Retry, Snooze
from gpuherd.ports.metrics import NullMeter
from gpuherd.usecases.jobs.run import RunJob
from tests.support.fake_clock import START, FakeClock

JOB = Job("job_1", "monitor_instance", JobStatus.PROCESSING, Priority.NORMAL, 0, 3, START, "inst_1")
SECOND = timedelta(seconds=1)

log = structlog.get_logger()


@dataclass
class Book:
    """A book with one job in it."""

    job: Job | None = JOB
    tries_left: int = 2
    away: bool = False
    notes: list[str] = field(default_factory=list)

    async def mark_started(self, job_id: str) -> Job | None:
        return self.job

    async def mark_finished(self, job_id: str) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.notes.append("finished")

    async def record_failure(self, job_id: str, error: str) -> Job:
        self.notes.append(error)
        status = JobStatus.PENDING if self.tries_left else JobStatus.FAILED
        return Job(JOB.id, JOB.kind, status, Priority.NORMAL, 1, 3, START)

    async def mark_failed(self, job_id: str, error: str) -> None:
        self.notes.append(error)


@dataclass
class Turns(NullMeter):
    """A meter that remembers the runs of jobs."""

    told: list[tuple[str, str, float]] = field(default_factory=list)

    def turn(self, kind: str, outcome: str, seconds: float) -> None:
        self.told.append((kind, outcome, seconds))


@dataclass
class Handler:
    """Takes two seconds, logs a line, and ends as it is told to."""

    clock: FakeClock
    end: Outcome | BaseException

    async def __call__(self, job: Job) -> Outcome:
        await self.clock.sleep(2)
        log.info("handler.was_here")
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """Everything that is logged meanwhile, as it would be written."""
    before = structlog.get_config()
    capture = LogCapture()
    structlog.configure(
        processors=[merge_contextvars, capture],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    yield capture.entries
    structlog.configure(**before)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto=True)


@pytest.fixture
def meter() -> Turns:
    return Turns()


@pytest.fixture
def book() -> Book:
    return Book()


def run_job(book: Book, clock: FakeClock, meter: Turns, end: Outcome | BaseException) -> RunJob:
    return RunJob(book, {JOB.kind: Handler(clock, end)}, clock, meter)  # type: ignore[arg-type]


ENDS: list[tuple[Outcome | BaseException, str, str]] = [
    (Done(), "done", "info"),
    (Snooze(SECOND), "snoozed", "debug"),
    (StaleWrite("overtaken"), "snoozed", "debug"),
    (Retry(SECOND, "refused"), "retried", "info"),
    (ValueError("a defect"), "retried", "info"),
    (GiveUp("gone"), "failed", "info"),
    (StoreUnavailable("away"), "interrupted", "info"),
]


@pytest.mark.parametrize(("end", "word", "level"), ENDS, ids=lambda it: str(it)[:30])
async def test_every_run_has_one_line_and_one_word(
    book: Book,
    clock: FakeClock,
    meter: Turns,
    lines: list[Any],
    end: Outcome | BaseException,
    word: str,
    level: str,
) -> None:
    await run_job(book, clock, meter, end)(JOB.id)
    assert meter.told == [("monitor_instance", word, 2.0)]
    assert [it for it in lines if it["event"] == "job.ran"] == [
        {
            "event": "job.ran",
            "log_level": level,
            "job_id": "job_1",
            "kind": "monitor_instance",
            "instance_id": "inst_1",
            "outcome": word,
            "duration_ms": 2000.0,
        }
    ]


@pytest.mark.parametrize(("end", "notes"), [(Done(), ["finished"]), (Done(written=True), [])])
async def test_an_end_is_written_once(
    book: Book, clock: FakeClock, meter: Turns, end: Done, notes: list[str]
) -> None:
    await run_job(book, clock, meter, end)(JOB.id)
    assert [note for note in book.notes if note == "finished"] == notes


async def test_a_retry_without_a_try_left_is_a_failure(book: Book, clock: FakeClock, meter: Turns) -> None:
    book.tries_left = 0
    assert await run_job(book, clock, meter, Retry(SECOND, "refused"))(JOB.id) == Done()
    assert [outcome for _, outcome, _ in meter.told] == ["failed"]


async def test_what_the_book_could_not_take_down_was_interrupted_and_comes_again(
    book: Book, clock: FakeClock, meter: Turns
) -> None:
    book.away = True
    assert isinstance(await run_job(book, clock, meter, Done())(JOB.id), Snooze)
    assert [outcome for _, outcome, _ in meter.told] == ["interrupted"]


async def test_a_run_that_is_cancelled_has_its_line_too(
    book: Book, clock: FakeClock, meter: Turns, lines: list[Any]
) -> None:
    with pytest.raises(asyncio.CancelledError):
        await run_job(book, clock, meter, asyncio.CancelledError())(JOB.id)
    assert [it["outcome"] for it in lines if it["event"] == "job.ran"] == ["interrupted"]


async def test_lines_on_the_way_say_which_job_and_instance_they_are_about_and_later_ones_do_not(
    book: Book, clock: FakeClock, meter: Turns, lines: list[Any]
) -> None:
    await run_job(book, clock, meter, ValueError("a defect"))(JOB.id)
    on_the_way = [it for it in lines if it["event"] in ("handler.was_here", "job.attempt_failed")]
    assert len(on_the_way) == 2
    assert {(it["job_id"], it["instance_id"]) for it in on_the_way} == {("job_1", "inst_1")}
    assert get_contextvars() == {}


async def test_runs_at_the_same_time_do_not_mix_up_their_lines(clock: FakeClock, lines: list[Any]) -> None:
    async def run(n: int) -> None:
        job = Job(f"job_{n}", JOB.kind, JOB.status, JOB.priority, 0, 3, START, f"inst_{n}")
        await run_job(Book(job), clock, Turns(), Done())(job.id)

    await asyncio.gather(*(run(n) for n in range(5)))
    inner = [it for it in lines if it["event"] == "handler.was_here"]
    assert sorted((it["job_id"], it["instance_id"]) for it in inner) == [
        (f"job_{n}", f"inst_{n}") for n in range(5)
    ]


async def test_a_job_that_has_ended_already_is_no_run(
    clock: FakeClock, meter: Turns, lines: list[Any]
) -> None:
    assert await run_job(Book(None), clock, meter, Done())("job_1") == Done()
    assert meter.told == []
    assert lines == []
