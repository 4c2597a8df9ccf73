"""The way to the server: where it is, and one typed client that asks it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from gpuherd import __version__
from gpuherd.entrypoints.cli.runtime.problems import BadConfiguration, CannotConnect, not_ours, problem_of

Json = dict[str, Any]
Query = Sequence[tuple[str, str]]

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Connection:
    """Where the server is and who we are. The key stays out of repr."""

    url: str
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            url = URL(self.url)
        except ValueError:
            url = URL()
        if url.scheme not in ("http", "https") or not url.host:
            raise BadConfiguration("GPUHERD_URL must look like http://127.0.0.1:8080")
        if url.user is not None or url.password is not None:
            # It would be printed with every "cannot reach", and beside the key it has no meaning.
            raise BadConfiguration("GPUHERD_URL must not contain a user or a password; use GPUHERD_API_KEY")
        if self.api_key is not None and not VISIBLE_ASCII.fullmatch(self.api_key):
            raise BadConfiguration("GPUHERD_API_KEY must be one word of visible ASCII characters")


@dataclass(frozen=True)
class Reply:
    """A good answer."""

    status: int
    headers: Mapping[str, str]
    body: Json


class ApiClient:
    """Speaks JSON with one server. Nothing is repeated here: the caller knows what may be."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._session = session

    async def get(self, path: str, query: Query = (), *, timeout_s: float = REQUEST_TIMEOUT_S) -> Reply:
        return await self._ask("GET", path, query=query, timeout_s=timeout_s)

    async def post(
        self,
        path: str,
        body: Json,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Reply:
        return await self._ask("POST", path, body=body, headers=headers, timeout_s=timeout_s)

    async def delete(self, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Reply:
        return await self._ask("DELETE", path, timeout_s=timeout_s)

    async def listen(
        self, path: str, query: Query, headers: Mapping[str, str], *, silence_s: float
    ) -> AsyncIterator[bytes]:
        """Give a reply that does not end as it comes; `CannotConnect` when it breaks or is silent so long."""
        url = URL(self.url + path, encoded=True).extend_query(query)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        try:
            async with self._session.get(
                url, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    _reply(response.status, response.headers, await response.read())
                    raise not_ours(response.status)
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise CannotConnect(self.url, _reason(error), sent=False) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CannotConnect(self.url, _reason(error), sent=True) from error

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Reply:
        # `encoded`: a name in the path is already quoted, and must not be unquoted or have its dots resolved.
        url = URL(self.url + path, encoded=True).extend_query(query)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with self._session.request(
                method, url, json=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return _reply(response.status, response.headers, await response.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise CannotConnect(self.url, _reason(error), sent=False) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CannotConnect(self.url, _reason(error), sent=True) from error


@asynccontextmanager
async def connected(connection: Connection) -> AsyncIterator[ApiClient]:
    """Hold a client for `connection`; no proxy and no netrc from the environment gets between."""
    headers = {"Accept": "application/json", "User-Agent": f"gpuherd-cli/{__version__}"}
    if connection.api_key:
        headers["Authorization"] = f"Bearer {connection.api_key}"
    async with aiohttp.ClientSession(headers=headers, trust_env=False) as session:
        yield ApiClient(connection.url, session)


def _reply(status: int, headers: Mapping[str, str], raw: bytes) -> Reply:
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if not 200 <= status < 300:
        raise problem_of(status, headers, body if isinstance(body, dict) else {})
    if not isinstance(body, dict):
        raise not_ours(status)
    return Reply(status, headers, body)


def _reason(error: Exception) -> str:
    cause = getattr(error, "os_error", None)
    match cause or error:
        case TimeoutError():
            return "no answer in time"
        case ConnectionRefusedError():
            return "connection refused"
        case OSError(strerror=str(words)) if words:
            return words
        case other:
            return str(other) or type(other).__name__
