"""The change hub notifies the waiters and listeners of this process about changes of instances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import first_of

Listener = Callable[[Sequence[str]], None]


class Subscription:
    """A wait for changes of one instance."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self._changed.set()

    async def wait(self, timeout_s: float) -> bool:
        """Return True as soon as there was a change since the last wait, or False after `timeout_s`.

        The first wait counts from the subscription: subscribe, then read, then wait, and nothing is missed.
        """
        if not self._changed.is_set():
            await first_of(self._changed.wait(), self._clock.sleep(timeout_s))
        was_notified = self._changed.is_set()
        self._changed.clear()
        return was_notified


class ChangeHub:
    """The store calls `changed` in the event loop, after the commit and before the caller gets its reply."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._listeners: list[Listener] = []
        self._on_everything: list[Callable[[], None]] = []
        self._waiting: dict[str, set[Subscription]] = {}

    @property
    def watched(self) -> int:
        """How many instances have a subscription."""
        return len(self._waiting)

    def add_listener(self, listener: Listener, on_everything: Callable[[], None] = lambda: None) -> None:
        """Call `listener` at each change, and `on_everything` when it is unknown what has changed.

        Both must be quick and must not fail.
        """
        self._listeners.append(listener)
        self._on_everything.append(on_everything)

    def changed(self, instance_ids: Sequence[str]) -> None:
        for listener in self._listeners:
            listener(instance_ids)
        for instance_id in instance_ids:
            for subscription in self._waiting.get(instance_id, ()):
                subscription.notify()

    def everything_changed(self) -> None:
        """Call this when changes of other processes may have been missed."""
        for listener in self._on_everything:
            listener()
        for waiting in self._waiting.values():
            for subscription in waiting:
                subscription.notify()

    @asynccontextmanager
    async def subscribe(self, instance_id: str) -> AsyncIterator[Subscription]:
        """Subscribe to the changes of one instance while the context lasts."""
        subscription = Subscription(self._clock)
        waiting = self._waiting.setdefault(instance_id, set())
        waiting.add(subscription)
        try:
            yield subscription
        finally:
            waiting.discard(subscription)
            if not waiting:
                # This is still the same set: a key is removed only with its last subscriber.
                del self._waiting[instance_id]
