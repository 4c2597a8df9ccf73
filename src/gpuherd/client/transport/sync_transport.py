"""Sends requests with the standard library; connections are kept for the next request of any thread."""

from __future__ import annotations

import contextlib
import http.client
import socket

from gpuherd.client.address import Address
from gpuherd.client.clock import Clock
from gpuherd.client.errors import ConnectionFailed
from gpuherd.client.transport.failures import reason_of
from gpuherd.client.transport.wire import USER_AGENT, Reply, Request

CONNECT_TIMEOUT_S = 5.0
# Shorter than servers and proxies keep them: a connection that is just being closed loses a request.
IDLE_MAX_S = 20.0
CHUNK = 2**16
REFUSAL_MAX = 2**20


class HttpStream:
    """A reply that is being read, on a connection that is good for nothing else."""

    def __init__(
        self,
        reply: Reply,
        url: str,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
    ) -> None:
        self.reply = reply
        self._url = url
        self._connection = connection
        self._response = response

    def read(self) -> bytes:
        """Return what has come, as soon as something has; nothing at the end."""
        try:
            return self._response.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailed(self._url, reason_of(error), sent=True) from None

    def close(self) -> None:
        self._response.close()
        self._connection.close()


class HttpTransport:
    """The way to one server. No proxy of the environment gets between, no redirect is followed."""

    def __init__(self, address: Address, clock: Clock, user_agent: str = USER_AGENT) -> None:
        self._address = address
        self._clock = clock
        self._user_agent = user_agent
        # Appending and popping are atomic, so threads may share it.
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def send(self, request: Request) -> Reply:
        """Return the reply, whatever it says, or raise `ConnectionFailed`."""
        assert request.timeout_s is not None, "the caller must set a timeout"
        deadline = self._clock.monotonic() + request.timeout_s
        connection = self._connected(min(CONNECT_TIMEOUT_S, request.timeout_s))
        try:
            reply, stays_open = self._exchange(connection, request, deadline)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            # Not as the cause: it may hold the headers, and with them the key.
            raise ConnectionFailed(self._address.url, reason_of(error), sent=True) from None
        except BaseException:
            # What is half read would be taken for the beginning of the next reply.
            connection.close()
            raise
        if stays_open:
            self._idle.append((self._clock.monotonic(), connection))
        else:
            connection.close()
        return reply

    def listen(self, request: Request) -> HttpStream:
        """Begin to read a reply that does not end; a refusal is read to its end."""
        assert request.timeout_s is not None, "the caller must set a timeout"
        connection = self._connected(CONNECT_TIMEOUT_S)
        try:
            connection.sock.settimeout(request.timeout_s)
            headers = {"User-Agent": self._user_agent, **request.headers, **self._address.headers}
            connection.request(request.method, self._address.prefix + request.target, None, headers)
            response = connection.getresponse()
            content = b"" if response.status == 200 else response.read(REFUSAL_MAX)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectionFailed(self._address.url, reason_of(error), sent=True) from None
        except BaseException:
            connection.close()
            raise
        received = {name.lower(): value for name, value in response.getheaders()}
        return HttpStream(Reply(response.status, received, content), self._address.url, connection, response)

    def close(self) -> None:
        """Close what is open; the next request opens anew."""
        while (connection := self._reused()) is not None:
            connection.close()

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        while (connection := self._reused()) is not None:
            if connection.sock is not None and _is_quiet(connection.sock):
                return connection
            connection.close()
        address = self._address
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        connection = kind(address.host, address.port, timeout=timeout_s)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectionFailed(address.url, reason_of(error), sent=False) from None
        return connection

    def _reused(self) -> http.client.HTTPConnection | None:
        with contextlib.suppress(IndexError):
            since, connection = self._idle.pop()
            if self._clock.monotonic() - since > IDLE_MAX_S:
                connection.close()
                return self._reused()
            return connection
        return None

    def _exchange(
        self, connection: http.client.HTTPConnection, request: Request, deadline: float
    ) -> tuple[Reply, bool]:
        sock = connection.sock
        self._bound(sock, deadline)
        target = self._address.prefix + request.target
        headers = {"User-Agent": self._user_agent, **request.headers, **self._address.headers}
        connection.request(request.method, target, request.content, headers)
        response = connection.getresponse()
        content = bytearray()
        while chunk := response.read1(CHUNK):
            content += chunk
            self._bound(sock, deadline)
        if response.length:
            raise http.client.IncompleteRead(bytes(content), response.length)
        # It does not notice by itself that a body read in parts has ended, and would take no further request.
        response.close()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, received, bytes(content)), not response.will_close

    def _bound(self, sock: socket.socket, deadline: float) -> None:
        left_s = deadline - self._clock.monotonic()
        if left_s <= 0:
            raise TimeoutError
        sock.settimeout(left_s)


def _is_quiet(sock: socket.socket) -> bool:
    """Tell whether the other side still listens: nothing may come before it is asked, not even an end."""
    sock.settimeout(0)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, TimeoutError):
        return True
    except (OSError, ValueError):
        # TLS cannot peek; there the age must do.
        return hasattr(sock, "getpeercert")
    return False
