"""Sends requests with aiohttp; connections are kept for the next request of any task of the same loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import aiohttp
from yarl import URL

from gpuherd.client.address import Address
from gpuherd.client.errors import ConnectionFailed
from gpuherd.client.transport.failures import reason_of
from gpuherd.client.transport.wire import USER_AGENT, Reply, Request

CONNECT_TIMEOUT_S = 5.0


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        # Not as the cause: it may hold the headers, and with them the key.
        raise ConnectionFailed(url, reason_of(error), sent=False) from None
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ConnectionFailed(url, reason_of(error), sent=True) from None


class AiohttpStream:
    """A reply that is being read, on a connection that is good for nothing else."""

    def __init__(self, reply: Reply, url: str, response: aiohttp.ClientResponse) -> None:
        self.reply = reply
        self._url = url
        self._response = response

    async def read(self) -> bytes:
        """Return what has come, as soon as something has; nothing at the end."""
        with _translated(self._url):
            return await self._response.content.readany()

    def close(self) -> None:
        self._response.close()


class AiohttpTransport:
    """The way to one server. No proxy of the environment gets between, no redirect is followed."""

    def __init__(self, address: Address, user_agent: str = USER_AGENT) -> None:
        self._address = address
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Reply:
        """Return the reply, whatever it says, or raise `ConnectionFailed`."""
        # Encoded: a name in the path is quoted already, and must not be unquoted or have its dots resolved.
        url = URL(self._address.url + request.target, encoded=True)
        timeout = aiohttp.ClientTimeout(total=request.timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        headers = {"User-Agent": self._user_agent, **request.headers, **self._address.headers}
        with _translated(self._address.url):
            async with self._opened().request(
                request.method,
                url,
                data=request.content,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                received = {name.lower(): value for name, value in response.headers.items()}
                return Reply(response.status, received, await response.read())

    async def listen(self, request: Request) -> AiohttpStream:
        """Begin to read a reply that does not end; a refusal is read to its end."""
        url = URL(self._address.url + request.target, encoded=True)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=request.timeout_s
        )
        headers = {"User-Agent": self._user_agent, **request.headers, **self._address.headers}
        with _translated(self._address.url):
            response = await self._opened().request(
                request.method, url, headers=headers, timeout=timeout, allow_redirects=False
            )
            received = {name.lower(): value for name, value in response.headers.items()}
            content = b"" if response.status == 200 else await response.read()
        return AiohttpStream(Reply(response.status, received, content), self._address.url, response)

    async def close(self) -> None:
        """Close what is open; the next request opens anew."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _opened(self) -> aiohttp.ClientSession:
        # Not in the constructor: a session belongs to the loop that is running when it is made.
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
        return self._session
