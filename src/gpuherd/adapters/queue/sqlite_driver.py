"""PGQueuer's driver inside one process: no SQL, only wake-ups in place of LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Self

from pgqueuer.core.tm import TaskManager
from pgqueuer.ports.driver import NotifyCallback

from gpuherd.adapters.queue.pgqueuer_names import CHANNEL, table_changed_payload
from gpuherd.ports.clock_port import Clock


class SqliteDriver:
    """Implements PGQueuer's `Driver`; the repository beside it does the reading and writing."""

    def __init__(self, clock: Clock, siblings: list[SqliteDriver] | None = None):
        self._clock = clock
        # All siblings are woken; each acknowledges for itself.
        self._siblings = [] if siblings is None else siblings
        self._siblings.append(self)
        self._listeners: defaultdict[str, list[NotifyCallback]] = defaultdict(list)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._entered = 0
        self.wake_pending = False
        self._shutdown = asyncio.Event()
        self._tm = TaskManager()

    def sibling(self) -> SqliteDriver:
        """Return another one, for another manager."""
        return SqliteDriver(self._clock, self._siblings)

    def wake_listeners(self) -> None:
        """Say that a committed change may have made a job due. Any thread may call it, at any rate."""
        for it in tuple(self._siblings):
            it.wake()

    def wake(self) -> None:
        """Say it to the one manager that listens here."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if _running_loop() is loop:
            self._wake()
        else:
            loop.call_soon_threadsafe(self._wake)

    def acknowledge(self) -> None:
        """Acknowledge: a poll begins now, so the next wake-up is delivered again."""
        self.wake_pending = False

    async def notify(self, channel: str, payload: str) -> None:
        """Hand `payload` to everybody who listens on `channel`."""
        for callback in tuple(self._listeners[channel]):
            callback(payload)

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:
        """Call `callback` with each payload sent on `channel`, in the loop that is running now."""
        self._loop = asyncio.get_running_loop()
        self._listeners[channel].append(callback)

    async def remove_listener(self, channel: str, callback: NotifyCallback) -> None:
        """Stop calling `callback`."""
        if callback in self._listeners[channel]:
            self._listeners[channel].remove(callback)

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        """Refuse: this driver has no SQL."""
        raise NotImplementedError("the SQLite repository does not send SQL through its driver")

    async def execute(self, query: str, *args: object) -> str:
        """Refuse: this driver has no SQL."""
        raise NotImplementedError("the SQLite repository does not send SQL through its driver")

    @property
    def shutdown(self) -> asyncio.Event:
        """Part of PGQueuer's contract; nothing here waits for it."""
        return self._shutdown

    @property
    def tm(self) -> TaskManager:
        """Part of PGQueuer's contract; this driver has no tasks of its own."""
        return self._tm

    async def __aenter__(self) -> Self:
        self._entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            # A queue manager never takes its listener back, and a restarted loop makes a new one.
            self._listeners.clear()
            self._loop = None

    def _wake(self) -> None:
        # One pending wake-up is enough: its listener polls everything that was committed by then.
        if self.wake_pending or not self._listeners[CHANNEL]:
            return
        self.wake_pending = True
        payload = table_changed_payload("update", self._clock.now())
        for callback in tuple(self._listeners[CHANNEL]):
            callback(payload)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
