"""Blocking calls that may hang, in a daemon thread that nobody has to wait for.

asyncio's own threads are waited for at the end of the program, however long a disk or a name server takes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(work: Callable[[], T], name: str = "gpuherd-aside") -> T:
    """Return what `work` returns; who is tired of waiting just goes."""
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
        except Exception as caught:  # whoever waits gets it
            error = caught
        # When nobody waits any more, the loop may be gone.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver_result, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
