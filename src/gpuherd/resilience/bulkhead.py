"""A bulkhead.

A concurrency limit for all, and a smaller one for each key, so that one slow neighbour cannot take every
slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _KeyPermits:
    permits: asyncio.Semaphore
    users: int = 0


class Bulkhead:
    """`async with bulkhead(key):` waits for a seat; at most `total` are taken, and `per_key` by one key."""

    def __init__(self, total: int, per_key: int) -> None:
        if total < 1 or per_key < 1:
            raise ValueError("total and per_key must be at least 1")
        self._permits = asyncio.Semaphore(total)
        self._per_key = per_key
        self._by_key: dict[Hashable, _KeyPermits] = {}

    @asynccontextmanager
    async def __call__(self, key: Hashable) -> AsyncIterator[None]:
        of_key = self._by_key.setdefault(key, _KeyPermits(asyncio.Semaphore(self._per_key)))
        of_key.users += 1
        try:
            # The key's own seat first: who waits for a crowded key must not hold a seat of everyone's.
            async with of_key.permits, self._permits:
                yield
        finally:
            of_key.users -= 1
            if not of_key.users:
                del self._by_key[key]

    def __len__(self) -> int:
        """How many keys are remembered: those with someone inside or waiting."""
        return len(self._by_key)
