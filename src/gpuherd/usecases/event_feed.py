"""The feed: reads what has happened once for this process, and hands it to every open stream.

While nobody listens it does nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import GpuherdError
from gpuherd.ports.events import EventLog
from gpuherd.usecases.change_hub import ChangeHub, Subscription
from gpuherd.usecases.describe_events import event_frame
from gpuherd.usecases.event_stream import EventStream, Reader, Told

log = structlog.get_logger()

STREAMS_MAX = 500
STREAMS_OF_A_KEY_MAX = 250
RETRY_AFTER_S = 5.0
# How much of the past a stream can join without reading it from the store.
KEPT = 1000
EVENTS_AT_ONCE = 500
# Changes that come together are read together.
GATHER_S = 0.02
# The hub tells of every change; this is for what it might not have heard of.
LOOK_AGAIN_S = 1.0
# After a failure of the store, and while an event is held up by another that is just being written.
SOON_S = 0.05
LATER_S = 1.0
CHECK_S = 1.0
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

    def __init__(self, events: EventLog, hub: ChangeHub, clock: Clock):
        self._log = events
        self._clock = clock
        self._streams: set[EventStream] = set()
        self._of_key: Counter[str] = Counter()
        self._of_session: dict[str, set[EventStream]] = {}
        self._joined: set[EventStream] = set()
        self._recent: deque[Told] = deque(maxlen=KEPT)
        # Handed out is everything up to `position`; kept is everything behind `floor`.
        self._position = self._floor = 0
        self._ready = asyncio.Event()
        self._bell = Subscription(clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False
        hub.add_listener(self._rang, self._missed)

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
        self._of_key[reader.key_id] += 1
        if reader.session_id is not None:
            self._of_session.setdefault(reader.session_id, set()).add(stream)
        if not self._tasks:
            self._start()
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            self._joined.discard(stream)
            self._of_key -= Counter({reader.key_id: 1})
            self._leave_session(stream)
            if not self._streams:
                self._stop()

    def close(self) -> None:
        """End every stream and open none any more."""
        self._closed = True
        for stream in self._streams:
            stream.end()

    async def ready(self) -> int:
        await self._ready.wait()
        return self._position

    def join(self, stream: EventStream) -> bool:
        position = stream.position
        if not self._ready.is_set() or position is None or position < self._floor:
            return False
        stream.offer(self._recent, self._clock.monotonic())
        self._joined.add(stream)
        return True

    def _check_room(self, key_id: str) -> None:
        if self._closed:
            raise TooManyStreams("gpuherd is about to end here; come back in a moment")
        if len(self._streams) >= STREAMS_MAX:
            raise TooManyStreams(f"no more than {STREAMS_MAX} streams of events can be open here at once")
        if self._of_key[key_id] >= STREAMS_OF_A_KEY_MAX:
            raise TooManyStreamsOfKey(f"a key can have {STREAMS_OF_A_KEY_MAX} streams of events open at once")

    def _start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._hand_out(), name="event-feed"),
            asyncio.create_task(self._look_after_streams(), name="event-streams"),
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
            self._of_session[session_id].discard(stream)
            if not self._of_session[session_id]:
                del self._of_session[session_id]

    def _rang(self, changed: Sequence[str]) -> None:
        for word in changed:
            if word in self._of_session:
                self._end_session(word)
        if changed:
            self._ring()

    def _missed(self) -> None:
        # Nobody has told us which are over; whoever may still read comes back, and is asked again.
        for session_id in self._of_session:
            self._end_session(session_id)
        self._ring()

    def _end_session(self, session_id: str) -> None:
        for stream in self._of_session[session_id]:
            stream.end()

    def _ring(self) -> None:
        if self._tasks:
            self._bell.ring()

    async def _hand_out(self) -> None:
        while True:
            try:
                wait_s = await self._read_on()
            except Exception as error:
                # Whatever it is, the streams are open, and must not wait for ever for events that come.
                log.warning("events.not_read", error=str(error))
                wait_s = LATER_S
            if wait_s and await self._bell.wait(wait_s):
                await self._clock.sleep(GATHER_S)

    async def _read_on(self) -> float:
        """Hand out what is new; return how long to wait for more if nobody rings."""
        if not self._ready.is_set():
            self._position = self._floor = await self._log.newest()
            self._ready.set()
        page = await self._log.after(self._position, EVENTS_AT_ONCE)
        now_s = self._clock.monotonic()
        told = [Told(it, event_frame(it)) for it in page.events]
        for one in told:
            if len(self._recent) == KEPT:
                self._floor = self._recent[0].it.position
            self._recent.append(one)
        self._position = page.position
        if told:
            for stream in self._joined:
                stream.offer(told, now_s)
        if page.more:
            return 0.0
        return SOON_S if page.held_up else LOOK_AGAIN_S

    async def _look_after_streams(self) -> None:
        while True:
            await self._clock.sleep(CHECK_S)
            now_s = self._clock.monotonic()
            for stream in self._streams:
                if not stream.reader.may_read():
                    stream.end()
                elif now_s - stream.active_s >= HEARTBEAT_S:
                    stream.beat(now_s)
