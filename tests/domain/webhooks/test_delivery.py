"""A delivery and its tries, and URLs as they may be shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.backoff import SPAN_S
from gpuherd.domain.egress_policy import redact_query, redact_urls
from gpuherd.domain.webhooks.webhook_delivery import (
    DELIVERY_LIFETIME,
    TRIES_KEPT,
    DeliveryState,
    DeliveryTry,
)
from tests.support.builders import a_delivery
from tests.support.fake_clock import START

SECOND = timedelta(seconds=1)


def test_the_latest_tries_are_kept_and_no_more() -> None:
    one = a_delivery()
    for n in range(50):
        one = one.with_try(DeliveryTry(START + n * SECOND, "http_5xx", 500, n), f"try {n}")
    assert [it.duration_ms for it in one.log] == list(range(50 - TRIES_KEPT, 50))
    assert (one.tried_at, one.last_status, one.last_error) == (START + 49 * SECOND, 500, "try 49")
    assert one.tries == 0


def test_a_try_is_early_before_the_moment_that_the_schedule_says() -> None:
    assert not a_delivery().is_early(START)
    waiting = a_delivery(tries=1, next_at=START + SECOND)
    assert waiting.is_early(START)
    assert not waiting.is_early(START + SECOND)


def test_who_is_sent_again_has_all_tries_and_all_its_time_before_it() -> None:
    dead = a_delivery(tries=10, last_status=500).dead_lettered()
    later = START + timedelta(days=20)
    reset_for_replay = dead.reset_for_replay(later)
    assert (reset_for_replay.state, reset_for_replay.tries, reset_for_replay.replays) == (
        DeliveryState.PENDING,
        0,
        1,
    )
    assert (reset_for_replay.id, reset_for_replay.body) == (dead.id, dead.body)
    assert (reset_for_replay.first_due_at, reset_for_replay.deadline) == (later, later + DELIVERY_LIFETIME)
    assert a_delivery().first_due_at == START


def test_the_schedule_ends_before_the_lifetime_does() -> None:
    assert timedelta(seconds=1.2 * SPAN_S) < DELIVERY_LIFETIME


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://example.com/hook", "https://example.com/hook"),
        ("https://example.com/hook?token=1&x=2", "https://example.com/hook?***"),
        ("https://example.com/hook?", "https://example.com/hook?***"),
        ("https://example.com/?a?b", "https://example.com/?***"),
    ],
)
def test_the_query_of_a_url_is_hidden(url: str, kept: str) -> None:
    assert redact_query(url) == kept


def test_every_url_in_a_payload_is_hidden_so() -> None:
    payload = {
        "type": "instance.ready",
        "why?": "is it? yes",
        "data": {
            "urls": ["see https://a.example/x?k=canary now", 7, None],
            "deep": {"u": "HTTP://b/#canary"},
        },
    }
    assert redact_urls(payload) == {
        "type": "instance.ready",
        "why?": "is it? yes",
        "data": {"urls": ["see https://a.example/x?*** now", 7, None], "deep": {"u": "HTTP://b/?***"}},
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text("ab ?#/:"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    )
)
def test_what_holds_no_url_is_shown_as_it_is(value: Any) -> None:
    assert "://" in repr(value) or redact_urls(value) == value
