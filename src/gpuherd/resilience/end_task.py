"""End a task of one's own, and wait until it has ended."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel the task and wait for its end; None, of what was not started, is fine."""
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
