"""Head and body of a reply leave together, and nothing that was written is kept for long or lost."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from gpuherd.server.coalescing_transport import CoalescingTransport


class Wire:
    """What was sent, one entry for each call to the system."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 7


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def joined(wire: Wire) -> CoalescingTransport:
    return CoalescingTransport(cast(asyncio.Transport, wire), asyncio.get_running_loop())


async def test_head_and_body_are_sent_together(wire: Wire, joined: CoalescingTransport) -> None:
    joined.write(b"head")
    assert wire.sent == []
    joined.write(b"body")
    assert wire.sent == [b"headbody"]
    await asyncio.sleep(0)
    assert wire.sent == [b"headbody"], "once is enough"


async def test_what_stays_alone_does_not_wait_for_the_next_round(
    wire: Wire, joined: CoalescingTransport
) -> None:
    joined.write(b"head")
    await asyncio.sleep(0)
    assert wire.sent == [b"head"]


async def test_the_order_is_kept(wire: Wire, joined: CoalescingTransport) -> None:
    for n in range(7):
        joined.write(b"%d" % n)
        if n == 4:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert b"".join(wire.sent) == b"0123456"


async def test_a_close_sends_what_is_kept_first(wire: Wire, joined: CoalescingTransport) -> None:
    joined.write(b"goodbye")
    joined.close()
    assert (wire.sent, wire.closed) == ([b"goodbye"], True)


async def test_nothing_is_sent_after_an_abort_or_to_somebody_who_has_left(
    wire: Wire, joined: CoalescingTransport
) -> None:
    joined.write(b"head")
    joined.abort()
    await asyncio.sleep(0)
    joined.write(b"more")
    joined.write(b"and more")
    joined.write(b"alone")
    await asyncio.sleep(0)
    assert wire.sent == []


async def test_everything_else_is_the_transport_s_own(joined: CoalescingTransport) -> None:
    assert joined.get_write_buffer_size() == 7
