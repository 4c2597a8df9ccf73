"""A manager checks that it hears only once it listens."""

from __future__ import annotations

import asyncio
from typing import Self

from pgqueuer.domain.types import HealthCheckId
from pgqueuer.ports.driver import NotifyCallback

from gpuherd.adapters.queue.sqlite_repository import SqliteRepository
from gpuherd.adapters.sql.database import Database
from gpuherd.ports.clock_port import Clock
from tests.adapters.queue.engine_harness import done, running_engine
from tests.adapters.queue.queue_backends import SqliteBackend


class SlowListener(SqliteRepository):
    """Takes its time to listen, as a server does that is under load or has just come up."""

    def __init__(self, database: Database, clock: Clock):
        super().__init__(database, clock)
        self.may_listen = asyncio.Event()
        self.listens = False
        self.unheard: list[HealthCheckId] = []

    def sibling(self) -> Self:
        twin = super().sibling()
        listen = twin._driver.add_listener

        async def listen_late(channel: str, callback: NotifyCallback) -> None:
            await self.may_listen.wait()
            await listen(channel, callback)
            twin.listens = True

        twin._driver.add_listener = listen_late  # type: ignore[method-assign]
        return twin

    async def notify_health_check(self, health_check_event_id: HealthCheckId) -> None:
        if not self.listens:
            self.unheard.append(health_check_event_id)
        await super().notify_health_check(health_check_event_id)


async def test_no_probe_is_sent_before_the_listener_listens(sqlite: SqliteBackend) -> None:
    """Nobody would hear it, and ten seconds later the loop would be ended for that, again and again."""
    repository = SlowListener(sqlite.database, sqlite.clock)
    sqlite.repository = repository
    await sqlite.enqueue("turn", "job")
    async with running_engine(sqlite, done, repository=repository) as shop:
        for _ in range(20):
            await asyncio.sleep(0)
        repository.may_listen.set()
        await shop.ran("job")
        assert repository.unheard == []
