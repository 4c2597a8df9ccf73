"""One open stream of events: first what it missed, page by page, then what the feed hands out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.events import EventFilter, EventLog, LoggedEvent
from gpuherd.usecases.describe_events import event_frame

# Of one stream whose reader is slow; after that it is ended, and its reader comes back for the rest.
PENDING_MAX = 2000
PAGE = 200
HEARTBEAT = b": still here\n\n"


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


@dataclass(frozen=True)
class Told:
    """An event that was handed out, with its bytes."""

    it: LoggedEvent
    frame: bytes


class Feed(Protocol):
    """What a stream needs of the feed."""

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
        self._idle = False
        self._news = asyncio.Event()

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
                return HEARTBEAT
            self._news.clear()
            await self._news.wait()
        return None

    def offer(self, told: Iterable[Told], now_s: float) -> None:
        """Take what has just happened; end if that is more than may wait."""
        wants, position = self.reader.wanted.wants, self.position or 0
        fresh = [one.frame for one in told if one.it.position > position and wants(one.it)]
        if not fresh:
            return
        self.active_s = now_s
        self._pending.extend(fresh)
        if len(self._pending) > PENDING_MAX:
            # The client has what was sent, and asks for the rest by the last id that it got.
            self._pending.clear()
            self.end()
        self._news.set()

    def beat(self, now_s: float) -> None:
        """Send a sign of life, if there is nothing else."""
        self.active_s = now_s
        self._idle = True
        self._news.set()

    def end(self) -> None:
        """End after what is being sent now."""
        self.ended = True
        self._news.set()

    async def _catch_up(self) -> bytes:
        if self.position is None:
            self.position = await self._begin()
        if self._feed.join(self):
            self._joined = True
            return b""
        page = await self._log.after(self.position, PAGE, self.reader.wanted)
        self.position = page.position
        return b"".join(map(event_frame, page.events))

    async def _begin(self) -> int:
        handed_out = await self._feed.ready()
        if self.reader.last is None:
            return handed_out
        # A higher one than there is was told before a backup was put in place, or has been forgotten.
        return min(self.reader.last, await self._log.highest())
