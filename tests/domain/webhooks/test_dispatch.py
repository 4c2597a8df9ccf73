"""What becomes of a webhook that is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.webhooks.webhook_delivery import (
    DELIVERY_LIFETIME,
    AlreadySettled,
    DeadLetter,
    Delivery,
    DeliveryState,
    Dispatch,
    Postpone,
    QueuedDelivery,
    Receiver,
    SendNow,
    WaitForEarlier,
    dispatch,
)
from gpuherd.domain.webhooks.webhook_endpoint import WebhookEndpoint
from tests.support.builders import a_delivery
from tests.support.fake_clock import START

NOW = START + timedelta(minutes=10)
ENDPOINT = WebhookEndpoint("ep_1", "https://example.com/hook", START, "root")


def later(**changes: Any) -> Delivery:
    return a_delivery(sequence=2, created_at=START, **changes)


def earlier(**changes: Any) -> Delivery:
    return a_delivery(sequence=1, created_at=START, **changes)


def decide(it: Delivery, receiver: Receiver | None = None, **stands_before: Any) -> Dispatch:
    return dispatch(QueuedDelivery(it, **stands_before), receiver or Receiver(), NOW)


def test_what_nothing_stands_before_goes() -> None:
    assert decide(later()) == SendNow()
    assert decide(later(endpoint_id="ep_1"), Receiver(ENDPOINT)) == SendNow()


@pytest.mark.parametrize("state", [DeliveryState.DELIVERED, DeliveryState.DEAD])
def test_what_is_settled_is_not_sent_again(state: DeliveryState) -> None:
    assert decide(later(state=state), is_gone=True, earlier=earlier()) == AlreadySettled()


def test_an_earlier_event_that_was_never_tried_goes_first() -> None:
    assert decide(later(), earlier=earlier()) == WaitForEarlier()
    assert decide(later(tries=3), earlier=earlier()) == WaitForEarlier()


def test_a_first_try_does_not_wait_for_a_repeat() -> None:
    assert decide(later(), earlier=earlier(tries=1, tried_at=START)) == SendNow()


def test_a_repeat_lets_an_earlier_one_go_first_and_wakes_it() -> None:
    waiting = earlier(tries=1, tried_at=NOW - timedelta(seconds=60))
    assert decide(later(tries=1), earlier=waiting) == WaitForEarlier(waiting)


def test_a_repeat_does_not_wait_for_one_that_failed_just_now() -> None:
    failed = earlier(tries=1, tried_at=NOW - timedelta(seconds=59))
    assert decide(later(tries=1), earlier=failed) == SendNow()


def test_nothing_goes_to_a_url_that_is_gone_but_a_replay() -> None:
    gone = DeadLetter("gone: the receiver answered 410 to an earlier event")
    assert decide(later(), is_gone=True) == gone
    assert decide(later(replays=1), is_gone=True) == SendNow()


def test_nothing_goes_to_an_endpoint_that_is_removed_or_disabled() -> None:
    it = later(endpoint_id="ep_1")
    assert decide(it) == DeadLetter("removed: the endpoint is no longer there")
    assert decide(it, Receiver(ENDPOINT.disabled("by hand", START))) == DeadLetter("disabled: by hand")


def test_a_missing_key_and_an_ejected_host_are_waited_for() -> None:
    it = later(endpoint_id="ep_1")
    no_key = decide(it, Receiver(ENDPOINT, has_key=False))
    assert no_key == Postpone(60.0, "the root key of the receiver's secret is not here")
    ejected = decide(later(), Receiver(ejected_s=12.5))
    assert ejected == Postpone(12.5, "the receiver's host has failed too often lately")


def test_nothing_is_waited_for_beyond_the_deadline() -> None:
    old = replace(later(), created_at=NOW - DELIVERY_LIFETIME)
    expired = decide(old, Receiver(ejected_s=12.5))
    assert expired == DeadLetter("expired: the receiver's host has failed too often lately")
    assert decide(old) == SendNow()
