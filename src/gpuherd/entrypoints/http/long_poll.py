"""A long poll ends when the client disconnects: the server itself lets a handler run on."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from gpuherd.resilience.first_of import first_of

T = TypeVar("T")

# Only the log will ever see it.
CLIENT_CLOSED_REQUEST = 499


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` gives; if the client goes away first, end `work` and return None."""
    result: T | None = await first_of(work, _wait_for_disconnect(request))
    return result


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has gone away; raise what is wrong with the body that nobody asked it for."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
