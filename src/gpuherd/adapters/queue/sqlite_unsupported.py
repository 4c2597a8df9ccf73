"""The parts of PGQueuer's repository that SQLite does without, and what it answers instead."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment
from pgqueuer.domain import models
from pgqueuer.domain.types import CronEntrypoint, QueueEntrypoint, ScheduleId

from gpuherd.adapters.queue.pgqueuer_names import PGQUEUER_SETTINGS


class NoSchedules:
    """Cron schedules are not kept on SQLite: adding one is an error, and there are none to find."""

    async def insert_schedule(self, schedules: dict[models.CronExpressionEntrypoint, timedelta]) -> NoReturn:
        """Refuse, rather than accept a schedule that would never run."""
        raise NotImplementedError("cron schedules are not supported on SQLite")

    async def fetch_schedule(
        self, entrypoints: dict[models.CronExpressionEntrypoint, timedelta]
    ) -> list[models.Schedule]:
        """Return none."""
        return []

    async def set_schedule_queued(self, ids: set[ScheduleId]) -> None:
        """Do nothing: there are none."""

    async def update_schedule_heartbeat(self, ids: set[ScheduleId]) -> None:
        """Do nothing: there are none."""

    async def peek_schedule(self) -> list[models.Schedule]:
        """Return none."""
        return []

    async def delete_schedule(self, ids: set[ScheduleId], entrypoints: set[CronEntrypoint]) -> None:
        """Do nothing: there are none."""

    async def clear_schedule(self) -> None:
        """Do nothing: there are none."""


class NoQueueLog:
    """PGQueuer's log and statistics are not kept on SQLite: the job table is the history."""

    async def queue_log(self) -> list[models.Log]:
        """Return nothing."""
        return []

    async def aggregate_logs(self) -> None:
        """Do nothing: there is no log."""

    async def log_statistics(
        self, limit: int | None, last: timedelta | None = None
    ) -> list[models.LogStatistics]:
        """Return nothing."""
        return []

    async def clear_statistics_log(self, entrypoint: str | list[str] | None = None) -> None:
        """Do nothing: there are no statistics."""


class NoEtaQueries:
    """Our manager asks how long to wait with one question (`next_due`), PGQueuer's with several."""

    async def eligible_queued_work(self, entrypoints: list[QueueEntrypoint]) -> NoReturn:
        """Refuse: nobody asks."""
        raise NotImplementedError("ask for `next_due`")

    async def next_deferred_eta(self, entrypoints: list[QueueEntrypoint]) -> NoReturn:
        """Refuse: nobody asks."""
        raise NotImplementedError("ask for `next_due`")


class SchemaByMigration:
    """The table is made by our migrations before the engine starts, so PGQueuer finds all it asks for."""

    @property
    def qbe(self) -> QueryBuilderEnvironment:
        """PGQueuer's names, which it asks for when it checks the schema."""
        return QueryBuilderEnvironment(PGQUEUER_SETTINGS)

    async def install(self) -> None:
        """Do nothing: our migrations install."""

    async def uninstall(self) -> NoReturn:
        """Refuse: the table belongs to our migrations."""
        raise NotImplementedError("the queue's table on SQLite belongs to the migrations")

    async def upgrade(self) -> None:
        """Do nothing: our migrations upgrade."""

    async def has_table(self, table: str) -> bool:
        """Answer yes, also for the tables that we do without."""
        return True

    async def table_has_column(self, table: str, column: str) -> bool:
        """Answer yes."""
        return True

    async def table_has_index(self, table: str, index: str) -> bool:
        """Answer yes."""
        return True

    async def has_user_defined_enum(self, key: str, enum: str) -> bool:
        """Answer yes."""
        return True

    async def has_function(self, function: str) -> bool:
        """Answer yes."""
        return True

    async def has_trigger(self, trigger: str) -> bool:
        """Answer yes."""
        return True
