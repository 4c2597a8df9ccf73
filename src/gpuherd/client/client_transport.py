"""Carries the requests of the client to a gpuherd server with aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from gpuherd import __version__
from gpuherd.client.client_errors import ConnectionFailed
from gpuherd.client.server_address import Address

Json = dict[str, Any]

USER_AGENT = f"gpuherd-python/{__version__}"
CONNECT_TIMEOUT_S = 5.0
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True)
class Request:
    """One request. The transport adds the address and the API key."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Json | None = None
    idempotency_key: str | None = None
    # None: the timeout of the client.
    timeout_s: float | None = None
    # Statuses other than 2xx that are answers and not errors.
    accepted_statuses: frozenset[int] = field(default_factory=frozenset)
    # Of a stream: the last event that was received.
    last_event_id: str | None = None
    # A POST that changes nothing may be repeated without a key.
    is_read_only: bool = False

    def __post_init__(self) -> None:
        if self.idempotency_key is not None and not _KEY.fullmatch(self.idempotency_key):
            raise ValueError("an idempotency_key has 1 to 255 visible ASCII characters")

    @property
    def is_repeatable(self) -> bool:
        """Return True if two requests have the same effect as one."""
        return self.method == "GET" or self.is_read_only or self.idempotency_key is not None

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body).encode()

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self.last_event_id is not None:
            headers |= {"Accept": "text/event-stream", "Last-Event-ID": self.last_event_id}
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        if self.idempotency_key is not None:
            headers["Idempotency-Key"] = self.idempotency_key
        return headers


@dataclass(frozen=True)
class Reply:
    """A reply. The names of the headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Json | None:
        """Return the JSON object of the body, or None if there is none."""
        try:
            value = json.loads(self.content)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


class ReplyStream(Protocol):
    """A reply whose body comes in pieces."""

    reply: Reply

    async def read(self) -> bytes:
        """Return the next piece, or nothing at the end."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Carries requests to a server; tests bring their own."""

    async def send(self, request: Request) -> Reply: ...

    async def listen(self, request: Request) -> ReplyStream: ...

    async def close(self) -> None: ...


def get(path: str, /, **query: object) -> Request:
    """Return a GET request. A query parameter that is None is left out."""
    given = tuple((name, _query_value(value)) for name, value in query.items() if value is not None)
    return Request("GET", path, given)


def path_segment(word: str) -> str:
    """Quote a name or an id for a path, so that no character of it is taken as syntax."""
    if not word:
        # "/api/instances/" + "" would be another request.
        raise ValueError("an empty text names nothing")
    return quote(word, safe="").replace(".", "%2E")


class AiohttpTransport:
    """Sends requests to one server. It uses no proxy of the environment and follows no redirect."""

    def __init__(self, address: Address, user_agent: str = USER_AGENT) -> None:
        self._address = address
        self._user_agent = user_agent
        # A session belongs to its event loop. After a fork the child makes its own and keeps the parent's
        # untouched: both share the sockets.
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    async def send(self, request: Request) -> Reply:
        """Return the reply with any status, or raise `ConnectionFailed`."""
        timeout = aiohttp.ClientTimeout(total=request.timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        with _translated(self._address.url):
            async with self._request(request, timeout) as response:
                return _reply(response, await response.read())

    async def listen(self, request: Request) -> ReplyStream:
        """Begin to read a reply that has no end. `timeout_s` limits the silence between two pieces."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=request.timeout_s
        )
        with _translated(self._address.url):
            response = await self._request(request, timeout)
            content = b"" if response.status == 200 else await response.read()
        return _AiohttpStream(_reply(response, content), self._address.url, response)

    async def close(self) -> None:
        """Close the connections of this event loop. The next request opens new ones."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def _request(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.client._RequestContextManager:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            session = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
            self._sessions[loop] = session
        return session.request(
            request.method,
            # The path is quoted already: nothing may unquote it or resolve its dots.
            URL(self._address.url + request.target, encoded=True),
            data=request.content,
            headers={"User-Agent": self._user_agent, **request.headers, **self._address.headers},
            timeout=timeout,
            allow_redirects=False,
        )


class _AiohttpStream:
    """A reply that is being read. Its connection is not used again."""

    def __init__(self, reply: Reply, url: str, response: aiohttp.ClientResponse) -> None:
        self.reply = reply
        self._url = url
        self._response = response

    async def read(self) -> bytes:
        with _translated(self._url):
            return await self._response.content.readany()

    def close(self) -> None:
        self._response.close()


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        # Without a cause: it may hold the headers, and with them the key.
        raise ConnectionFailed(url, _reason_of(error), sent=False) from None
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ConnectionFailed(url, _reason_of(error), sent=True) from None


def _reason_of(error: BaseException) -> str:
    """Return the reason of a failure. It contains nothing of the request."""
    match getattr(error, "os_error", None) or error:
        case TimeoutError():
            return "no answer in time"
        case ConnectionRefusedError():
            return "connection refused"
        case OSError(strerror=str(words)) if words:
            return words
        case other:
            # Only the class: the text of a protocol error may quote what was sent.
            return f"the connection broke ({type(other).__name__})"


def _reply(response: aiohttp.ClientResponse, content: bytes) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status, headers, content)


def _query_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
