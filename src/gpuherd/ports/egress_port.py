"""Connections to addresses that users chose: webhooks, probes, and the use of machines."""

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
    """No usable reply. `detail` contains no URL, header or body, because a webhook URL may be a secret."""

    code = "OUTBOUND_FAILURE"

    def __init__(self, category: FailureCategory, detail: str):
        super().__init__(f"{category}: {detail}")
        self.category = category
        self.detail = detail


@dataclass(frozen=True)
class EgressReply:
    """A reply: header names in lower case, and at most the requested number of bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    elapsed_s: float
    address: str


class EgressHttp(Protocol):
    """The only way to send requests to URLs that users chose."""

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
        """Send one request once, and return the reply with any status; `EgressFailure` if there is none.

        Never follows a redirect. `timeout_s` covers everything from the name lookup to the last byte.
        """
        ...


class EgressStream(Protocol):
    """A reply that arrives in pieces, and may never end."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes:
        """Return the next bytes as soon as some have come; empty at the end, `EgressFailure` at a break.

        A cancelled call loses nothing: the next call returns its bytes. If no one reads, the sender is held
        up, and no memory fills.
        """
        ...


class EgressStreams(Protocol):
    """The only way to read endless replies of URLs that users chose."""

    def stream(
        self, url: str, *, headers: Mapping[str, str], timeout_s: float
    ) -> AbstractAsyncContextManager[EgressStream]:
        """Open a reply for the duration of the context; `EgressFailure` if it does not begin.

        Never follows a redirect. `timeout_s` covers everything from the name lookup to the headers.
        """
        ...


class EgressTcp(Protocol):
    """The only way to connect to TCP ports that users chose."""

    async def connect(self, host: str, port: int, timeout_s: float) -> float:
        """Open and close a connection, and return the seconds it took; `EgressFailure` if it fails."""
        ...


class Resolver(Protocol):
    """Resolves a name to addresses."""

    async def resolve(self, host: str) -> list[str]:
        """Return every address of `host`; `OSError` if the name cannot be looked up."""
        ...


class Prober(Protocol):
    """Checks one port of a machine from outside, as its users would."""

    async def probe(self, port: PortMapping, check: HealthCheck) -> EndpointHealth:
        """Check once, for at most `check.timeout_ms`.

        Every failure of the target, its address or the network is a result and never an exception. The result
        quotes nothing of the target. If too many checks are running, this one is not made (`not_asked`), so
        no caller waits for long.
        """
        ...


class UseMetrics(Protocol):
    """The cloud's own metrics. Every call only reads, costs a call, and may raise `CloudError`."""

    async def samples(
        self, cloud_id: str, begin: datetime, end: datetime, interval: timedelta
    ) -> tuple[Utilization, ...]:
        """Return how busy a machine was, as far as known.

        A moment without a sample of every GPU and the CPU is left out. `RateLimited` if the budget of such
        calls is used up.
        """
        ...


class ActivityProbe(Protocol):
    """Asks an application whether it is in use."""

    async def ask(self, port: PortMapping, path: str) -> AppAnswer:
        """Ask once. Every failure is an empty answer and never an exception."""
        ...
