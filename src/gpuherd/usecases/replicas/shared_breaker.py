"""Share the breaker: when one replica stops calling the cloud, all do, until one has found it well again."""

from __future__ import annotations

import asyncio

import structlog

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.budgets import BreakerBoard
from gpuherd.resilience.circuit_breaker import CircuitBreaker

log = structlog.get_logger()


class ShareBreaker:
    """Each change has a number and is made on top of the last one. One that was found out while others were
    faster is dropped, and theirs adopted: a replica that slept through an outage must not call out the next.
    """

    def __init__(self, breaker: CircuitBreaker, board: BreakerBoard) -> None:
        self._breaker = breaker
        self._board = board
        self._number = 0
        self._has_news = False
        self._turn = asyncio.Lock()
        self._telling: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Tell the others at once of what was found out here."""
        self._has_news = True
        self._telling = asyncio.create_task(self._tell())

    async def __call__(self) -> None:
        """Learn what the others have found out, or tell what they do not know yet."""
        async with self._turn:
            number, standing = await self._board.read()
            if number != self._number:
                self._number, self._has_news = number, False
                self._breaker.adopt(standing)
                log.info("breaker.adopted", number=number, is_open=standing.is_open)
            elif self._has_news:
                await self._write()

    async def _write(self) -> None:
        self._has_news = False
        try:
            if await self._board.write(self._breaker.standing(), self._number):
                self._number += 1
        except BaseException:
            self._has_news = True
            raise

    async def _tell(self) -> None:
        try:
            await self()
        except StoreUnavailable:
            # The next look tells it.
            log.warning("breaker.untold")
