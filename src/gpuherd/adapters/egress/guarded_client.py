"""HTTP to strangers: resolve once, refuse private addresses, connect to the address that was checked."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address

import aiohttp
from aiohttp import (
    AddrInfoType,
    ClientRequest,
    ClientTimeout,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from gpuherd.domain.egress_policy import (
    AllowedEndpoint,
    BlockedTarget,
    EgressPolicy,
    check_dns_answers,
    check_endpoint,
    check_url,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.egress_port import (
    EgressFailure,
    EgressReply,
    EgressStream,
    FailureCategory,
    Resolver,
)

_BY_ERRNO = {
    errno.ECONNREFUSED: FailureCategory.REFUSED,
    errno.ECONNRESET: FailureCategory.RESET,
    errno.ECONNABORTED: FailureCategory.RESET,
    errno.EPIPE: FailureCategory.RESET,
    errno.ETIMEDOUT: FailureCategory.TIMEOUT,
}


_SENTENCES = {
    FailureCategory.BLOCKED_TARGET: "the address was not judged",
    FailureCategory.DNS: "the host name could not be resolved",
    FailureCategory.REFUSED: "the host refused the connection",
    FailureCategory.RESET: "the host closed the connection before its reply was complete",
    FailureCategory.TLS: "the TLS handshake failed",
    FailureCategory.TIMEOUT: "no complete reply came in time",
    FailureCategory.PROTOCOL: "the exchange was not valid HTTP",
    FailureCategory.UNREACHABLE: "the host could not be reached",
}


def failure(category: FailureCategory) -> EgressFailure:
    """Return the failure with the sentence that goes with its category."""
    return EgressFailure(category, _SENTENCES[category])


def failure_of(error: Exception) -> EgressFailure:
    """Return `error` as the category and sentence a caller can use."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return EgressFailure(FailureCategory.TLS, "the certificate is not valid for this host")
    return failure(_category(error))


def _category(error: Exception) -> FailureCategory:
    match error:
        case NotPinned() | aiohttp.ClientConnectorError(os_error=NotPinned()):
            return FailureCategory.BLOCKED_TARGET
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return FailureCategory.TLS
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionResetError():
            return FailureCategory.RESET
        case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) | OSError(errno=int(number)):
            return _BY_ERRNO.get(number, FailureCategory.UNREACHABLE)
        case OSError():
            return FailureCategory.UNREACHABLE
        case _:
            return FailureCategory.PROTOCOL


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


# Not sent by themselves: they would tell strangers what we run and invite compressed bodies.
_SKIPPED_AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


# As aiohttp's own for HTTP.
CONNECT_STAGGER_S = 0.25


CHUNK_BYTES = 2**16
_NO_TIMEOUTS = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


def strict_tls() -> ssl.SSLContext:
    """Return the TLS rules for strangers: certificate and name checked, TLS 1.2 or newer."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class SsrfSafeClient:
    """Implements `EgressHttp`, `EgressStreams` and `EgressTcp` for hosts that others name."""

    def __init__(
        self, policy: EgressPolicy, resolver: Resolver, clock: Clock, *, tls: ssl.SSLContext | None = None
    ):
        self._policy = policy
        self._resolver = resolver
        self._clock = clock
        self._tls = tls or strict_tls()
        self._session: aiohttp.ClientSession | None = None

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
        started = self._clock.monotonic()
        async with _deadline(timeout_s):
            response, peer = await self._send(method, url, headers, body)
            try:
                content, truncated = await _read_up_to(response.content, max_bytes)
            finally:
                response.close()
        return EgressReply(
            status=response.status,
            headers=_plain_headers(response),
            body=content,
            truncated=truncated,
            elapsed_s=self._clock.monotonic() - started,
            address=peer,
        )

    @asynccontextmanager
    async def stream(
        self, url: str, *, headers: Mapping[str, str], timeout_s: float
    ) -> AsyncIterator[EgressStream]:
        async with _deadline(timeout_s):
            response, _ = await self._send("GET", url, headers, None)
        try:
            yield _Stream(response)
        finally:
            response.close()

    async def connect(self, host: str, port: int, timeout_s: float) -> float:
        started = self._clock.monotonic()
        async with _deadline(timeout_s):
            endpoint = check_endpoint(host, port, self._policy)
            await _connect_to_any(await self._checked_addresses(endpoint), port)
        return self._clock.monotonic() - started

    async def close(self) -> None:
        """Close the session; a later call opens a new one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[aiohttp.ClientResponse, str]:
        """Send one request; return the reply, as far as its headers, and the address that it came from."""
        # guard: private targets are refused in the URL
        target = check_url(url, self._policy)
        addresses = await self._checked_addresses(target)
        with pinned(target.host, addresses) as pin:
            # encoded=True: the text that was judged goes out as it is, not as a second parser reads it.
            # guard: no redirects from receivers
            response = await self._open_session().request(
                method, URL(target.url, encoded=True), headers=headers, data=body, allow_redirects=False
            )
        return response, pin.peer

    async def _checked_addresses(self, endpoint: AllowedEndpoint) -> tuple[str, ...]:
        if endpoint.addresses:
            return endpoint.addresses
        try:
            answers = await self._resolver.resolve(endpoint.host)
        except OSError:
            raise failure(FailureCategory.DNS) from None
        if not answers:
            raise failure(FailureCategory.DNS)
        # guard: private targets are refused after they were resolved
        return check_dns_answers(answers, self._policy)

    def _open_session(self) -> aiohttp.ClientSession:
        # Opened on first use, because aiohttp wants the running loop.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=PinnedConnector(self._tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                skip_auto_headers=_SKIPPED_AUTO_HEADERS,
                timeout=_NO_TIMEOUTS,
                trust_env=False,
                auto_decompress=False,
                middlewares=(_fail_at_once,),
            )
        return self._session


class _Stream:
    """Implements `EgressStream`: aiohttp stops reading the socket when its small buffer is full."""

    def __init__(self, response: aiohttp.ClientResponse):
        self.status = response.status
        self.headers: Mapping[str, str] = _plain_headers(response)
        self._content = response.content

    async def read(self) -> bytes:
        async with _deadline(None):
            return await self._content.read(CHUNK_BYTES)


@asynccontextmanager
async def _deadline(timeout_s: float | None) -> AsyncIterator[None]:
    """Bound the block as a whole, and let nothing out of it but `EgressFailure` (and cancellation)."""
    # `from None`: the errors below carry the URL, which may be a secret, into every logged traceback.
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise failure(FailureCategory.TIMEOUT) from None
    except BlockedTarget as error:
        raise EgressFailure(FailureCategory.BLOCKED_TARGET, error.reason) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise failure_of(error) from None


async def _fail_at_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a GET by itself after a disconnect: one call here is one request there."""
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise failure_of(error) from None


async def _connect_to_any(addresses: tuple[str, ...], port: int) -> None:
    """Connect to the first address that answers, or raise the error of the last one that failed.

    The next one is tried when one fails, or says nothing for a moment (happy eyeballs): a name that has an
    IPv6 address, on a network that swallows IPv6, would else use up its time with that.
    """
    left, pending = list(addresses), set[asyncio.Task[None]]()
    failed: BaseException | None = None
    try:
        while left or pending:
            if left:
                pending.add(asyncio.create_task(_connect_and_close(left.pop(0), port)))
            stagger_s = CONNECT_STAGGER_S if left else None
            done, pending = await asyncio.wait(
                pending, timeout=stagger_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if (error := task.exception()) is None:
                    return
                failed = error
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    if failed is not None:
        raise failed


async def _connect_and_close(address: str, port: int) -> None:
    _, writer = await asyncio.open_connection(address, port)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _read_up_to(stream: aiohttp.StreamReader, max_bytes: int) -> tuple[bytes, bool]:
    """Return at most `max_bytes`, and whether there was more."""
    content = bytearray()
    while len(content) <= max_bytes and (chunk := await stream.read(max_bytes + 1 - len(content))):
        content += chunk
    return bytes(content[:max_bytes]), len(content) > max_bytes


def _plain_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    plain: dict[str, str] = {}
    for name, value in response.headers.items():
        # Bytes that are not UTF-8 arrive as lone surrogates, which no log or database could write.
        text = value.encode("utf-8", "replace").decode()
        key = name.lower()
        plain[key] = f"{plain[key]}, {text}" if key in plain else text
    return plain
