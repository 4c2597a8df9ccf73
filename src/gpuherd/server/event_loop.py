"""The event loop of the service: uvloop, which must not ask the system about addresses that are none of its.

uvloop lets every `sock_connect` look up its address in libuv's threads, literal or not, unless it is told
that a stream is wanted. Two slow lookups there (asyncpg's, while the database's name server is dead) would
hold up every new connection of the process, to Novita as well.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that connects to a literal address without a lookup."""
    import uvloop  # noqa: PLC0415  not to be found on every platform

    class LiteralAddressLoop(uvloop.Loop):
        async def getaddrinfo(self, host: Any, port: Any, *, type: int = 0, **words: Any) -> Any:
            return await super().getaddrinfo(host, port, type=type or socket.SOCK_STREAM, **words)

    return LiteralAddressLoop()
