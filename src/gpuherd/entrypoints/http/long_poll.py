"""A long poll ends when the client disconnects: the server itself lets a handler run on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

T = TypeVar("T")

# Only the log will ever see it.
CLIENT_CLOSED_REQUEST = 499


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` gives; if the client goes away first, end `work` and return None."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else leaving.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has gone away; raise what is wrong with the body that nobody asked it for."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
