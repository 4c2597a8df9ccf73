"""Bounded name lookups."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from gpuherd.resilience.concurrency import Bulkhead, Lookup, look_up

# Threads at a time, those included whose lookup nobody waits for any more: it cannot be stopped.
LOOKUPS_MAX = 16


LOOKUPS_PER_ZONE = 4


# Longer than a healthy lookup takes, and short enough to leave the caller some of its own time.
LOOKUP_TIMEOUT_S = 10.0


@dataclass(eq=False)
class _Lookup:
    """One lookup, and how many wait for it; it holds its thread until the system has answered."""

    task: asyncio.Task[list[str]] = field(init=False)
    waiters: int = 0
    begun: bool = False


class SystemResolver:
    """Asks the system, in a bounded number of threads.

    Who asks for a name that is being looked up already waits for the same answer. A zone has a few threads
    only, so that many names of one dead zone do not keep others waiting.
    """

    def __init__(self, lookup: Lookup = look_up, *, timeout_s: float = LOOKUP_TIMEOUT_S):
        self._look_up = lookup
        self._timeout_s = timeout_s
        self._bulkhead = Bulkhead(LOOKUPS_MAX, LOOKUPS_PER_ZONE)
        self._running: dict[str, _Lookup] = {}

    async def resolve(self, host: str, port: int) -> list[str]:
        lookup = self._running.get(host) or self._begin(host)
        lookup.waiters += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(lookup.task)
        except TimeoutError:
            raise OSError("the name server does not answer") from None
        finally:
            lookup.waiters -= 1
            if not lookup.waiters and not lookup.begun:
                # Still in the queue for a thread: nobody needs it to get there, and nobody may join it now.
                lookup.task.cancel()
                self._forget(host, lookup)

    def _begin(self, host: str) -> _Lookup:
        lookup = self._running[host] = _Lookup()
        lookup.task = asyncio.create_task(self._run(lookup, host))
        # Who has gone does not ask for the error.
        lookup.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return lookup

    async def _run(self, lookup: _Lookup, host: str) -> list[str]:
        try:
            async with self._bulkhead(_zone(host)):
                lookup.begun = True
                return await self._look_up(host)
        finally:
            self._forget(host, lookup)

    def _forget(self, host: str, lookup: _Lookup) -> None:
        if self._running.get(host) is lookup:
            del self._running[host]


def _zone(host: str) -> str:
    """Return the end of a name, which is about as much of it as has one owner and one set of name servers."""
    return ".".join(host.casefold().rstrip(".").split(".")[-2:])
