"""Read a log of an instance as the cloud streams it; if it is not followed, bounded in size and time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.machine import LogSource, Phase
from gpuherd.domain.errors import CloudUnavailable, Conflict, MachineGone
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Instance
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.egress_port import (
    EgressFailure,
    EgressStream,
    EgressStreams,
    FailureCategory,
)
from gpuherd.resilience.concurrency import first_of
from gpuherd.usecases.events.stream_events import TooManyStreams, TooManyStreamsOfKey
from gpuherd.usecases.instances.read_instance import FindInstance

# For the way to the log and its first line; a program that writes nothing yet is no reason to fail.
OPEN_TIMEOUT_S = 10.0


# Without `follow`: what there is now. A stream does not say where that ends, so silence does.
PRESENT_BYTES_MAX = 2**20


SILENCE_S = 5.0


# For a program that is never silent.
PRESENT_MAX_S = 20.0


# How often it is asked whether the reader may go on.
CHECK_S = 1.0


_GONE = frozenset({Phase.REMOVING, Phase.ABSENT})


@dataclass(frozen=True)
class LogLimits:
    """How many logs may be read at once in this process, and with one key."""

    streams: int = 200
    streams_of_key: int = 20


@dataclass(frozen=True)
class LogReader:
    """Who reads which log, and for how long."""

    word: str
    source: LogSource
    follow: bool
    caller: Caller
    # Asked every second or so: whether it may go on.
    may_read: Callable[[], bool] = lambda: True


class LogStream:
    """A log that is being read. Call `next` again and again."""

    def __init__(self, upstream: EgressStream, reader: LogReader, clock: Clock, ended: asyncio.Event):
        self._upstream = upstream
        self._reader = reader
        self._clock = clock
        self._ended = ended
        self._left = PRESENT_BYTES_MAX
        self._begun_s = self._heard_s = clock.monotonic()

    async def next(self) -> bytes | None:
        """Return what comes next as soon as it does; None at the end, `CloudUnavailable` at a break."""
        while not self._ended.is_set() and self._reader.may_read() and (wait_s := self._wait_s()) > 0:
            chunk = await self._read_for(wait_s)
            if chunk is None:
                continue
            self._heard_s = self._clock.monotonic()
            if not self._reader.follow:
                chunk = chunk[: self._left]
                self._left -= len(chunk)
            return chunk or None
        return None

    def _wait_s(self) -> float:
        """Return how long to wait for more; nothing when it was enough."""
        if self._reader.follow:
            return CHECK_S
        if not self._left:
            return 0.0
        now_s = self._clock.monotonic()
        return min(CHECK_S, self._heard_s + SILENCE_S - now_s, self._begun_s + PRESENT_MAX_S - now_s)

    async def _read_for(self, wait_s: float) -> bytes | None:
        """Return what has come in that time; None if nothing has."""
        try:
            return await first_of(self._upstream.read(), _set(self._ended), self._clock.sleep(wait_s))
        except EgressFailure as failure:
            raise _unreachable(failure) from None


@dataclass
class ReadLog:
    """The use case. One for each process: it knows what is being read."""

    find: FindInstance
    cloud: Cloud
    egress: EgressStreams
    clock: Clock
    limits: LogLimits = field(default_factory=LogLimits)
    _streams_by_key: Counter[str] = field(default_factory=Counter)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def streams(self) -> int:
        """How many are open."""
        return self._streams_by_key.total()

    @asynccontextmanager
    async def open(self, reader: LogReader) -> AsyncIterator[LogStream]:
        """Have a log for as long as the context lasts; `Conflict` or `CloudUnavailable` if there is none."""
        key_id = reader.caller.key_id
        self._check_room(key_id)
        self._streams_by_key[key_id] += 1
        try:
            address = await self._address(reader)
            try:
                async with self.egress.stream(address, headers={}, timeout_s=OPEN_TIMEOUT_S) as upstream:
                    _check_reply(upstream)
                    yield LogStream(upstream, reader, self.clock, self._ended)
            except EgressFailure as failure:
                raise _unreachable(failure) from None
        finally:
            self._streams_by_key -= Counter({key_id: 1})

    def close(self) -> None:
        """End every stream and open none any more."""
        self._ended.set()

    def _check_room(self, key_id: str) -> None:
        if self._ended.is_set():
            raise TooManyStreams("gpuherd is about to end here; come back in a moment")
        most, most_of_key = self.limits.streams, self.limits.streams_of_key
        if self.streams >= most:
            raise TooManyStreams(f"no more than {most} logs can be read here at once")
        if self._streams_by_key[key_id] >= most_of_key:
            raise TooManyStreamsOfKey(f"a key can read {most_of_key} logs at once")

    async def _address(self, reader: LogReader) -> str:
        it = await self.find(reader.word, reader.caller)
        if it.cloud_id is None or it.status in TERMINAL_STATUSES:
            raise _no_machine(it)
        try:
            addresses = await self.cloud.get_log_addresses(it.cloud_id)
        except MachineGone:
            raise _no_machine(it) from None
        if addresses.phase in _GONE:
            raise _no_machine(it)
        if address := addresses.of(reader.source):
            return address
        if addresses.phase in (Phase.STOPPED, Phase.STOPPING):
            raise Conflict(
                f"{it.name} is stopped, and the logs of a stopped machine cannot be read; start it first",
                code="INSTANCE_NOT_RUNNING",
            )
        if reader.source is LogSource.INSTANCE and addresses.system:
            words = "its program has no log yet; until then source=system tells how the machine boots"
        else:
            words = "the cloud names no address for this log; it does so when the machine boots or runs"
        raise Conflict(f"{it.name}: {words}", code="LOG_NOT_AVAILABLE")


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _no_machine(it: Instance) -> Conflict:
    is_over = it.status in TERMINAL_STATUSES or it.cloud_id is not None
    words = "has no machine any more" if is_over else "has no machine yet"
    return Conflict(f"{it.name} {words}, so there is no log", code="NO_MACHINE")


def _check_reply(upstream: EgressStream) -> None:
    """Refuse what is not a log; whatever such a reply says is not for people."""
    if upstream.status != 200:
        raise CloudUnavailable(f"the log's address answered HTTP {upstream.status}", code="LOG_UNREACHABLE")
    if upstream.headers.get("content-encoding", "identity") != "identity":
        raise CloudUnavailable("the log's address answered with packed bytes", code="LOG_UNREACHABLE")


def _unreachable(failure: EgressFailure) -> CloudUnavailable:
    if failure.category is FailureCategory.BLOCKED_TARGET:
        words = "the cloud names an address for the log that gpuherd does not go to"
        return CloudUnavailable(f"{words}: {failure.detail}", code="LOG_ADDRESS_BLOCKED")
    return CloudUnavailable(f"the log cannot be read: {failure.detail}", code="LOG_UNREACHABLE")
