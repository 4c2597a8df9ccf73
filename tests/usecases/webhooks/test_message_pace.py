"""Bursts are spread before they reach a chat that would refuse them."""

from __future__ import annotations

import pytest

from gpuherd.domain.notifications.kind import EndpointKind
from gpuherd.domain.webhooks.endpoint import WebhookEndpoint
from gpuherd.usecases.webhooks.message_pace import REMEMBERED_MAX, TURN_MAX_S, MessagePace
from tests.support.fake_clock import START, FakeClock


def endpoint(kind: EndpointKind = EndpointKind.SLACK, n: int = 1) -> WebhookEndpoint:
    return WebhookEndpoint(f"ep_{n}", "https://chat.example.com/x", START, "root", kind=kind)


async def test_each_of_a_burst_is_given_a_turn_of_its_own() -> None:
    clock = FakeClock()
    pace = MessagePace(clock)
    assert [pace.take(endpoint()) for _ in range(4)] == pytest.approx([0.0, 1.0, 2.0, 3.0])
    # Who comes back at that time may go.
    for _ in range(3):
        await clock.advance(1.0)
        assert pace.take(endpoint()) == 0.0
    # Another address is another line.
    assert pace.take(endpoint(n=2)) == 0.0


async def test_nobody_is_sent_away_for_longer_than_can_be_foreseen() -> None:
    pace = MessagePace(FakeClock())
    waits = [pace.take(endpoint()) for _ in range(200)]
    assert max(waits) == TURN_MAX_S


async def test_a_turn_that_was_not_used_is_the_next_ones() -> None:
    pace = MessagePace(FakeClock())
    assert pace.take(endpoint()) == 0.0
    pace.give_back(endpoint())
    assert pace.take(endpoint()) == 0.0


async def test_a_chat_that_asks_for_time_gets_it_from_all() -> None:
    clock = FakeClock()
    pace = MessagePace(clock)
    assert pace.take(endpoint()) == 0.0
    pace.throttled(endpoint(), 20.0)
    await clock.advance(2.0)
    assert pace.take(endpoint()) >= 18.0


@pytest.mark.parametrize("kind", [EndpointKind.WEBHOOK, EndpointKind.EMAIL])
async def test_programs_and_mail_are_not_held_up(kind: EndpointKind) -> None:
    pace = MessagePace(FakeClock())
    pace.throttled(endpoint(kind), 60.0)
    assert [pace.take(endpoint(kind)) for _ in range(100)] == [0.0] * 100
    assert pace.take(None) == 0.0


async def test_only_so_many_are_remembered() -> None:
    pace = MessagePace(FakeClock())
    for n in range(3 * REMEMBERED_MAX):
        pace.take(endpoint(n=n))
    assert len(pace._paces) == REMEMBERED_MAX
