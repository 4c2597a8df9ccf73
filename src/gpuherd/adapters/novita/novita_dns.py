"""Resolves Novita's host name, apart from all other names, and keeps the addresses while lookups fail."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass

import structlog
from aiohttp.abc import AbstractResolver, ResolveResult

from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import Lookup, look_up

log = structlog.get_logger()
FRESH_S = 60.0


# If a lookup takes longer, an older answer is used.
PATIENCE_S = 0.5


# Wait after a failed lookup, or after addresses that do not answer.
RETRY_S = 5.0


# A lookup that hangs longer is abandoned, so that a recovered name server can be asked. At most a few are.
HUNG_S = 30.0


HUNG_MAX = 3


@dataclass
class _Answer:
    addresses: list[str]
    found_at: float
    look_again_at: float


@dataclass
class _Running:
    task: asyncio.Task[list[str]]
    begun_at: float


class NovitaResolver(AbstractResolver):
    """Returns the last good addresses if a lookup fails or is late (stale-if-error).

    They never expire: a wrong address ends in a failed connection or a wrong certificate, like no address,
    and a right one keeps the service running.
    """

    def __init__(self, clock: Clock, lookup: Lookup = look_up, *, patience_s: float = PATIENCE_S):
        self._clock = clock
        self._look_up = lookup
        self._patience_s = patience_s
        self._answers: dict[str, _Answer] = {}
        self._running: dict[str, _Running] = {}
        self._hung = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [_result(host, port, address) for address in await self._addresses(host)]

    def doubt(self) -> None:
        """Look up again before the next connection: these addresses do not answer."""
        for answer in self._answers.values():
            # But not for each of many connections that fail at once.
            answer.look_again_at = min(answer.look_again_at, answer.found_at + RETRY_S)

    async def close(self) -> None:
        for running in self._running.values():
            running.task.cancel()

    async def _addresses(self, host: str) -> list[str]:
        known, now_s = self._answers.get(host), self._clock.boottime()
        if known is not None and now_s < known.look_again_at:
            return known.addresses
        running = self._current_lookup(host)
        if known is None:
            return await asyncio.shield(running.task)
        if now_s - running.begun_at < self._patience_s:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    return await asyncio.shield(running.task)
        return known.addresses

    def _current_lookup(self, host: str) -> _Running:
        now_s, running = self._clock.boottime(), self._running.get(host)
        if running is not None and (now_s - running.begun_at < HUNG_S or self._hung >= HUNG_MAX):
            return running
        if running is not None:
            self._hung += 1
            running.task.add_done_callback(self._end_of_hung)
        task = asyncio.create_task(self._run(host))
        task.add_done_callback(lambda it: it.cancelled() or it.exception())
        running = self._running[host] = _Running(task, now_s)
        return running

    async def _run(self, host: str) -> list[str]:
        try:
            addresses = await self._look_up(host)
        except OSError:
            if (known := self._answers.get(host)) is not None:
                known.look_again_at = self._clock.boottime() + RETRY_S
                log.warning("novita.lookup_failed", host=host, served="the addresses of the last good lookup")
            raise
        else:
            now_s = self._clock.boottime()
            self._answers[host] = _Answer(addresses, now_s, now_s + FRESH_S)
            return addresses
        finally:
            running = self._running.get(host)
            if running is not None and running.task is asyncio.current_task():
                del self._running[host]

    def _end_of_hung(self, _task: asyncio.Task[list[str]]) -> None:
        self._hung -= 1


def _result(host: str, port: int, address: str) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
