"""PGQueuer's pool driver for PostgreSQL, made to survive a lost listener and to coalesce wake-ups."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import asyncpg
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.ports.driver import NotifyCallback

# In the notes that say that there may be a job. Others, say about health, are each worth hearing.
TABLE_CHANGED = "table_changed_event"
CONNECTION_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


class PoolDriver(AsyncpgPoolDriver):
    """A pool of connections, one of which listens while the engine runs.

    When that one is lost, the others go on and nobody notices that no notification arrives, until PGQueuer's
    health check does after a while. Here the next look for jobs fails instead, and the engine starts its loop
    anew.
    """

    def __init__(self, pool: asyncpg.Pool):
        super().__init__(pool)
        self._listener_lost = False
        self.wake_pending = False
        self._callbacks: dict[str, list[_CoalescingListener]] = {}

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        """Run a query, unless the listener is lost and wake-ups would be missed."""
        if self._listener_lost:
            raise ConnectionResetError("the connection that listened was lost")
        return await super().fetch(query, *args)

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:
        """Listen, and remember should the connection end."""
        listener = _CoalescingListener(self, callback)
        await super().add_listener(channel, listener)
        self._callbacks.setdefault(channel, []).append(listener)
        if self._listener_connection is not None:
            self._listener_connection.add_termination_listener(self._on_listener_lost)

    async def remove_listener(self, channel: str, callback: NotifyCallback) -> None:
        """Listen no more."""
        listener = _CoalescingListener(self, callback)
        self._callbacks[channel].remove(listener)
        await super().remove_listener(channel, listener)

    def wake(self, channel: str, payload: str) -> None:
        """Tell only those who listen here, without asking the server to tell everybody."""
        for listener in self._callbacks.get(channel, ()):
            listener(payload)

    def acknowledge(self) -> None:
        """Acknowledge: a poll begins now, so the next wake-up is delivered again."""
        self.wake_pending = False

    def should_deliver(self, payload: str | bytes | bytearray) -> bool:
        """Return True if a notification is worth passing on.

        While a manager has no room it answers nothing, and would have a thousand of them to answer then.
        """
        if TABLE_CHANGED not in (payload if isinstance(payload, str) else payload.decode()):
            return True
        was_pending, self.wake_pending = self.wake_pending, True
        return not was_pending

    async def __aexit__(self, *details: object) -> None:
        listener = self._listener_connection
        with contextlib.suppress(*CONNECTION_LOST):
            # It goes back to the pool, and its end is then no news for us.
            if listener is not None and self._entered == 1:
                listener.remove_termination_listener(self._on_listener_lost)
        try:
            await super().__aexit__(*details)
        except CONNECTION_LOST:
            # Theirs would keep the dead connection and, after a restart, listen on it again.
            self._listener_connection = None
            await self._pool.release(listener)
        if self._listener_connection is None:
            self._listener_lost = False
            # A queue manager never takes its listener back, and a restarted loop makes a new one.
            self._callbacks.clear()

    def _on_listener_lost(self, connection: object) -> None:
        self._listener_lost = True


@dataclass(frozen=True)
class _CoalescingListener:
    """A listener that hears of news once, until it was answered; its like is equal, as asyncpg wants it."""

    driver: PoolDriver
    callback: NotifyCallback

    def __call__(self, payload: str | bytes | bytearray) -> None:
        if self.driver.should_deliver(payload):
            self.callback(payload)
