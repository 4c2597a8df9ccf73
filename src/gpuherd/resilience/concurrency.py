"""Bounded concurrency: a bulkhead, the first of several tasks, and the end of a task."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Hashable,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar


@dataclass(slots=True)
class _KeyPermits:
    permits: asyncio.Semaphore
    users: int = 0


class Bulkhead:
    """Limits concurrency: `async with bulkhead(key):` waits for a permit.

    At most `total` are in use, `per_key` by one key.
    """

    def __init__(self, total: int, per_key: int) -> None:
        if total < 1 or per_key < 1:
            raise ValueError("total and per_key must be at least 1")
        self._permits = asyncio.Semaphore(total)
        self._per_key = per_key
        self._by_key: dict[Hashable, _KeyPermits] = {}

    @asynccontextmanager
    async def __call__(self, key: Hashable) -> AsyncIterator[None]:
        of_key = self._by_key.setdefault(key, _KeyPermits(asyncio.Semaphore(self._per_key)))
        of_key.users += 1
        try:
            # Take the key's own permit first: a caller that waits for a crowded key must not hold a shared
            # permit.
            async with of_key.permits, self._permits:
                yield
        finally:
            of_key.users -= 1
            if not of_key.users:
                del self._by_key[key]

    def __len__(self) -> int:
        """Return the number of active keys."""
        return len(self._by_key)


T = TypeVar("T")


async def first_of(*waits: Coroutine[Any, Any, T]) -> T:
    """Return the result of the first wait to end, or raise its error. All others have ended by then.

    If several end at the same moment, the one that was named first counts.
    """
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait for its end. None is ignored."""
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def run_in_daemon_thread(work: Callable[[], T], name: str = "gpuherd-aside") -> T:
    """Return what `work` returns. A cancelled caller does not wait for the thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver_result(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None only where T allows it

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as caught:  # the waiting caller gets it
            error = caught
        # The loop may be closed if no caller waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver_result, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
