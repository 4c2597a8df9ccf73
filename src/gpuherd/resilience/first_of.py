"""Wait for whichever comes first, and give up the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def first_of(*waits: Coroutine[Any, Any, T]) -> T:
    """Return what the first to end gives, or raise what it raises; all others have ended by then.

    Of several that end in the same moment the one that was named first counts.
    """
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
