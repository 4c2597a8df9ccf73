"""How large a request body may be, and how long it may take to arrive."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, cast

from starlette.types import Message, Receive

from gpuherd.entrypoints.problems import BodyTooLarge, RequestTimeout

BODY_MAX_BYTES = 1024 * 1024
BODY_TIMEOUT_S = 30.0


class LimitedReceive:
    """A `receive` with limits, so that no body is read to its end just to be refused.

    The time is for the body as a whole: one byte now and then does not prolong it. After the body there is
    no limit, since a long poll then listens for the client's leaving.
    """

    # One is made for every request.
    __slots__ = ("_complete", "_deadline", "_declared", "_receive", "_size", "_timeout_s")

    def __init__(self, receive: Receive, declared: bytes, timeout_s: float):
        self._receive = receive
        self._declared = declared
        self._timeout_s = timeout_s
        self._deadline: float | None = None
        self._size = 0
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        if self._declared.isdigit() and int(self._declared[:20]) > BODY_MAX_BYTES:
            raise _too_large()
        arriving = cast(Coroutine[Any, None, Message], self._receive())
        try:
            # Nearly always all is here by now, and a timeout takes longer to set than a body to read.
            waits_for = arriving.send(None)
        except StopIteration as here:
            message = cast(Message, here.value)
        else:
            message = await self._in_time(arriving, waits_for)
        self._size += len(message.get("body", b""))
        if self._size > BODY_MAX_BYTES:
            raise _too_large()
        self._complete = not message.get("more_body", False)
        return message

    async def _in_time(self, arriving: Coroutine[Any, None, Message], waits_for: Any) -> Message:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(self._deadline):
                return await _resumed(arriving, waits_for)
        except TimeoutError:
            raise RequestTimeout(f"the body was not complete after {self._timeout_s:g} seconds") from None


@types.coroutine
def _resumed(started: Coroutine[Any, None, Message], waits_for: Any) -> Generator[Any, None, Message]:
    """Await the rest of a coroutine whose first step is taken, and led to a wait."""
    try:
        yield waits_for
    except BaseException as error:
        # Whoever cancels this wait cancels the coroutine.
        started.throw(error)
        raise
    return (yield from started.__await__())


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"a request body may have at most {BODY_MAX_BYTES} bytes")
