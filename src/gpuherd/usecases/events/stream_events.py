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
from gpuherd.usecases.views.service_view import event_frame

CATCH_UP_PAGE_SIZE = 200
HEARTBEAT = b": still here\n\n"


# For scripts in a browser, which are not told of comments. Without an id, so that the last one stays.
HEARTBEAT_EVENT = b"event: keep-alive\ndata: {}\n\n"


@dataclass(frozen=True)
class StreamLimits:
    """How many streams may be open in this process, and how much may wait in one of them."""

    streams: int = 500
    streams_of_key: int = 250
    # Of one stream whose reader is slow; after that it is ended, and its reader comes back for the rest.
    pending: int = 2000


@dataclass(frozen=True)
class Reader:
    """Who reads, and what of."""

    key_id: str
    wanted: EventFilter
    # The last event that it has; None to begin now.
    last: int | None = None
    # Asked every second or so: whether it may go on.
    may_read: Callable[[], bool] = lambda: True
    # With which it reads, if not with a key: the stream ends when the hub tells of it.
    session_id: str | None = None
    # What it is sent when there is nothing else.
    heartbeat: bytes = HEARTBEAT


@dataclass(frozen=True)
class EncodedEvent:
    """An event that was handed out, with its bytes."""

    it: LoggedEvent
    frame: bytes


class Feed(Protocol):
    """What a stream needs of the feed."""

    limits: StreamLimits

    async def ready(self) -> int:
        """Return the position up to which events were handed out, as soon as there is one."""
        ...

    def join(self, stream: EventStream) -> bool:
        """Hand out everything behind the stream's position from now on; False if some of it is gone."""
        ...


class EventStream:
    """Made by the feed. Call `next` again and again."""

    def __init__(self, reader: Reader, log: EventLog, feed: Feed, now_s: float):
        self.reader = reader
        self.position: int | None = None
        self.ended = False
        # When it last had something to send.
        self.active_s = now_s
        self._log = log
        self._feed = feed
        self._joined = False
        self._pending: deque[bytes] = deque()
        self._rewinds = 0
        self._idle = False
        self._wakeup = asyncio.Event()

    async def begin(self) -> int:
        """Take a position in the log, and return it: whatever happens from now on is told."""
        self.position = await self._begin()
        return self.position

    async def next(self) -> bytes | None:
        """Return the bytes to send next, as soon as there are some; None when the stream has ended."""
        while not self.ended:
            if not self._joined:
                try:
                    chunk = await self._catch_up()
                except StoreUnavailable:
                    # To come back later is easier for the client than half a reply.
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
        """Take what has just happened; end if that is more than may wait."""
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
        """Go back to where the log still is what it was: what it told behind that, it has lost."""
        self._rewinds += 1
        if self.position is not None:
            self.position = min(self.position, position)

    def heartbeat(self, now_s: float) -> None:
        """Send a sign of life, if there is nothing else."""
        self.active_s = now_s
        self._idle = True
        self._wakeup.set()

    def end(self) -> None:
        """End after what is being sent now."""
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
        # A higher one than there is was told before a backup was put in place, or has been forgotten.
        return min(self.reader.last, await self._log.highest())


log = structlog.get_logger()
RETRY_AFTER_S = 5.0


# How much of the past a stream can join without reading it from the store.
RECENT_EVENTS_MAX = 1000


READ_BATCH = 500


# Changes that come together are read together.
DEBOUNCE_S = 0.02


# The hub tells of every change; this is for what it might not have heard of.
POLL_INTERVAL_S = 1.0


# After a failure of the store, and while an event is held up by another that is just being written.
GAP_RETRY_S = 0.05


STORE_RETRY_S = 1.0
STREAM_CHECK_S = 1.0
HEARTBEAT_S = 15.0


class TooManyStreams(GpuherdError):
    """This server has as many streams open as it will."""

    code = "TOO_MANY_STREAMS"
    retry_after_s = RETRY_AFTER_S


class TooManyStreamsOfKey(GpuherdError):
    """This key has as many streams open as it may."""

    code = "TOO_MANY_STREAMS"
    retry_after_s = RETRY_AFTER_S


class EventFeed:
    """One for each process."""

    def __init__(self, events: EventLog, hub: ChangeHub, clock: Clock, limits: StreamLimits | None = None):
        self.limits = limits or StreamLimits()
        self._log = events
        self._clock = clock
        self._streams: set[EventStream] = set()
        self._streams_by_key: Counter[str] = Counter()
        self._streams_by_session: dict[str, set[EventStream]] = {}
        self._joined: set[EventStream] = set()
        self._recent: deque[EncodedEvent] = deque(maxlen=RECENT_EVENTS_MAX)
        # Handed out is everything up to `position`; kept is everything behind `floor`.
        self._position = self._floor = 0
        # How often the log has lost its end, and after how many of these we went back.
        self._losses = self._rewound = 0
        self._ready = asyncio.Event()
        self._wakeup = Subscription(clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False
        hub.add_listener(self._on_change, self._on_missed_changes)

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    @asynccontextmanager
    async def open(self, reader: Reader) -> AsyncIterator[EventStream]:
        """Have a stream for as long as the context lasts."""
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
        """End every stream and open none any more."""
        self._closed = True
        for stream in self._streams:
            stream.end()

    def forget(self) -> None:
        """Go back to where the log still is what it was, because it has lost its end."""
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
        # Nobody has told us which are over; whoever may still read comes back, and is asked again.
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
                # Whatever it is, the streams are open, and must not wait for ever for events that come.
                log.warning("events.read_failed", error=str(error))
                wait_s = STORE_RETRY_S
            if wait_s and await self._wakeup.wait(wait_s):
                await self._clock.sleep(DEBOUNCE_S)

    async def _dispatch_new(self) -> float:
        """Hand out what is new; return how long to wait for more if nothing wakes it."""
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
            # What was read may be of either of two histories.
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
        """Find the last event that was told and is still there; all behind it has to be told.

        Numbers are given out a second time, so an event is the same only if all of it is.
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
