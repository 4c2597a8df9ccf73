"""Runs asynchronous methods for the blocking client, on a thread of their own.

All blocking clients of a process share one daemon thread with an event loop. A call starts a task there and
waits for its end. Callbacks run in the calling thread. Ctrl-C cancels the task, and goes on when the task has
ended and has cleaned up.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from functools import wraps
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from gpuherd.client.client_connection import AsyncPaged, Page

P = ParamSpec("P")
T = TypeVar("T")

CLEANUP_TIMEOUT_S = 1.0
# By process id: threads do not survive a fork, so a child starts its own.
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def client_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the blocking clients in this process, which runs on a daemon thread."""
    process_id = os.getpid()
    if (loop := _loops.get(process_id)) is not None:
        return loop
    made = asyncio.new_event_loop()
    # The thread runs before the loop is shared: an interrupt between the two leaves no dead loop behind.
    threading.Thread(target=made.run_forever, name="gpuherd-client", daemon=True).start()
    loop = _loops.setdefault(process_id, made)
    if loop is not made:
        made.call_soon_threadsafe(made.stop)
    return loop


def run_in_background(cleanup: Coroutine[Any, Any, object]) -> None:
    """Run a cleanup on the loop, if this process has one, without an answer to the caller."""
    loop = _loops.get(os.getpid())
    if loop is None:
        cleanup.close()
        return
    ended = threading.Event()

    def begin() -> None:
        loop.create_task(cleanup).add_done_callback(lambda _: ended.set())

    loop.call_soon_threadsafe(begin)
    # The end of the program must not overtake it. The garbage collector may call this in any other thread.
    if threading.current_thread() is threading.main_thread():
        ended.wait(CLEANUP_TIMEOUT_S)


class CallingThread:
    """The thread that waits for a call, and runs the callbacks of that call."""

    def __init__(self) -> None:
        # Callbacks to run; None at the end of the task.
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of `coroutine`.

        An interrupt, or an error of a callback, cancels it and waits for its end.
        """
        self._inbox = SimpleQueue()
        inbox = self._inbox
        loop = client_loop()
        tasks: list[asyncio.Task[T]] = []
        ended = threading.Event()

        def begin() -> None:
            tasks.append(loop.create_task(coroutine))
            tasks[0].add_done_callback(end)

        def end(task: asyncio.Task[T] | None) -> None:
            if task is not None and not task.cancelled():
                # Mark the error as retrieved; after an interrupt no one else reads it, and asyncio would log
                # it.
                task.exception()
            ended.set()
            inbox.put(None)

        def cancel() -> None:
            if tasks:
                tasks[0].cancel()
            else:
                # The interrupt came before `begin` was scheduled.
                coroutine.close()
                end(None)

        try:
            loop.call_soon_threadsafe(begin)
            while (callback := inbox.get()) is not None:
                callback()
        except BaseException:
            loop.call_soon_threadsafe(cancel)
            # Money: `rent` releases the machine next, and must know what became of the create.
            ended.wait()
            raise
        return tasks[0].result()

    def relay(self, value: Any) -> Any:
        """Return a callback that runs in the calling thread; its caller awaits it. Keep any other value."""
        if not callable(value):
            return value

        async def call_back(*values: object) -> None:
            done = asyncio.Event()
            loop = asyncio.get_running_loop()

            def run_callback() -> None:
                value(*values)
                loop.call_soon_threadsafe(done.set)

            self._inbox.put(run_callback)
            await done.wait()

        return call_back

    def relayed(
        self, method: Callable[..., Any], twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call the method of an asynchronous twin with its callbacks relayed."""
        relayed = {name: self.relay(value) for name, value in kwargs.items()}
        return method(twin, *map(self.relay, args), **relayed)


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Make a blocking method of an asynchronous one."""

    @wraps(method)
    def call(resource: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread = CallingThread()
        result: T = thread.run(thread.relayed(method, resource._twin, args, kwargs))
        return result

    return call


def blocking_iterator(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Generator[T, None, None]]:
    """Make a generator of a method with an asynchronous one. It begins with the first `next`."""

    @wraps(method)
    def iterate(resource: Any, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        thread = CallingThread()
        entries = thread.relayed(method, resource._twin, args, kwargs)
        try:
            while True:
                try:
                    entry: T = thread.run(_next(entries))
                except StopAsyncIteration:
                    return
                yield entry
        finally:
            run_in_background(entries.aclose())

    return iterate


def blocking_pages(
    method: Callable[Concatenate[Any, P], AsyncPaged[T]],
) -> Callable[Concatenate[Any, P], Paged[T]]:
    """Make a blocking list method of an asynchronous one."""

    @wraps(method)
    def call(resource: Any, /, *args: P.args, **kwargs: P.kwargs) -> Paged[T]:
        return Paged(method(resource._twin, *args, **kwargs))

    return call


async def _next(entries: AsyncGenerator[T, None]) -> T:
    return await anext(entries)


class Paged(Iterator[T]):
    """Iterates over all entries of a list. It fetches a page when its first entry is needed."""

    def __init__(self, twin: AsyncPaged[T]) -> None:
        self._twin = twin
        self._entries = self._all_entries()

    def page(self, cursor: str | None = None) -> Page[T]:
        """Return the first page, or the one that begins at `cursor`."""
        return CallingThread().run(self._twin.page(cursor))

    def pages(self) -> Iterator[Page[T]]:
        """Iterate over the pages, from the first."""
        page = self.page()
        yield page
        while page.next_cursor:
            page = self.page(page.next_cursor)
            yield page

    def __next__(self) -> T:
        return next(self._entries)

    def _all_entries(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.entries
