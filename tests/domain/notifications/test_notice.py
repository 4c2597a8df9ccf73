"""What each event says to a person."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.instance.instance_event import ENDPOINT_WEBHOOK_TYPES, WEBHOOK_TEST
from gpuherd.domain.webhooks.people_message import (
    _WORDS,
    Notice,
    NoticeLevel,
    notice_lines,
    notice_of,
    plain_words,
)
from gpuherd.domain.webhooks.webhook_endpoint import READ_BY_PEOPLE, EndpointKind, default_events
from tests.domain.notifications.hostile_words import HOSTILE_WORDS

INSTANCE_ID = "inst_01kdvdna00sngxhwbavy8vep2a"
INSTANCE = {
    "instanceId": INSTANCE_ID,
    "name": "trainer",
    "status": "running",
    "statusReason": "running",
    "goal": "running",
    "usable": True,
    "productName": "RTX 4090 24GB",
    "gpuNum": 2,
    "region": "CN-HK-01",
    "hourlyPrice": "0.35",
    "cloudInstanceId": "8b529b4a97b75092",
    "connectionDetails": {"ssh": "ssh -p 39516 root@proxy.example", "jupyter": "https://x/?token=canary"},
    "lease": {"endsAt": "2026-01-01T08:00:00.000000Z", "seconds": 28800, "then": "stop"},
    "lossExpectedAt": None,
}


def event(kind: str = "instance.ready", **data: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": "2026-01-01T00:00:00.000000Z", "data": {**INSTANCE, **data}}


def test_an_instance_that_is_ready_says_what_it_is_what_it_costs_and_how_to_log_in() -> None:
    assert notice_of(event()) == Notice(
        title="trainer is ready",
        text="",
        level=NoticeLevel.GOOD,
        type="instance.ready",
        at=notice_of(event()).at,
        facts=(
            ("GPU", "2 × RTX 4090 24GB"),
            ("Region", "CN-HK-01"),
            ("Price", "$0.35 an hour"),
            ("Ends", "2026-01-01 08:00 UTC, then stop"),
            ("Machine", "8b529b4a97b75092"),
            ("Id", INSTANCE_ID),
        ),
        command=f"gpuherd ssh {INSTANCE_ID}",
    )
    # A link with a token in it would let in everybody who reads the channel.
    assert "canary" not in str(notice_of(event()))


def test_a_lease_that_ends_says_how_to_extend_it() -> None:
    notice = notice_of(event("instance.lease_ending"))
    assert (notice.title, notice.level) == ("trainer ends soon", NoticeLevel.WARNING)
    assert notice.command == f"gpuherd lease {INSTANCE_ID} +2h"


@pytest.mark.parametrize(
    ("goal", "title", "level"),
    [
        ("running", "trainer has stopped by itself", NoticeLevel.BAD),
        ("stopped", "trainer has stopped", NoticeLevel.INFO),
    ],
)
def test_a_stop_that_nobody_asked_for_is_a_loss(goal: str, title: str, level: NoticeLevel) -> None:
    notice = notice_of(event("instance.exited", goal=goal))
    assert (notice.title, notice.level) == (title, level)


def test_a_budget_says_how_much_of_it_is_spent() -> None:
    data = {
        "budgetId": "bud_1",
        "name": "nlp",
        "percent": 80,
        "spent": "8.1",
        "amount": "10",
        "reason": "why",
    }
    notice = notice_of({"type": "budget.warning", "timestamp": "2026-01-01T00:00:00Z", "data": data})
    assert (notice.title, notice.text) == ("Budget nlp: 80 % is spent", "why")
    assert notice.facts == (("Spent", "$8.1 of $10"), ("Id", "bud_1"))


def test_every_event_that_an_endpoint_can_hear_of_has_words_or_falls_back_to_its_name() -> None:
    for kind in (*ENDPOINT_WEBHOOK_TYPES, WEBHOOK_TEST, "instance.of_a_later_version"):
        assert notice_of(event(kind)).title
    assert notice_of(event("instance.of_a_later_version")).title == "trainer: of a later version"
    assert set(_WORDS) <= ENDPOINT_WEBHOOK_TYPES | {WEBHOOK_TEST}


def test_people_are_told_what_they_want_to_read_and_programs_everything() -> None:
    assert default_events(EndpointKind.WEBHOOK) == ()
    for kind in set(EndpointKind) - {EndpointKind.WEBHOOK}:
        assert default_events(kind) == READ_BY_PEOPLE
    # Stored in this order, and all of them can be asked for.
    assert list(READ_BY_PEOPLE) == sorted(set(READ_BY_PEOPLE) & ENDPOINT_WEBHOOK_TYPES)
    assert not {"instance.created", "instance.starting", "instance.running"} & set(READ_BY_PEOPLE)


def test_what_a_stranger_chose_is_one_short_visible_line_and_never_in_a_command(
    subtests: pytest.Subtests,
) -> None:
    for word in HOSTILE_WORDS:
        with subtests.test(word=word):
            notice = notice_of(
                event(
                    "instance.failed",
                    name=word,
                    statusReason=word,
                    productName=word,
                    region=word,
                    cloudInstanceId=word,
                    instanceId=word,
                    hourlyPrice=word,
                    gpuNum=word,
                    lease={"endsAt": "2026-01-01T08:00:00Z", "then": word},
                )
            )
            assert notice.command == ""
            for line in (notice.title, notice.text, notice.type, *(value for _, value in notice.facts)):
                assert line.isprintable() and len(line) <= 600
                assert not {unicodedata.category(char) for char in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
                line.encode()
            assert len(notice.title) <= 120


def test_a_body_that_lacks_everything_is_still_said() -> None:
    assert notice_of({}).title == "gpuherd:"
    odd = notice_of({"type": 7, "timestamp": "soon", "data": ["x"]})
    assert (odd.text, odd.facts, odd.command) == ("", (), "")
    assert notice_lines(odd) == []


@given(st.text(), st.integers(1, 300))
def test_plain_words_fit_on_one_line_of_that_length(text: str, most: int) -> None:
    line = plain_words(text, most)
    assert len(line) <= most
    assert line.isprintable() or line == ""
    assert plain_words(line, most) == line
