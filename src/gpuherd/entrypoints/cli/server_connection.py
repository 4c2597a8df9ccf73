"""One connection to the server: a dict goes in, a dict comes out. It needs the standard library only."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import quote, urlencode

from gpuherd import __version__
from gpuherd.entrypoints.cli.server_replies import (
    ServerRefusal,
    ServerReply,
    ServerUnreachable,
    UnexpectedReply,
    seconds_of,
)
from gpuherd.settings_loading import ServerAddress

USER_AGENT = f"gpuherd-cli/{__version__}"
CONNECT_TIMEOUT_S = 5.0
REPLY_TIMEOUT_S = 30.0
CHUNK_BYTES = 2**16


class ServerConnection:
    """Sends requests to one server. It repeats nothing: the user decides what to try again."""

    def __init__(self, address: ServerAddress, timeout_s: float | None = None) -> None:
        self.address = address
        self._timeout_s = REPLY_TIMEOUT_S if timeout_s is None else timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, /, **query: object) -> ServerReply:
        """Return the server's answer; a parameter that is None is left out."""
        given = _without_none(query)
        return self.request("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> ServerReply:
        """Send a change and return the server's answer; a field that is None is left out."""
        return self.request("POST", path, body, idempotency_key, timeout_s)

    def put(self, path: str, body: Mapping[str, Any]) -> ServerReply:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> ServerReply:
        return self.request("PATCH", path, body)

    def delete(self, path: str) -> ServerReply:
        return self.request("DELETE", path)

    def rows(self, path: str, name: str, /, *, everything: bool = False, **query: object) -> ServerReply:
        """Return a list of the server: its first page, or all pages put together as one."""
        reply = _with_rows(self.get(path, **query), name)
        if not everything:
            return reply
        found = list(reply[name])
        while cursor := reply.get("nextCursor"):
            reply = _with_rows(self.get(path, **query, cursor=cursor), name)
            found += reply[name]
            if reply.get("nextCursor") == cursor:
                raise UnexpectedReply("the server's list leads back to the same page for ever")
        return ServerReply({**reply, name: found})

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> ServerReply:
        """Return the server's answer, or raise a `ServerFailure`."""
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT, **self.address.headers}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = None if body is None else json.dumps(_without_none(body)).encode()
        deadline = time.monotonic() + (timeout_s or self._timeout_s)
        connection = self._connected()
        try:
            connection.request(method, self.address.prefix + path, content, headers)
            response, received = _receive(connection, deadline)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # Not as the cause: that error may hold the headers with the key.
            raise ServerUnreachable(self.address.url, _reason(error), sent=True) from None
        except BaseException:
            self.close()
            raise
        return _answer(method, path, response, received)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self) -> http.client.HTTPConnection:
        # A server may close an idle connection, and the request would be lost.
        self.close()
        address = self.address
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(address.host, address.port, timeout=min(CONNECT_TIMEOUT_S, self._timeout_s))
        try:
            self._connection.connect()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ServerUnreachable(address.url, _reason(error), sent=False) from None
        return self._connection


def path_of(*words: str) -> str:
    """Return `/api/…` with each name or id as one quoted segment."""
    return "/".join(("/api", *(quote(word, safe="").replace(".", "%2E") for word in words)))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _receive(
    connection: http.client.HTTPConnection, deadline: float
) -> tuple[http.client.HTTPResponse, bytes]:
    sock = connection.sock
    sock.settimeout(max(0.001, deadline - time.monotonic()))
    response = connection.getresponse()
    content = bytearray()
    while chunk := response.read1(CHUNK_BYTES):
        content += chunk
        sock.settimeout(max(0.001, deadline - time.monotonic()))
    if response.length:
        raise http.client.IncompleteRead(bytes(content), response.length)
    return response, bytes(content)


def _answer(method: str, path: str, response: http.client.HTTPResponse, content: bytes) -> ServerReply:
    status = response.status
    if status == 204:
        return ServerReply()
    try:
        body = json.loads(content, object_hook=ServerReply)
    except ValueError:
        body = None
    foreign = (
        f"{method} {path.partition('?')[0]} was answered with HTTP {status} and no document of gpuherd; "
        "is something else listening at this address?"
    )
    is_object = isinstance(body, ServerReply)
    if 200 <= status < 300:
        if not is_object:
            raise UnexpectedReply(foreign, status)
        return ServerReply(body)
    problem = body if is_object else {}
    refusal = ServerRefusal(
        status, problem, retry_after_s=seconds_of(response.getheader("Retry-After"), None), detail=foreign
    )
    refusal.request_id = refusal.request_id or response.getheader("X-Request-ID")
    raise refusal


def _with_rows(reply: ServerReply, name: str) -> ServerReply:
    rows = reply.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnexpectedReply(f"the server's answer has no list of {name}; is it as new as this client?")
    return reply


def _reason(error: BaseException) -> str:
    """Return why a connection failed, without quoting the request."""
    match error:
        case TimeoutError():
            return "no answer in time"
        case ConnectionRefusedError():
            return "connection refused"
        case OSError(strerror=str(words)) if words:
            return words
        case _:
            # Only the kind: the text of a protocol error may quote what was sent.
            return f"the connection broke ({type(error).__name__})"
