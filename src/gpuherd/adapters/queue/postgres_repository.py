"""PGQueuer's repository on PostgreSQL, plus what it lacks: woken jobs, a wake-up for retries, retention.

A retry and a wake-up may meet. Both write the queue's row, so one waits for the other; the retry writes it
first and only then, with a fresh view, looks whether the job was woken. In whichever order they come, the
wake-up wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from datetime import timedelta
from typing import Any, Self, cast

import asyncpg
import structlog
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.qb import (
    QueryBuilderEnvironment,
    QueryQueueBuilder,
    QuerySchedulerBuilder,
)
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.domain import models
from pgqueuer.domain.types import JOB_STATUS, JobId
from pgqueuer.ports.driver import Driver

from gpuherd.adapters.queue.pgqueuer_names import CHANNEL, PGQUEUER_SETTINGS, table_changed_payload
from gpuherd.adapters.queue.postgres_connect import asyncpg_arguments, with_timeouts, without_timeouts
from gpuherd.adapters.queue.postgres_driver import PoolDriver
from gpuherd.ports.clock_port import Clock

log = structlog.get_logger(__name__)

# Two of them listen, one for each manager.
POOL_SIZE = 6
# A server that went silent must look like a lost one, or the engine would wait for it for ever.
STATEMENT_LIMIT_S = 15.0
CLOSE_LIMIT_S = 5.0
MICROSECOND = timedelta(microseconds=1)

# In one round trip, and without a row in PGQueuer's log, which nobody reads. The numbers are ours.
_RETRY = """
    BEGIN ISOLATION LEVEL READ COMMITTED;
    UPDATE pgqueuer
        SET status = 'queued', execute_after = NOW() + interval '{delay_us} microseconds',
            attempts = attempts + 1, updated = NOW(), queue_manager_id = NULL
        WHERE id = {id};
    UPDATE pgqueuer SET execute_after = NOW()
        WHERE id = {id} AND status = 'queued' AND EXISTS (SELECT 1 FROM job WHERE queue_id = {id} AND woken);
    COMMIT
"""
_DELETE = "DELETE FROM pgqueuer WHERE id = ANY($1::bigint[])"
# One short look into an index for each kind; all kinds together, PGQueuer's way, would sort the whole queue.
_NEXT_DUE = """
    SELECT min(first.execute_after) - NOW() AS due
    FROM unnest($1::text[]) AS kind, LATERAL (
        SELECT execute_after FROM pgqueuer WHERE status = 'queued' AND entrypoint = kind
        ORDER BY execute_after LIMIT 1
    ) AS first
"""
_PRUNE_LOG = "DELETE FROM pgqueuer_log WHERE created < NOW() - $1::interval"


class PostgresRepository(Queries):
    """Implements PGQueuer's `RepositoryPort` over a pool of its own."""

    def __init__(self, pool: asyncpg.Pool, clock: Clock, arguments: dict[str, Any]):
        super().__init__(**_query_builders(PoolDriver(pool)))
        self._pool = pool
        self._clock = clock
        self._arguments = arguments

    @classmethod
    async def open(cls, url: str, clock: Clock, *, connections: int = POOL_SIZE) -> Self:
        """Connect to the database that a libpq URL names."""
        arguments = asyncpg_arguments(url)
        pool = await asyncpg.create_pool(
            **with_timeouts(arguments),
            min_size=1,
            max_size=connections,
            command_timeout=STATEMENT_LIMIT_S,
            reset=_no_reset,
        )
        return cls(pool, clock, arguments)

    def sibling(self) -> Self:
        """Return one on the same pool with a listener of its own."""
        twin = copy.copy(self)
        twin.driver = PoolDriver(self._pool)
        return twin

    async def dequeue(self, *args: Any, **named: Any) -> list[models.Job]:
        """Take the best due jobs."""
        # Before the poll, not after: a wake-up during it may be about something that it did not see.
        self._pool_driver.acknowledge()
        return await super().dequeue(*args, **named)

    async def close(self) -> None:
        """Let go of every connection."""
        # One that is still in use is cut off when the time is over.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pool.close(), CLOSE_LIMIT_S)

    async def ensure_schema(self) -> None:
        """Make PGQueuer's tables or bring them up to date; replicas that start together take turns."""
        # A connection of its own: the lock belongs to one, and making an index may take its time.
        connection = await asyncpg.connect(**without_timeouts(self._arguments))
        try:
            schema = Queries(**_query_builders(AsyncpgDriver(connection)))
            async with schema.schema_lock():
                if await schema.schema_is_installed():
                    await schema.upgrade()
                else:
                    await schema.install()
        finally:
            await connection.close()

    async def prune_log(self, older_than: timedelta) -> int:
        """Delete what PGQueuer logged longer ago than that, and return how many rows there were."""
        answer = await self.driver.execute(_PRUNE_LOG, older_than)
        return int(answer.removeprefix("DELETE "))

    @property
    def wake_pending(self) -> bool:
        """Whether a wake-up has come since the last poll began."""
        return self._pool_driver.wake_pending

    async def next_due(self, kinds: list[str]) -> timedelta | None:
        """Return how long until the next queued job of these kinds falls due; None if none is queued."""
        (row,) = await self.driver.fetch(_NEXT_DUE, kinds)
        return cast("timedelta | None", row["due"])

    async def retry_job(
        self, job: models.Job, delay: timedelta, traceback_record: models.TracebackRecord | None
    ) -> None:
        """Queue the job again after `delay`, or at once if it was woken while it ran.

        This repository's own manager will look in time; others hear only of a job that is due at once. A
        failure is not passed on, because PGQueuer would answer it by deleting the row: the job stays picked,
        its heartbeat ends, and it is taken over like that of a dead worker.
        """
        try:
            await self._put_back(job, delay)
        except Exception as error:
            log.warning("queue.retry_not_written", queue_id=job.id, error=type(error).__name__)

    async def log_jobs(
        self, job_status: list[tuple[models.Job, JOB_STATUS, models.TracebackRecord | None]]
    ) -> None:
        """Delete the finished jobs, without a row in PGQueuer's log; hold the failed ones as it does."""
        if held := [it for it in job_status if it[1] == "failed"]:
            await super().log_jobs(held)
        finished = [job.id for job, status, _ in job_status if status != "failed"]
        await self.driver.execute(_DELETE, finished)

    async def requeue_jobs(self, ids: list[JobId]) -> None:
        """Queue failed jobs again, and wake the workers."""
        await super().requeue_jobs(ids)
        await self.driver.notify(CHANNEL, self._wake_payload())

    async def _put_back(self, job: models.Job, delay: timedelta) -> None:
        async with self._pool.acquire() as connection:
            await connection.execute(_RETRY.format(id=int(job.id), delay_us=delay // MICROSECOND))
        if delay <= timedelta(0):
            await self.driver.notify(CHANNEL, self._wake_payload())
        else:
            self._pool_driver.wake(CHANNEL, self._wake_payload())

    @property
    def _pool_driver(self) -> PoolDriver:
        assert isinstance(self.driver, PoolDriver), "there is no other"
        return self.driver

    def _wake_payload(self) -> str:
        return table_changed_payload("update", self._clock.now())


async def _no_reset(_: asyncpg.Connection) -> None:
    """A transaction that is left open is ended without us; nobody here changes a session, so a round trip
    to put it right after each statement would be for nothing."""


def _query_builders(driver: Driver) -> dict[str, Any]:
    return {
        "driver": driver,
        "qbe": QueryBuilderEnvironment(PGQUEUER_SETTINGS),
        "qbq": QueryQueueBuilder(PGQUEUER_SETTINGS),
        "qbs": QuerySchedulerBuilder(PGQUEUER_SETTINGS),
    }
