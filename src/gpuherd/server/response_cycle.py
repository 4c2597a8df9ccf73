"""Sends head and body of a reply with one system call, and looks at all its headers together.

uvicorn looks at each header by itself and writes head and body one after the other, and uvloop sends each
at once. What is not usual about a reply is left to uvicorn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

Headers = Sequence[tuple[bytes, bytes]]

# These say nothing about the connection.
PLAIN_HEADERS = frozenset(
    {
        *(b"content-type", b"location", b"cache-control", b"x-content-type-options"),
        *(b"x-request-id", b"x-correlation-id", _LENGTH := b"content-length"),
    }
)
# Beyond this it is cheaper to hand over two pieces than to copy them into one.
JOINED_BODY_MAX_BYTES = 64 * 1024


class ResponseCycle(RequestResponseCycle):
    """One request and its reply. A head that says how long its body is waits for it: it comes at once."""

    # Not sent yet. It is here because uvicorn makes the cycles, which become ours afterwards.
    _held_head = b""

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of the reply."""
        if self._held_head:
            if self._send_whole(message):
                return
            head, self._held_head = self._held_head, b""
            if not self.disconnected:
                self.transport.write(head)
        elif not self.response_started and self._hold_head(message):
            return
        await super().send(message)

    def _hold_head(self, message: ASGISendEvent) -> bool:
        """Keep the head until its body comes, and tell whether that is so."""
        if message["type"] != "http.response.start" or self.flow.write_paused or self.disconnected:
            return False
        headers = list(message.get("headers", ()))
        names, values = zip(*headers, strict=True) if headers else ((), ())
        is_usual = _LENGTH in names and PLAIN_HEADERS.issuperset(names)
        if not is_usual or not self.keep_alive or self.access_log or HEADER_VALUE_RE.search(b"".join(values)):
            return False
        self.response_started, self.waiting_for_100_continue = True, False
        self.expected_content_length, self.chunked_encoding = int(values[names.index(_LENGTH)]), False
        start = STATUS_LINE[message["status"]] + default_lines(self.default_headers)
        self._held_head = start + header_lines(headers) + b"\r\n"
        return True

    def _send_whole(self, message: ASGISendEvent) -> bool:
        """Send the head and all of the body, if that is what this is, and tell whether it was."""
        if message["type"] != "http.response.body" or message.get("more_body", False):
            return False
        body = message.get("body", b"")
        is_fitting = len(body) == self.expected_content_length and self.scope["method"] != "HEAD"
        # A shutdown may have come since the head: uvicorn then closes the connection after the body.
        if not is_fitting or not self.keep_alive or self.flow.write_paused or self.disconnected:
            return False
        head, self._held_head = self._held_head, b""
        if len(body) > JOINED_BODY_MAX_BYTES:
            self.transport.writelines([head, body])
        else:
            self.transport.write(head + body)
        self.expected_content_length, self.response_complete = 0, True
        self.message_event.set()
        self.on_response()
        return True


def header_lines(headers: Headers) -> bytes:
    """Return headers as they are on the wire."""
    return b"%b: %b\r\n" * len(headers) % tuple(chain.from_iterable(headers))


class _DefaultLines:
    """The lines of the headers that uvicorn adds to each reply: it makes a new list once a second."""

    def __init__(self) -> None:
        self._headers: Headers = ()
        self._lines = b""

    def __call__(self, headers: Headers) -> bytes:
        if headers is not self._headers:
            self._headers, self._lines = headers, header_lines(headers)
        return self._lines


default_lines = _DefaultLines()
