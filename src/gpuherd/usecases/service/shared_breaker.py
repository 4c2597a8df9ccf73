"""One circuit breaker for all replicas.

A numbered state in the database that each publishes to and follows.
"""

from __future__ import annotations

import asyncio

import structlog

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.replica_port import BreakerStore
from gpuherd.resilience.circuit_breaker import CircuitBreaker

log = structlog.get_logger()
UNKNOWN_NUMBER = -1


class SharedBreaker:
    """Each change has a number and is made on top of the last one. One that was found out while others were
    faster is dropped, and theirs adopted: a replica that slept through an outage must not call out the next.
    """

    def __init__(self, breaker: CircuitBreaker, board: BreakerStore) -> None:
        self._breaker = breaker
        self._board = board
        self._number = 0
        self._has_unpublished = False
        self._lock = asyncio.Lock()
        self._publishing: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Tell the others at once of what was found out here."""
        self._has_unpublished = True
        self._publishing = asyncio.create_task(self._publish())

    def forget(self) -> None:
        """Take whatever state is in the store for a new one: its number may be given out a second time."""
        self._number = UNKNOWN_NUMBER

    async def __call__(self) -> None:
        """Learn what the others have found out, or tell what they do not know yet."""
        async with self._lock:
            number, shared_state = await self._board.read()
            if number != self._number:
                self._number, self._has_unpublished = number, False
                self._breaker.apply(shared_state)
                log.info("breaker.state_applied", number=number, is_open=shared_state.is_open)
            elif self._has_unpublished:
                await self._write()

    async def _write(self) -> None:
        self._has_unpublished = False
        try:
            if await self._board.write(self._breaker.shared_state(), self._number):
                self._number += 1
        except BaseException:
            self._has_unpublished = True
            raise

    async def _publish(self) -> None:
        try:
            await self()
        except StoreUnavailable:
            # The next look tells it.
            log.warning("breaker.publish_failed")
