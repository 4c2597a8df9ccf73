"""Name lookups in threads of their own.

The loop's own way (uvloop: two threads of libuv for all lookups; asyncio: the default executor) is shared by
everybody, and a lookup that its caller has given up goes on occupying it. With a dead name server that is
5 to 30 s each, during which no other name of the process would be found, and under uvloop no connection be
made at all.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

from gpuherd.resilience.daemon_thread import run_in_daemon_thread

# Returns every address of a name, or raises `OSError`.
Lookup = Callable[[str], Awaitable[list[str]]]


async def look_up(host: str) -> list[str]:
    """Ask getaddrinfo: every A and AAAA answer, each once, in the system's order of preference."""
    try:
        return await run_in_daemon_thread(lambda: _addresses_of(host), "gpuherd-lookup")
    except UnicodeError as error:
        raise OSError("the name cannot be written in DNS") from error


def _addresses_of(host: str) -> list[str]:
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))
