"""Resolves host names in few threads, so that a dead name server delays only the names that it serves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import Bulkhead, run_in_daemon_thread

log = structlog.get_logger()

# Threads at a time. A lookup that nobody waits for any more counts too: it cannot be stopped.
LOOKUPS_MAX = 16
LOOKUPS_PER_ZONE = 4

# Longer than a healthy lookup takes, and short enough to leave the caller some of its own time.
LOOKUP_TIMEOUT_S = 10.0

# A lookup that runs for longer is left behind, so that a name server that is back is asked anew.
HUNG_S = 30.0

# How long a kept answer is served without a new lookup.
FRESH_S = 60.0

# After that, a caller with a kept answer waits for a new lookup for so long.
PATIENCE_S = 0.5

# The next lookup after one that failed, or that found addresses where nobody answers.
RETRY_S = 5.0

# Returns every address of a name, or raises `OSError`.
Lookup = Callable[[str], Awaitable[list[str]]]


async def look_up(host: str) -> list[str]:
    """Ask getaddrinfo: every A and AAAA answer, each once, in the system's order of preference."""
    try:
        return await run_in_daemon_thread(lambda: _addresses_of(host), "gpuherd-lookup")
    except UnicodeError as error:
        raise OSError("the name cannot be written in DNS") from error


def _addresses_of(host: str) -> list[str]:
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


@dataclass(eq=False)
class _Lookup:
    task: asyncio.Task[list[str]] = field(init=False)
    asked_at: float
    waiters: int = 0
    # None while the lookup waits for a thread. It holds the thread until the system has answered.
    begun_at: float | None = None


@dataclass
class _Answer:
    addresses: list[str]
    found_at: float
    look_again_at: float


class Dns:
    """Callers that ask for one name at the same time share one lookup.

    With `keeps_answers` an answer serves for a minute, and for longer when a new lookup fails or is late
    (stale-if-error). A kept answer has no age limit: a wrong address ends in a failed connection or in a
    certificate that does not fit, as no address does, and a right one keeps the service going.
    """

    def __init__(
        self,
        clock: Clock,
        lookup: Lookup = look_up,
        *,
        timeout_s: float = LOOKUP_TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        keeps_answers: bool = False,
    ):
        self._clock = clock
        self._look_up = lookup
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._keeps_answers = keeps_answers
        self._threads = Bulkhead(LOOKUPS_MAX, LOOKUPS_PER_ZONE)
        self._running: dict[str, _Lookup] = {}
        self._answers: dict[str, _Answer] = {}

    async def resolve(self, host: str) -> list[str]:
        """Return the addresses of a name. Raise `OSError` if there is none, or no answer in time."""
        known, now_s = self._answers.get(host), self._clock.boottime()
        if known is not None and now_s < known.look_again_at:
            return known.addresses
        lookup = self._current_lookup(host)
        if known is None:
            return await self._wait_for(host, lookup, self._timeout_s)
        if now_s - lookup.asked_at >= self._patience_s:
            return known.addresses
        try:
            return await self._wait_for(host, lookup, self._patience_s)
        except OSError:
            return known.addresses

    def distrust_answers(self) -> None:
        """Look again before the next connection: nobody answers at the kept addresses."""
        for answer in self._answers.values():
            # But not for each of many connections that fail at once.
            answer.look_again_at = min(answer.look_again_at, answer.found_at + RETRY_S)

    async def close(self) -> None:
        for lookup in self._running.values():
            lookup.task.cancel()

    def _current_lookup(self, host: str) -> _Lookup:
        now_s, running = self._clock.boottime(), self._running.get(host)
        is_hung = running is not None and running.begun_at is not None and now_s - running.begun_at >= HUNG_S
        if running is not None and not is_hung:
            return running
        lookup = self._running[host] = _Lookup(now_s)
        lookup.task = asyncio.create_task(self._run(lookup, host))
        # A caller that has left does not ask for the error.
        lookup.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return lookup

    async def _wait_for(self, host: str, lookup: _Lookup, timeout_s: float) -> list[str]:
        lookup.waiters += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(lookup.task)
        except TimeoutError:
            raise OSError("the name server does not answer") from None
        finally:
            lookup.waiters -= 1
            if not lookup.waiters and lookup.begun_at is None:
                # Still in the queue for a thread: nobody needs it to get there, and nobody may join it now.
                lookup.task.cancel()
                self._forget(host, lookup)

    async def _run(self, lookup: _Lookup, host: str) -> list[str]:
        try:
            async with self._threads(_zone(host)):
                lookup.begun_at = self._clock.boottime()
                addresses = await self._look_up(host)
        except OSError:
            if (known := self._answers.get(host)) is not None:
                known.look_again_at = self._clock.boottime() + RETRY_S
                log.warning("dns.lookup_failed", host=host, served="the addresses of the last good lookup")
            raise
        finally:
            self._forget(host, lookup)
        if self._keeps_answers:
            now_s = self._clock.boottime()
            self._answers[host] = _Answer(addresses, now_s, now_s + FRESH_S)
        return addresses

    def _forget(self, host: str, lookup: _Lookup) -> None:
        if self._running.get(host) is lookup:
            del self._running[host]


def _zone(host: str) -> str:
    """Return the end of a name, which is about as much of it as has one owner and one set of name servers."""
    return ".".join(host.casefold().rstrip(".").split(".")[-2:])
