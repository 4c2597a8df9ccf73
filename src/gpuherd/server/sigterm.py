"""SIGTERM while the service is still starting: exit cleanly, too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def exit_cleanly_on_sigterm() -> Iterator[None]:
    """Let SIGTERM cancel this task, and end the process with 0 then; a second one ends it at once.

    Whoever listens to the signal afterwards takes it over: there is no moment in which nobody does. The first
    process of a container would not even hear of it otherwise.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    signalled = False

    def on_sigterm() -> None:
        nonlocal signalled
        if signalled:
            # Nothing is lost: whatever is under way is found again at the next start, as after a crash.
            os._exit(1)
        signalled = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, on_sigterm)
    try:
        yield
    except asyncio.CancelledError:
        if signalled:
            raise SystemExit(0) from None
        raise
