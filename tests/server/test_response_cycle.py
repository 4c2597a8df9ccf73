"""Head and body of a reply leave together; whatever is not usual about a reply leaves as uvicorn sends it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gpuherd.server.response_cycle import JOINED_BODY_MAX_BYTES, ResponseCycle, default_lines

JSON = (b"content-type", b"application/json")
DATE = [(b"date", b"Tue, 17 Nov 2026 06:00:00 GMT"), (b"server", b"uvicorn")]


class Wire:
    """What was sent, one entry for each call to the system."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Reply:
    """A cycle as uvicorn makes it, and what it did."""

    def __init__(self, kind: type[RequestResponseCycle] = ResponseCycle, **options: Any):
        self.wire, self.done = Wire(), 0
        transport = cast(asyncio.Transport, self.wire)
        self.flow = FlowControl(transport)
        given = {"keep_alive": True, "access_log": False, "expect_100_continue": False, **options}
        method = given.pop("method", "GET")
        self.cycle = RequestResponseCycle(
            scope=cast(Any, {"type": "http", "method": method, "http_version": "1.1"}),
            transport=transport,
            flow=self.flow,
            logger=logging.getLogger("test"),
            access_logger=logging.getLogger("test"),
            default_headers=DATE,
            message_event=asyncio.Event(),
            on_response=self._end,
            **given,
        )
        self.cycle.__class__ = kind

    def _end(self) -> None:
        self.done += 1

    async def start(self, *headers: tuple[bytes, bytes], status: int = 200) -> None:
        await self.cycle.send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes, *, more: bool = False) -> None:
        await self.cycle.send({"type": "http.response.body", "body": data, "more_body": more})


def length(size: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % size


async def test_head_and_body_are_sent_together() -> None:
    reply = Reply()
    await reply.start(JSON, length(4))
    assert reply.wire.sent == []
    await reply.body(b"body")
    assert reply.wire.sent == [
        b"HTTP/1.1 200 OK\r\ndate: Tue, 17 Nov 2026 06:00:00 GMT\r\nserver: uvicorn\r\n"
        b"content-type: application/json\r\ncontent-length: 4\r\n\r\nbody"
    ]
    assert (reply.cycle.response_complete, reply.done, reply.wire.closed) == (True, 1, False)


OTHERS: dict[str, tuple[dict[str, Any], list[tuple[bytes, bytes]], list[tuple[bytes, bool]]]] = {
    "usual": ({}, [JSON, length(4)], [(b"body", False)]),
    "empty": ({}, [JSON, length(0)], [(b"", False)]),
    "large": ({}, [JSON, length(JOINED_BODY_MAX_BYTES + 1)], [(b"x" * (JOINED_BODY_MAX_BYTES + 1), False)]),
    "in pieces": ({}, [JSON, length(8)], [(b"body", True), (b"more", False)]),
    "of unknown length": ({}, [JSON], [(b"body", True), (b"", False)]),
    "asked for with HEAD": ({"method": "HEAD"}, [JSON, length(4)], [(b"", False)]),
    "last of its connection": ({"keep_alive": False}, [JSON, length(4)], [(b"body", False)]),
    "ends its connection": ({}, [length(4), (b"connection", b"close")], [(b"body", False)]),
    "with another header": ({}, [length(4), (b"set-cookie", b"a=b")], [(b"body", False)]),
    "after a promise": ({"expect_100_continue": True}, [length(4)], [(b"body", False)]),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_the_bytes_are_those_that_uvicorn_would_send(name: str) -> None:
    options, headers, parts = OTHERS[name]
    replies = Reply(ResponseCycle, **options), Reply(RequestResponseCycle, **options)
    for reply in replies:
        await reply.start(*headers)
        for data, more in parts:
            await reply.body(data, more=more)
    ours, theirs = replies
    assert b"".join(ours.wire.sent) == b"".join(theirs.wire.sent)
    assert ours.wire.closed == theirs.wire.closed
    ends = [(it.done, it.cycle.response_complete, it.cycle.waiting_for_100_continue) for it in replies]
    assert ends[0] == ends[1] == (1, True, False)


async def test_a_shutdown_between_head_and_body_ends_the_connection_after_the_body() -> None:
    reply = Reply()
    await reply.start(JSON, length(4))
    reply.cycle.keep_alive = False
    await reply.body(b"body")
    assert b"".join(reply.wire.sent).endswith(b"\r\n\r\nbody")
    assert (reply.wire.closed, reply.done) == (True, 1)


async def test_a_reply_may_come_without_headers_of_its_own() -> None:
    reply = Reply()
    await reply.cycle.send({"type": "http.response.start", "status": 204})
    await reply.body(b"")
    assert reply.wire.sent[0].startswith(b"HTTP/1.1 204 No Content\r\n")
    assert reply.done == 1


async def test_a_stream_begins_at_once() -> None:
    reply = Reply()
    await reply.start((b"content-type", b"text/event-stream"))
    assert len(reply.wire.sent) == 1


@pytest.mark.parametrize("header", [(b"location", b"/a\r\nset-cookie: b=c"), (b"x-request-id", b"a\x00")])
async def test_no_value_can_end_its_line(header: tuple[bytes, bytes]) -> None:
    reply = Reply()
    with pytest.raises(RuntimeError, match="Invalid HTTP header value"):
        await reply.start(JSON, length(4), header)
    assert reply.wire.sent == []


@pytest.mark.parametrize("body", [b"too long", b"no"])
async def test_a_body_of_another_length_is_an_error(body: bytes) -> None:
    reply = Reply()
    await reply.start(JSON, length(4))
    with pytest.raises(RuntimeError, match="Content-Length"):
        await reply.body(body)
    assert not reply.cycle.response_complete


async def test_nothing_is_sent_to_somebody_who_has_left() -> None:
    reply = Reply()
    await reply.start(JSON, length(4))
    reply.cycle.disconnected = True
    await reply.body(b"body")
    assert reply.wire.sent == []


async def test_a_reader_who_is_slow_is_waited_for() -> None:
    reply = Reply()
    await reply.start(JSON, length(4))
    reply.flow.pause_writing()
    sending = asyncio.create_task(reply.body(b"body"))
    await asyncio.sleep(0)
    assert b"body" not in b"".join(reply.wire.sent)
    reply.flow.resume_writing()
    await sending
    assert reply.wire.sent[-1] == b"body"
    assert reply.done == 1


async def test_a_second_reply_is_an_error() -> None:
    reply = Reply()
    await reply.start(JSON, length(4))
    await reply.body(b"body")
    with pytest.raises(RuntimeError, match="after response already completed"):
        await reply.body(b"body")


def test_what_uvicorn_adds_follows_its_list() -> None:
    assert default_lines([(b"date", b"one")]) == b"date: one\r\n"
    assert default_lines([(b"date", b"two")]) == b"date: two\r\n"
