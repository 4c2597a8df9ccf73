"""HTTP to strangers: webhooks, probes, and the use of machines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.health import EndpointHealth, HealthCheck
from gpuherd.domain.instance.idleness import AppAnswer, Utilization


class FailureCategory(StrEnum):
    """Why no reply came, in words that users may see."""

    BLOCKED_TARGET = "blocked_target"
    DNS = "dns"
    REFUSED = "refused"
    RESET = "reset"
    TLS = "tls"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    UNREACHABLE = "unreachable"


class EgressFailure(GpuherdError):
    """No usable reply; `detail` holds no URL, header or body, for a webhook URL may itself be a secret."""

    code = "OUTBOUND_FAILURE"

    def __init__(self, category: FailureCategory, detail: str):
        super().__init__(f"{category}: {detail}")
        self.category = category
        self.detail = detail


@dataclass(frozen=True)
class EgressReply:
    """What came back: header names in lower case, and at most as many bytes as were asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    elapsed_s: float
    address: str


class EgressHttp(Protocol):
    """The only way to URLs that somebody else chose."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
        max_bytes: int,
    ) -> EgressReply:
        """Send one request, once, and return whatever status comes back; `EgressFailure` if none does.

        Never follows a redirect. `timeout_s` covers everything from the name lookup to the last byte.
        """
        ...


class EgressStream(Protocol):
    """A reply that comes bit by bit, and perhaps never ends."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes:
        """Return what has come, as soon as something has; nothing at the end, `EgressFailure` at a break.

        What a cancelled call would have returned comes with the next one. Who does not read holds the other
        side up, and no memory fills.
        """
        ...


class EgressStreams(Protocol):
    """The only way to endless replies of URLs that somebody else chose."""

    def stream(
        self, url: str, *, headers: Mapping[str, str], timeout_s: float
    ) -> AbstractAsyncContextManager[EgressStream]:
        """Have a reply for as long as the context lasts; `EgressFailure` if it does not begin.

        Never follows a redirect. `timeout_s` covers everything from the name lookup to the headers.
        """
        ...


class EgressTcp(Protocol):
    """The only way to bare TCP ports that somebody else chose."""

    async def connect(self, host: str, port: int, timeout_s: float) -> float:
        """Open a connection, close it, and return how many seconds it took; `EgressFailure` if it fails."""
        ...


class Resolver(Protocol):
    """Turns a name into addresses."""

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return every address of `host`; `OSError` if the name cannot be looked up."""
        ...


class Prober(Protocol):
    """Looks at one port of a machine from outside, as the program's users would."""

    async def probe(self, port: PortMapping, check: HealthCheck) -> EndpointHealth:
        """Look once, for at most `check.timeout_ms`.

        Whatever the target, its address or the network does is a result and never an exception; nothing that
        the target wrote is in it. Where too many looks are under way, none is made (`not_asked`): nobody
        waits for long.
        """
        ...


class UseMetrics(Protocol):
    """The cloud's own measurements. Every call only reads, costs a call, and may raise `CloudError`."""

    async def samples(
        self, cloud_id: str, begin: datetime, end: datetime, interval: timedelta
    ) -> tuple[Utilization, ...]:
        """Return how busy a machine was, as far as it is known.

        A moment at which one of its GPUs or its CPU was not measured is left out. `RateLimited` when the
        budget of such calls is used up.
        """
        ...


class ActivityProbe(Protocol):
    """Asks an application whether it is in use."""

    async def ask(self, port: PortMapping, path: str) -> AppAnswer:
        """Ask once. Whatever goes wrong is an answer that says nothing, and never an exception."""
        ...
