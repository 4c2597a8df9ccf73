"""Names to addresses through the operating system."""

from __future__ import annotations

import asyncio
import socket


class SystemResolver:
    """Asks getaddrinfo: every A and AAAA answer, each once, in the system's order of preference."""

    async def resolve(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except UnicodeError as error:
            raise OSError("the name cannot be written in DNS") from error
        return list(dict.fromkeys(str(info[4][0]) for info in infos))
