"""Stand-ins for the other side: a receiver that notes and answers raw bytes, and a name server on strings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gpuherd.adapters.egress.guarded_client import SsrfSafeClient, strict_tls
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.ports.egress_port import EgressReply
from tests.support.net.loopback_server import LoopbackServer

# For doors that nobody goes through with TLS: to read all certificates takes longer than most of the tests.
TLS = strict_tls()
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Receiver(LoopbackServer):
    """Listens on loopback, counts connections, keeps the requests, and answers each with the same bytes."""

    def __init__(self, answer: bytes | Answer = OK, host: str = "127.0.0.1", port: int = 0):
        self.requests: list[bytes] = []
        self.host, self.port = host, port
        self._answer = answer

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/"

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await _read_request(reader))
        if isinstance(self._answer, bytes):
            writer.write(self._answer)
            await writer.drain()
        else:
            await self._answer(writer)


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return head + await reader.readexactly(length)


class StubResolver:
    """Answers from a table; a name with several answers gives the next one at each lookup."""

    def __init__(self, table: Mapping[str, Sequence[Sequence[str]]] | None = None):
        self._table = {name: list(answers) for name, answers in (table or {}).items()}
        self.lookups: list[str] = []

    async def resolve(self, host: str) -> list[str]:
        self.lookups.append(host)
        answers = self._table.get(host)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return list(answers.pop(0) if len(answers) > 1 else answers[0])


async def get(
    client: SsrfSafeClient, url: str, *, timeout_s: float = 5.0, max_bytes: int = 1000, method: str = "GET"
) -> EgressReply:
    """Ask for `url` with nothing special."""
    return await client.request(method, url, headers={}, body=None, timeout_s=timeout_s, max_bytes=max_bytes)


LOOPBACK_OPEN = EgressPolicy.parse("127.0.0.0/8")
