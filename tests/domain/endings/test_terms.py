"""Terms and the terms of leases: what is written down is what is read, and which term follows which."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpuherd.domain.instance.lease import (
    NO_TERMS,
    ActivityCheck,
    EndAction,
    Idleness,
    Lease,
    LeaseTerm,
    Silence,
    Terms,
    accepted_term,
    rented_term,
    started_term,
    term_of,
    term_until,
)

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
WARNING = timedelta(seconds=600)


def test_terms_are_read_as_they_were_written(subtests: pytest.Subtests) -> None:
    for terms in [
        NO_TERMS,
        Terms(Lease(seconds=60), Silence(300, EndAction.DELETE), delete_stopped_s=3600),
        Terms(idle=Idleness(300, 7, 8, ActivityCheck(8080, "/busy"), EndAction.DELETE)),
        Terms(idle=Idleness(1800)),
        Terms(Lease(until=LATER, then=EndAction.DELETE), Silence(silence_s=30)),
    ]:
        with subtests.test(terms=terms):
            assert Terms.from_doc(json.loads(json.dumps(terms.as_doc()))) == terms


def test_a_term_is_read_as_it_was_written() -> None:
    term = replace(term_until(LATER, NOON, WARNING, EndAction.DELETE), warned=True)
    assert LeaseTerm.from_doc(json.loads(json.dumps(term.as_doc()))) == term


def test_a_length_counts_from_the_rental_and_a_moment_from_the_start() -> None:
    assert accepted_term(Lease(seconds=60), NOON, WARNING) is None
    assert rented_term(Lease(seconds=60), None, LATER, WARNING) == term_of(60, LATER, WARNING)
    until = accepted_term(Lease(until=LATER), NOON, WARNING)
    assert until == term_until(LATER, NOON, WARNING)
    assert rented_term(Lease(until=LATER), until, NOON + timedelta(minutes=5), WARNING) == until


def test_a_start_after_the_end_has_a_fresh_term_of_the_same_length() -> None:
    ended = replace(term_until(LATER, NOON, WARNING, EndAction.DELETE), warned=True, ended=True)
    again = LATER + timedelta(days=1)
    assert started_term(ended, again, WARNING) == term_of(3600, again, WARNING, EndAction.DELETE)


def test_a_start_before_the_end_keeps_the_term() -> None:
    term = term_until(LATER, NOON, WARNING)
    assert started_term(term, NOON + timedelta(minutes=5), WARNING) is term


def test_a_clock_that_is_set_moves_the_term_with_it() -> None:
    set_to = NOON + timedelta(hours=3, minutes=10)
    moved = term_until(LATER, NOON, WARNING).moved(timedelta(hours=3), set_to)
    assert moved.ends_at == LATER + timedelta(hours=3)
    assert moved.warn_at == moved.ends_at - WARNING
    assert (moved.set_at, moved.length_s) == (set_to, 3600)


def test_the_version_before_reads_terms_with_idleness_as_if_there_was_none() -> None:
    doc = Terms(idle=Idleness(1800)).as_doc()
    assert (doc["lease"], doc["auto_stop"], doc["delete_stopped_s"]) == (None, None, None)
    del doc["idle"]
    assert Terms.from_doc(doc) == NO_TERMS
