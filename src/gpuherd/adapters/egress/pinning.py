"""Ties aiohttp's connections to the addresses that were judged, so that no second lookup can move them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address

from aiohttp import AddrInfoType, ClientRequest, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.tracing import Trace


@dataclass
class Pin:
    """The only addresses that the request of this task may connect to, and the one it did connect to."""

    host: str
    addresses: tuple[str, ...]
    peer: str = ""

    def allows(self, address: str) -> bool:
        return ip_address(address) in map(ip_address, self.addresses)


class NotPinned(OSError):
    """Something tried to connect to an address that was not checked."""


# One session serves all requests; the task's own context tells the connector which request it works for.
_current: ContextVar[Pin | None] = ContextVar("egress_pin", default=None)


@contextmanager
def pinned(host: str, addresses: tuple[str, ...]) -> Iterator[Pin]:
    """Let connections made inside the block go to `addresses`, and nowhere else."""
    pin = Pin(host, addresses)
    token = _current.set(pin)
    try:
        yield pin
    finally:
        _current.reset(token)


class PinnedResolver(AbstractResolver):
    """Answers with the pin; it knows no way to ask DNS."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        pin = _current.get()
        if pin is None or pin.host != host:
            raise NotPinned("this name was not judged")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in pin.addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def open_pinned_socket(info: AddrInfoType) -> socket.socket:
    """Make the socket for one address; the last look before packets leave, and literals come by here too."""
    family, kind, protocol, _, socket_address = info
    pin = _current.get()
    if pin is None or not pin.allows(str(socket_address[0])):
        raise NotPinned("this address was not judged")
    return socket.socket(family, kind, protocol)


class PinnedConnector(TCPConnector):
    """Connects only where the pin says, afresh each time: a kept connection would be an old verdict."""

    def __init__(self, tls: ssl.SSLContext):
        super().__init__(
            resolver=PinnedResolver(),
            use_dns_cache=False,
            socket_factory=open_pinned_socket,
            ssl=tls,
            force_close=True,
        )

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:  # noqa: ASYNC109
        connection = await super().connect(req, traces, timeout)
        pin = _current.get()
        if pin is not None and connection.transport is not None:
            pin.peer = connection.transport.get_extra_info("peername")[0]
        return connection
