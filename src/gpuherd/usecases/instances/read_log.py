"""Stream a log of an instance from the cloud. A log that is not followed is bounded in size and time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.machine import LogSource, Phase
from gpuherd.domain.errors import CloudUnavailable, Conflict, MachineGone
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Instance
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.egress_port import (
    EgressFailure,
    EgressStream,
    FailureCategory,
)
from gpuherd.resilience.concurrency import first_of
from gpuherd.usecases.events.stream_events import TooManyStreams, TooManyStreamsOfKey
from gpuherd.usecases.instances.read_instance import find_instance
from gpuherd.usecases.services import Services

# To connect and read the head. A program may write its first line much later.
OPEN_TIMEOUT_S = 10.0
# Without `follow`: a stream does not say where the present ends, so silence does.
PRESENT_BYTES_MAX = 2**20
SILENCE_S = 5.0
# For a program that is never silent.
PRESENT_MAX_S = 20.0
# How often `may_read` is called.
CHECK_S = 1.0
_GONE = frozenset({Phase.REMOVING, Phase.ABSENT})


@dataclass(frozen=True)
class LogLimits:
    """How many logs this process may read at once, and how many of them for one key."""

    streams: int = 200
    streams_of_key: int = 20


@dataclass(frozen=True)
class LogReader:
    """Who reads which log, and for how long."""

    id_or_name: str
    source: LogSource
    follow: bool
    caller: Caller
    # Called every second. False ends the stream, for example after the key was revoked.
    may_read: Callable[[], bool] = lambda: True


class LogStream:
    """An open log. Call `next` until it returns None."""

    def __init__(self, upstream: EgressStream, reader: LogReader, clock: Clock, ended: asyncio.Event):
        self._upstream = upstream
        self._reader = reader
        self._clock = clock
        self._ended = ended
        self._left = PRESENT_BYTES_MAX
        self._begun_s = self._heard_s = clock.monotonic()

    async def next(self) -> bytes | None:
        """Return the next bytes; None at the end. `CloudUnavailable` if the log breaks off."""
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
        """Return how long to wait for more; 0 or less if the reader has had enough."""
        if self._reader.follow:
            return CHECK_S
        if not self._left:
            return 0.0
        now_s = self._clock.monotonic()
        return min(CHECK_S, self._heard_s + SILENCE_S - now_s, self._begun_s + PRESENT_MAX_S - now_s)

    async def _read_for(self, wait_s: float) -> bytes | None:
        """Return what came in that time; None if nothing did."""
        try:
            return await first_of(self._upstream.read(), _wait_for(self._ended), self._clock.sleep(wait_s))
        except EgressFailure as failure:
            raise _unreachable(failure) from None


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


@dataclass
class LogStreams:
    """The logs that are read in this process now."""

    limits: LogLimits = field(default_factory=LogLimits)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _by_key: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return self._by_key.total()

    @contextmanager
    def take_place(self, key_id: str) -> Iterator[None]:
        """Count one more stream of this key. `TooManyStreams` if there is no place."""
        if self.ended.is_set():
            raise TooManyStreams("gpuherd is about to end here; come back in a moment")
        most, most_of_key = self.limits.streams, self.limits.streams_of_key
        if self.count >= most:
            raise TooManyStreams(f"no more than {most} logs can be read here at once")
        if self._by_key[key_id] >= most_of_key:
            raise TooManyStreamsOfKey(f"a key can read {most_of_key} logs at once")
        self._by_key[key_id] += 1
        try:
            yield
        finally:
            self._by_key -= Counter({key_id: 1})

    def close(self) -> None:
        """End every stream and open no more."""
        self.ended.set()


@asynccontextmanager
async def read_log(services: Services, reader: LogReader) -> AsyncIterator[LogStream]:
    """Open a log while the context lasts. `Conflict` or `CloudUnavailable` if there is none."""
    streams = services.log_streams
    with streams.take_place(reader.caller.key_id):
        address = await _address(services, reader)
        try:
            async with services.log_egress.stream(address, headers={}, timeout_s=OPEN_TIMEOUT_S) as upstream:
                _check_reply(upstream)
                yield LogStream(upstream, reader, services.clock, streams.ended)
        except EgressFailure as failure:
            raise _unreachable(failure) from None


async def _address(services: Services, reader: LogReader) -> str:
    instance = await find_instance(services, reader.id_or_name, reader.caller)
    if instance.cloud_id is None or instance.status in TERMINAL_STATUSES:
        raise _no_machine(instance)
    cloud = services.browse_cloud or services.cloud
    try:
        addresses = await cloud.get_log_addresses(instance.cloud_id)
    except MachineGone:
        raise _no_machine(instance) from None
    if addresses.phase in _GONE:
        raise _no_machine(instance)
    if address := addresses.of(reader.source):
        return address
    if addresses.phase in (Phase.STOPPED, Phase.STOPPING):
        raise Conflict(
            f"{instance.name} is stopped, and the logs of a stopped machine cannot be read; start it first",
            code="INSTANCE_NOT_RUNNING",
        )
    if reader.source is LogSource.INSTANCE and addresses.system:
        words = "its program has no log yet; until then source=system tells how the machine boots"
    else:
        words = "the cloud names no address for this log; it does so when the machine boots or runs"
    raise Conflict(f"{instance.name}: {words}", code="LOG_NOT_AVAILABLE")


def _no_machine(instance: Instance) -> Conflict:
    is_over = instance.status in TERMINAL_STATUSES or instance.cloud_id is not None
    words = "has no machine any more" if is_over else "has no machine yet"
    return Conflict(f"{instance.name} {words}, so there is no log", code="NO_MACHINE")


def _check_reply(upstream: EgressStream) -> None:
    """Refuse a reply that is not a log. Its text is not shown: it may come from anywhere."""
    if upstream.status != 200:
        raise CloudUnavailable(f"the log's address answered HTTP {upstream.status}", code="LOG_UNREACHABLE")
    if upstream.headers.get("content-encoding", "identity") != "identity":
        raise CloudUnavailable("the log's address answered with packed bytes", code="LOG_UNREACHABLE")


def _unreachable(failure: EgressFailure) -> CloudUnavailable:
    if failure.category is FailureCategory.BLOCKED_TARGET:
        words = "the cloud names an address for the log that gpuherd does not go to"
        return CloudUnavailable(f"{words}: {failure.detail}", code="LOG_ADDRESS_BLOCKED")
    return CloudUnavailable(f"the log cannot be read: {failure.detail}", code="LOG_UNREACHABLE")
