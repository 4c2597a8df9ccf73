"""Streams of events: live, resumed, and history."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from gpuherd.domain.errors import GpuherdError, StoreUnavailable
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.event_port import EventFilter, EventLog, LoggedEvent
from gpuherd.usecases.events.change_hub import ChangeHub, Subscription
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.webhook_view import event_frame

CATCH_UP_PAGE_SIZE = 200
HEARTBEAT = b": still here\n\n"


# For scripts in a browser, which do not see comments. It has no id, so the last event id stays.
HEARTBEAT_EVENT = b"event: keep-alive\ndata: {}\n\n"


@dataclass(frozen=True)
class StreamLimits:
    """How many streams may be open in this process, and how much may wait in one of them."""

    streams: int = 500
    streams_of_key: int = 250
    # A stream with more pending events than this ends; its reader comes back for the rest.
    pending: int = 2000


@dataclass(frozen=True)
class Reader:
    """The reader of a stream, and which events it wants."""

    key_id: str
    wanted: EventFilter
    # The last event that the reader has; None to begin now.
    last: int | None = None
    # Returns True while the reader may read; asked every second.
    may_read: Callable[[], bool] = lambda: True
    # The session of a reader without a key. The stream ends when the hub names this session.
    session_id: str | None = None
    # What a stream sends when there is nothing else.
    heartbeat: bytes = HEARTBEAT


@dataclass(frozen=True)
class EncodedEvent:
    """An event that was dispatched, with its bytes."""

    it: LoggedEvent
    frame: bytes


class Feed(Protocol):
    """What a stream needs of the feed."""

    limits: StreamLimits

    async def ready(self) -> int:
        """Wait until the feed has a position; return up to which position events were dispatched."""
        ...

    def join(self, stream: EventStream) -> bool:
        """Push all events behind the position of the stream; return False if some are no longer kept."""
        ...


class EventStream:
    """One open stream. The feed makes streams; the reader calls `next` until it returns None."""

    def __init__(self, reader: Reader, log: EventLog, feed: Feed, now_s: float):
        self.reader = reader
        self.position: int | None = None
        self.ended = False
        # When the stream last had something to send.
        self.active_s = now_s
        self._log = log
        self._feed = feed
        self._joined = False
        self._pending: deque[bytes] = deque()
        self._rewinds = 0
        self._idle = False
        self._wakeup = asyncio.Event()

    async def begin(self) -> int:
        """Take a position in the log, and return it. The stream sends all later events."""
        self.position = await self._begin()
        return self.position

    async def next(self) -> bytes | None:
        """Return the bytes to send next, as soon as there are some; None when the stream has ended."""
        while not self.ended:
            if not self._joined:
                try:
                    chunk = await self._catch_up()
                except StoreUnavailable:
                    # For the client, a reconnect is easier than half a reply.
                    self.end()
                    return None
                if chunk:
                    return chunk
                continue
            if self._pending:
                chunk = b"".join(self._pending)
                self._pending.clear()
                return chunk
            if self._idle:
                self._idle = False
                return self.reader.heartbeat
            self._wakeup.clear()
            await self._wakeup.wait()
        return None

    def push(self, encoded: Iterable[EncodedEvent], now_s: float) -> None:
        """Add new events; end the stream if more are pending than the limit allows."""
        wants, position = self.reader.wanted.wants, self.position or 0
        fresh = [one.frame for one in encoded if one.it.position > position and wants(one.it)]
        if not fresh:
            return
        self.active_s = now_s
        self._pending.extend(fresh)
        if len(self._pending) > self._feed.limits.pending:
            # The client has what was sent, and asks for the rest by the last id that it got.
            self._pending.clear()
            self.end()
        self._wakeup.set()

    def rewind(self, position: int) -> None:
        """Go back to the last position that the log still has: the store has lost the events behind it."""
        self._rewinds += 1
        if self.position is not None:
            self.position = min(self.position, position)

    def heartbeat(self, now_s: float) -> None:
        """Send a heartbeat."""
        self.active_s = now_s
        self._idle = True
        self._wakeup.set()

    def end(self) -> None:
        """End the stream after the bytes that are being sent now."""
        self.ended = True
        self._wakeup.set()

    async def _catch_up(self) -> bytes:
        position = await self.begin() if self.position is None else self.position
        if self._feed.join(self):
            self._joined = True
            return b""
        rewinds = self._rewinds
        page = await self._log.after(position, CATCH_UP_PAGE_SIZE, self.reader.wanted)
        if rewinds != self._rewinds:
            return b""
        self.position = page.position
        return b"".join(map(event_frame, page.events))

    async def _begin(self) -> int:
        handed_out = await self._feed.ready()
        if self.reader.last is None:
            return handed_out
        # A higher id than the log has was sent before a backup was restored, or was pruned.
        return min(self.reader.last, await self._log.highest())


log = structlog.get_logger()
RETRY_AFTER_S = 5.0


# A stream can join this many past events without reading the store.
RECENT_EVENTS_MAX = 1000


READ_BATCH = 500


# Changes that come together are read together.
DEBOUNCE_S = 0.02


# The hub reports every change; the poll finds changes that the hub may have missed.
POLL_INTERVAL_S = 1.0


# While an event is held up by another that is just being written.
GAP_RETRY_S = 0.05


STORE_RETRY_S = 1.0
STREAM_CHECK_S = 1.0
HEARTBEAT_S = 15.0


class TooManyStreams(GpuherdError):
    """This server has as many open streams as it allows."""

    code = "TOO_MANY_STREAMS"
    retry_after_s = RETRY_AFTER_S


class TooManyStreamsOfKey(GpuherdError):
    """This key has as many open streams as it may."""

    code = "TOO_MANY_STREAMS"
    retry_after_s = RETRY_AFTER_S


class EventFeed:
    """Dispatches the events of the log to all streams of this process."""

    def __init__(self, events: EventLog, hub: ChangeHub, clock: Clock, limits: StreamLimits | None = None):
        self.limits = limits or StreamLimits()
        self._log = events
        self._clock = clock
        self._streams: set[EventStream] = set()
        self._streams_by_key: Counter[str] = Counter()
        self._streams_by_session: dict[str, set[EventStream]] = {}
        self._joined: set[EventStream] = set()
        self._recent: deque[EncodedEvent] = deque(maxlen=RECENT_EVENTS_MAX)
        # Events up to `position` are dispatched; events behind `floor` are kept.
        self._position = self._floor = 0
        # How often the log has lost its end, and how many of these losses were handled.
        self._losses = self._rewound = 0
        self._ready = asyncio.Event()
        self._wakeup = Subscription(clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False
        hub.add_listener(self._on_change, self._on_missed_changes)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    @asynccontextmanager
    async def open(self, reader: Reader) -> AsyncIterator[EventStream]:
        """Open a stream while the context lasts."""
        self._check_room(reader.key_id)
        stream = EventStream(reader, self._log, self, self._clock.monotonic())
        self._streams.add(stream)
        self._streams_by_key[reader.key_id] += 1
        if reader.session_id is not None:
            self._streams_by_session.setdefault(reader.session_id, set()).add(stream)
        if not self._tasks:
            self._start()
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            self._joined.discard(stream)
            self._streams_by_key -= Counter({reader.key_id: 1})
            self._leave_session(stream)
            if not self._streams:
                self._stop()

    def close(self) -> None:
        """End all streams and reject new ones."""
        self._closed = True
        for stream in self._streams:
            stream.end()

    def forget(self) -> None:
        """Go back to the last position that the log still has, because the store has lost events."""
        self._losses += 1
        self._wake()

    async def ready(self) -> int:
        await self._ready.wait()
        return self._position

    def join(self, stream: EventStream) -> bool:
        position = stream.position
        if not self._ready.is_set() or position is None or position < self._floor:
            return False
        stream.push(self._recent, self._clock.monotonic())
        self._joined.add(stream)
        return True

    def _check_room(self, key_id: str) -> None:
        if self._closed:
            raise TooManyStreams("gpuherd is about to end here; come back in a moment")
        most, most_of_key = self.limits.streams, self.limits.streams_of_key
        if len(self._streams) >= most:
            raise TooManyStreams(f"no more than {most} streams of events can be open here at once")
        if self._streams_by_key[key_id] >= most_of_key:
            raise TooManyStreamsOfKey(f"a key can have {most_of_key} streams of events open at once")

    def _start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._dispatch_loop(), name="event-feed"),
            asyncio.create_task(self._check_streams(), name="event-streams"),
        ]

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._ready.clear()
        self._recent.clear()

    def _leave_session(self, stream: EventStream) -> None:
        session_id = stream.reader.session_id
        if session_id is not None:
            self._streams_by_session[session_id].discard(stream)
            if not self._streams_by_session[session_id]:
                del self._streams_by_session[session_id]

    def _on_change(self, changed: Sequence[str]) -> None:
        for word in changed:
            if word in self._streams_by_session:
                self._end_session(word)
        if changed:
            self._wake()

    def _on_missed_changes(self) -> None:
        # Which sessions have ended is unknown. A reader whose session goes on reconnects.
        for session_id in self._streams_by_session:
            self._end_session(session_id)
        self._wake()

    def _end_session(self, session_id: str) -> None:
        for stream in self._streams_by_session[session_id]:
            stream.end()

    def _wake(self) -> None:
        if self._tasks:
            self._wakeup.notify()

    async def _dispatch_loop(self) -> None:
        while True:
            try:
                wait_s = await self._dispatch_new()
            except Exception as error:
                # The streams are open and must not wait for ever, so the loop goes on after any error.
                log.warning("events.read_failed", error=str(error))
                wait_s = STORE_RETRY_S
            if wait_s and await self._wakeup.wait(wait_s):
                await self._clock.sleep(DEBOUNCE_S)

    async def _dispatch_new(self) -> float:
        """Dispatch new events; return how many seconds to wait for more if nothing wakes the feed."""
        if not self._ready.is_set():
            self._rewound = self._losses
            self._position = self._floor = await self._log.newest()
            self._ready.set()
        losses = self._losses
        if self._rewound != losses:
            await self._rewind()
            self._rewound = losses
        page = await self._log.after(self._position, READ_BATCH)
        if self._losses != losses:
            # The page may be of the lost history or of the present one.
            return 0.0
        now_s = self._clock.monotonic()
        encoded = [EncodedEvent(it, event_frame(it)) for it in page.events]
        for one in encoded:
            if len(self._recent) == RECENT_EVENTS_MAX:
                self._floor = self._recent[0].it.position
            self._recent.append(one)
        self._position = page.position
        if encoded:
            for stream in self._joined:
                stream.push(encoded, now_s)
        if page.more:
            return 0.0
        return GAP_RETRY_S if page.held_up else POLL_INTERVAL_S

    async def _rewind(self) -> None:
        """Find the last dispatched event that the log still has; all events behind it are dispatched again.

        Positions are used a second time, so two events are equal only if all fields are.
        """
        told = {one.it.position: one.it.event for one in self._recent}
        last = min(self._floor, await self._log.highest())
        page = await self._log.after(last, RECENT_EVENTS_MAX)
        for it in page.events:
            if told.get(it.position) != it.event:
                break
            last = it.position
        self._position, self._floor = last, min(self._floor, last)
        self._recent = deque((it for it in self._recent if it.it.position <= last), RECENT_EVENTS_MAX)
        for stream in self._streams:
            stream.rewind(last)

    async def _check_streams(self) -> None:
        while True:
            await self._clock.sleep(STREAM_CHECK_S)
            now_s = self._clock.monotonic()
            for stream in self._streams:
                if not stream.reader.may_read():
                    stream.end()
                elif now_s - stream.active_s >= HEARTBEAT_S:
                    stream.heartbeat(now_s)


@dataclass(frozen=True)
class HistoryPage:
    """Some events, the cursor of the next page, and the position from which a stream may resume."""

    events: Sequence[LoggedEvent]
    next_cursor: int | None
    last: int


async def read_events_since(
    services: Services, position: int, limit: int, wanted: EventFilter
) -> HistoryPage:
    """Return the events after a position, oldest first."""
    page = await services.stores.events.after(
        min(position, await services.stores.events.highest()), limit, wanted
    )
    return HistoryPage(page.events, None, page.position)


async def read_events_before(
    services: Services, position: int | None, limit: int, wanted: EventFilter
) -> HistoryPage:
    """Return the events before a position, or the latest ones, newest first."""
    # Read first: a client that resumes from here misses nothing.
    last = await services.stores.events.newest()
    older = await services.stores.events.before(last + 1 if position is None else position, limit + 1, wanted)
    found = older[:limit]
    return HistoryPage(found, found[-1].position if len(older) > limit else None, last)
