"""Keep one slow neighbour from taking every seat: a limit for all, and a smaller one for each key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _Room:
    seats: asyncio.Semaphore
    visitors: int = 0


class Bulkhead:
    """`async with bulkhead(key):` waits for a seat; at most `total` are taken, and `per_key` by one key."""

    def __init__(self, total: int, per_key: int) -> None:
        if total < 1 or per_key < 1:
            raise ValueError("total and per_key must be at least 1")
        self._seats = asyncio.Semaphore(total)
        self._per_key = per_key
        self._rooms: dict[Hashable, _Room] = {}

    @asynccontextmanager
    async def __call__(self, key: Hashable) -> AsyncIterator[None]:
        room = self._rooms.setdefault(key, _Room(asyncio.Semaphore(self._per_key)))
        room.visitors += 1
        try:
            # The key's own seat first: who waits for a crowded key must not hold a seat of everyone's.
            async with room.seats, self._seats:
                yield
        finally:
            room.visitors -= 1
            if not room.visitors:
                del self._rooms[key]

    def __len__(self) -> int:
        """How many keys are remembered: those with someone inside or waiting."""
        return len(self._rooms)
