"""Sends the head of a reply and its body with one system call instead of one each."""

from __future__ import annotations

import asyncio
from typing import Any


class CoalescingTransport:
    """A transport that keeps what it is given until more comes, but not past the present round of the loop.

    uvicorn writes head and body one after the other, and uvloop sends each at once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop):
        self._transport = transport
        self._loop = loop
        self._buffered = b""
        # Asked for at each piece of a request.
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send this with what is kept, or keep it."""
        if not self._buffered:
            self._buffered = data
            self._loop.call_soon(self._flush_buffered)
            return
        buffered, self._buffered = self._buffered, b""
        if not self.is_closing():
            self._transport.writelines([buffered, data])

    def close(self) -> None:
        """Send what is kept, then close."""
        self._flush_buffered()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what is kept is lost, like all that the system has not taken yet."""
        self._buffered = b""
        self._transport.abort()

    def _flush_buffered(self) -> None:
        buffered, self._buffered = self._buffered, b""
        if buffered and not self.is_closing():
            self._transport.write(buffered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
