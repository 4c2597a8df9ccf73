"""One call to Novita, with an exact account of how far it got."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn, Protocol
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gpuherd import __version__
from gpuherd.adapters.novita.novita_json import safe_text
from gpuherd.adapters.novita.redaction import NO_SECRETS, TEXT_CHARS_MAX, CallSecrets
from gpuherd.domain.secret import Secret
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.dns import Dns
from gpuherd.resilience.retry import parse_retry_after

EXCERPT_CHARS = 300
_LIMIT = re.compile(r"rate-?limit|retry-after", re.IGNORECASE)


@dataclass(frozen=True)
class NovitaReply:
    """A reply. The body is hidden from repr, because it may hold passwords of machines and registries."""

    status: int
    # None if the reply was not a JSON object.
    body: dict[str, Any] | None = field(repr=False)
    is_empty: bool = False
    # The beginning of the reply, for `excerpt`.
    head: bytes = field(default=b"", repr=False)
    retry_after_s: float | None = None
    # The headers about rate limits, by lower-case name.
    limit_headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    # The secrets of the call. They are redacted from every text of this reply.
    secrets: CallSecrets = field(default=NO_SECRETS, repr=False, compare=False)

    @property
    def excerpt(self) -> str:
        """Return the beginning of the reply, for people."""
        return safe_text(self.secrets.redact(self.head.decode("utf-8", "replace")), EXCERPT_CHARS)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_garbage(self) -> bool:
        """Return True if the reply cannot come from Novita."""
        return self.body is None and not self.is_empty


def read_reply(
    status: int,
    raw: bytes,
    retry_after_s: float | None = None,
    secrets: CallSecrets = NO_SECRETS,
    headers: Mapping[str, str] | None = None,
) -> NovitaReply:
    """Parse a whole reply. Unreadable content becomes garbage, never an error."""
    is_empty = raw.strip() in (b"", b"null")
    return NovitaReply(
        status,
        body=None if is_empty else _parse_object(raw),
        is_empty=is_empty,
        head=raw[:TEXT_CHARS_MAX],
        retry_after_s=retry_after_s,
        limit_headers=_limit_headers(headers or {}),
        secrets=secrets,
    )


def _limit_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): safe_text(value, 80) for name, value in headers.items() if _LIMIT.search(name)}


def _parse_object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    # Nested deeper than the stack, or a number longer than Python accepts.
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


API_ROOT = "/gpu-instance/openapi/v1"


# Bills and balances are not below it.
HOST_ROOT = "/openapi/"


CONNECTIONS = 32


# A page of a thousand machines has a few.
REPLY_BYTES_MAX = 16 * 1024 * 1024


class NotSent(Exception):
    """No byte of the request was written: certainly nothing happened."""


class NoReply(Exception):
    """The request may have been written, and no complete reply came."""

    def __init__(self, why: str, *, timed_out: bool = False, stale_connection: bool = False) -> None:
        super().__init__(why)
        self.timed_out = timed_out
        # The server had closed a kept connection. This says nothing about Novita's health.
        self.stale_connection = stale_connection


class _ReplyTooLarge(Exception):
    pass


class _AlreadySent(Exception):
    pass


class _PastSendDeadline(Exception):
    """Nothing was written, and the deadline for sending has passed."""


@dataclass
class _Progress:
    is_late: Callable[[], bool]
    written: bool = False
    reused: bool = False
    answered: bool = False


class _AiohttpResolver(AbstractResolver):
    """Lets aiohttp ask `Dns`."""

    def __init__(self, dns: Dns):
        self._dns = dns

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [_resolve_result(host, port, address) for address in await self._dns.resolve(host)]

    async def close(self) -> None:
        """Do nothing: the sessions share one `Dns`."""


def _resolve_result(host: str, port: int, address: str) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


class NovitaExchange(Protocol):
    """One call to Novita; `Exchange` makes it over HTTP."""

    async def get(
        self, path: str, params: Mapping[str, str], timeout_s: float, *, fresh: bool
    ) -> NovitaReply: ...

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_s: float,
        send_by_s: float = math.inf,
        secrets: CallSecrets = NO_SECRETS,
    ) -> NovitaReply: ...

    @property
    def account_secrets(self) -> CallSecrets: ...

    def learn_credentials(self, credentials: tuple[Secret, ...]) -> None: ...

    async def close(self) -> None: ...


class Exchange:
    """Sends HTTP requests to one host with one key.

    Reads share kept connections. Each change gets a new one: if the server closes a kept connection at that
    moment, it is unknown whether the call was made, and finding out takes minutes.
    """

    def __init__(
        self,
        base_url: str,
        api_key: Secret,
        *,
        clock: Clock,
        max_bytes: int = REPLY_BYTES_MAX,
        dns: Dns | None = None,
    ) -> None:
        self._host = _checked_root(base_url)
        self._api_key = _checked_key(api_key)
        self._clock = clock
        self._max_bytes = max_bytes
        self._learnt: tuple[Secret, ...] = ()
        self._dns = dns or Dns(clock, keeps_answers=True)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def get(
        self, path: str, params: Mapping[str, str], timeout_s: float, *, fresh: bool
    ) -> NovitaReply:
        """Send a read. `fresh` uses a new connection, because the last one failed."""
        return await self._send("GET", path, timeout_s, fresh, params=params)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_s: float,
        send_by_s: float = math.inf,
        secrets: CallSecrets = NO_SECRETS,
    ) -> NovitaReply:
        """Send a change. No byte is sent after `send_by_s` of the boot-time clock.

        `secrets` are those of this call. The API key and the learned credentials of the account are added.
        """
        data = json.dumps(body).encode()
        return await self._send("POST", path, timeout_s, True, send_by_s, secrets, data=data)

    @property
    def account_secrets(self) -> CallSecrets:
        """The secrets that are redacted from every reply."""
        return CallSecrets((self._api_key, *self._learnt))

    def learn_credentials(self, credentials: tuple[Secret, ...]) -> None:
        """Set the account's credentials, replacing earlier ones."""
        self._learnt = credentials

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        await self._dns.close()

    async def _send(
        self,
        method: str,
        path: str,
        timeout_s: float,
        fresh: bool,
        send_by_s: float = math.inf,
        secrets: CallSecrets = NO_SECRETS,
        **content: Any,
    ) -> NovitaReply:
        session = self._session(fresh)
        progress = _Progress(lambda: self._clock.boottime() > send_by_s)
        try:
            async with asyncio.timeout(timeout_s):
                # guard: no redirects from the cloud
                response = await session.request(
                    method, self._url(path), allow_redirects=False, trace_request_ctx=progress, **content
                )
                progress.answered = True
                return await self._read_reply(response, secrets)
        except Exception as error:
            if not progress.written and not isinstance(
                error, aiohttp.ClientError | OSError | _PastSendDeadline
            ):
                raise
            if isinstance(error, aiohttp.ClientConnectorError | TimeoutError) and not progress.written:
                self._dns.distrust_answers()
            why, timed_out = _describe(error), isinstance(error, TimeoutError)
        # Raised outside the except block, so that no context keeps aiohttp's errors: some carry our headers.
        if not progress.written:
            raise NotSent(why)
        stale_connection = progress.reused and not progress.answered and not timed_out
        raise NoReply(why, timed_out=timed_out, stale_connection=stale_connection)

    def _url(self, path: str) -> str:
        return self._host + path if path.startswith(HOST_ROOT) else self._host + API_ROOT + path

    async def _read_reply(self, response: aiohttp.ClientResponse, secrets: CallSecrets) -> NovitaReply:
        try:
            raw = await self._read_body(response)
        except BaseException:
            response.close()
            raise
        retry_after_s = parse_retry_after(response.headers.get("Retry-After"), self._clock.now())
        involved = self.account_secrets.plus(secrets)
        return read_reply(response.status, raw, retry_after_s, involved, response.headers)

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._max_bytes:
                raise _ReplyTooLarge
        return bytes(body)

    def _session(self, fresh: bool) -> aiohttp.ClientSession:
        """Return the session of either kind.

        It is made on first use, because aiohttp needs a running loop.
        """
        if fresh not in self._sessions:
            self._sessions[fresh] = self._open_session(fresh)
        return self._sessions[fresh]

    def _open_session(self, fresh: bool) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS,
                force_close=fresh,
                resolver=_AiohttpResolver(self._dns),
                use_dns_cache=False,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # One deadline of ours, around each call, covers everything.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            trust_env=False,
            # A compressed reply counts as garbage, and can never be a decompression bomb.
            auto_decompress=False,
            headers={
                "Authorization": f"Bearer {self._api_key.reveal()}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": f"gpuherd/{__version__}",
            },
            trace_configs=[_progress_tracing()],
        )


def _progress_tracing() -> aiohttp.TraceConfig:
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(_note_reuse)
    tracing.on_request_headers_sent.append(_note_writing)
    return tracing


async def _note_reuse(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.reused = True


async def _note_writing(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    """Run just before the first byte. aiohttp repeats some methods by itself; this prevents it."""
    progress: _Progress = context.trace_request_ctx
    # guard: nothing is written twice by the library below
    if progress.written:
        raise _AlreadySent
    # guard: a call that was held up on its way is not sent
    if progress.is_late():
        # This process was suspended on the way here. Another may have decided otherwise by now.
        raise _PastSendDeadline
    progress.written = True


def _describe(error: Exception) -> str:
    """Describe an error without quoting it: its text may hold headers or parts of a reply."""
    match error:
        case TimeoutError():
            return "it took too long"
        case aiohttp.ClientConnectorDNSError():
            return "the host name could not be resolved"
        case aiohttp.ClientConnectorCertificateError():
            return "the certificate is not trusted"
        case aiohttp.ClientConnectorSSLError():
            return "no secure connection could be made"
        case aiohttp.ClientConnectorError():
            return "no connection could be made"
        case _ReplyTooLarge():
            return "the reply was too long"
        case _PastSendDeadline():
            return "gpuherd was held up before the call"
        case aiohttp.ClientPayloadError():
            return "the reply broke off"
        case aiohttp.ClientResponseError():
            return "the reply was not HTTP"
        case _:
            return "the connection broke"


def _checked_root(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise ValueError("the base URL of Novita must be http(s)://host[:port], without credentials")
    return base_url.rstrip("/")


def _checked_key(api_key: Secret) -> Secret:
    key = api_key.reveal()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("the Novita API key must be visible ASCII characters without spaces")
    return api_key
