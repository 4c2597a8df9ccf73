"""When the time of an instance is over, and when somebody has to look."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.instance.idleness import UseWatch
from gpuherd.domain.instance.lease import (
    EndAction,
    Idleness,
    Lease,
    LeaseTerm,
    Silence,
    Terms,
    term_of,
)
from gpuherd.domain.instance.scheduled_end import (
    DATA_KEPT,
    DATA_WARNING_AFTER,
    End,
    EndCause,
    Situation,
    WarnData,
    WarnLease,
    ending,
    next_due,
)

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
WARNING = timedelta(seconds=600)
HOUR = Terms(lease=Lease(seconds=3600))
SILENT = Terms(silence=Silence(silence_s=60))


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def running(term: LeaseTerm | None = None, used_at: datetime | None = None) -> Situation:
    return Situation(term, can_stop=True, usable_since=NOON, used_at=used_at)


def hour(*, warned: bool = False, ended: bool = False) -> LeaseTerm:
    return replace(term_of(3600, NOON, WARNING), warned=warned, ended=ended)


def decide(
    terms: Terms, it: Situation, now: datetime, up_since: datetime = NOON - timedelta(days=1)
) -> object:
    return ending(terms, it, now, up_since)


@pytest.mark.proves("E1")
def test_a_lease_ends_at_its_end_and_not_a_microsecond_before() -> None:
    it = running(hour(warned=True))
    assert decide(HOUR, it, after(3600) - timedelta.resolution) is None
    end = decide(HOUR, it, after(3600))
    assert isinstance(end, End) and (end.cause, end.action) == (EndCause.LEASE, EndAction.STOP)


def test_an_end_is_announced_ahead_and_once() -> None:
    assert decide(HOUR, running(hour()), after(2999)) is None
    assert decide(HOUR, running(hour()), after(3000)) == WarnLease(after(3600))
    assert decide(HOUR, running(hour(warned=True)), after(3000)) is None


def test_a_short_lease_is_announced_in_its_second_half() -> None:
    short = term_of(20, NOON, WARNING)
    assert decide(HOUR, running(short), after(9)) is None
    assert decide(HOUR, running(short), after(10)) == WarnLease(after(20))


def test_what_cannot_be_stopped_at_the_end_is_deleted() -> None:
    end = decide(HOUR, Situation(hour(), can_stop=False), after(3600))
    assert isinstance(end, End) and end.action is EndAction.DELETE


def test_what_is_stopped_already_is_left_alone_unless_its_lease_says_delete() -> None:
    it = Situation(hour(), can_stop=False, stopped_since=after(60), data_warned=True)
    assert decide(HOUR, it, after(3600)) is None
    until_deleted = replace(it, term=term_of(3600, NOON, WARNING, EndAction.DELETE))
    end = decide(HOUR, until_deleted, after(3600))
    assert isinstance(end, End) and end.action is EndAction.DELETE


def test_a_lease_ends_once() -> None:
    assert decide(HOUR, running(hour(ended=True)), after(9999)) is None
    assert next_due(HOUR, running(hour(ended=True))) is None


def test_silence_counts_from_the_last_word() -> None:
    assert decide(SILENT, running(used_at=after(30)), after(89)) is None
    end = decide(SILENT, running(used_at=after(30)), after(90))
    assert isinstance(end, End) and (end.cause, end.action) == (EndCause.SILENCE, EndAction.STOP)


@pytest.mark.proves("E7")
def test_silence_while_nobody_could_have_been_heard_is_no_silence() -> None:
    assert decide(SILENT, running(), after(500), up_since=after(450)) is None
    assert isinstance(decide(SILENT, running(), after(510), up_since=after(450)), End)


def test_silence_does_not_begin_before_it_could_be_used() -> None:
    assert decide(SILENT, Situation(None, can_stop=True), after(9999)) is None


def test_a_verdict_of_idleness_must_be_fresh_and_nobody_have_used_it_since() -> None:
    idle = Terms(idle=Idleness(1800))
    watch = UseWatch(NOON, NOON, ends_at=NOON, warned=True, is_over=True)
    it = replace(running(), usable_since=NOON - timedelta(days=1), watch=watch)
    end = ending(idle, it, NOON, NOON)
    assert isinstance(end, End) and (end.cause, end.action) == (EndCause.IDLE, EndAction.STOP)
    for off in (timedelta(minutes=2), timedelta(minutes=-2)):
        assert ending(idle, it, NOON + off, NOON) is None
    assert ending(idle, replace(it, used_at=NOON - timedelta(minutes=1)), NOON, NOON) is None
    assert ending(idle, replace(it, watch=replace(watch, is_over=False)), NOON, NOON) is None
    assert ending(idle, replace(it, can_stop=False), NOON, NOON) is None


def test_a_stopped_one_is_deleted_after_its_time() -> None:
    terms = Terms(delete_stopped_s=100)
    it = Situation(None, can_stop=False, stopped_since=NOON)
    assert decide(terms, it, after(99)) is None
    end = decide(terms, it, after(100))
    assert isinstance(end, End) and (end.cause, end.action) == (EndCause.STOPPED, EndAction.DELETE)


def test_the_end_of_the_data_is_announced_once() -> None:
    it = Situation(None, can_stop=False, stopped_since=NOON)
    assert decide(Terms(), it, NOON + DATA_WARNING_AFTER) == WarnData(NOON + DATA_KEPT)
    told = Situation(None, can_stop=False, stopped_since=NOON, data_warned=True)
    assert decide(Terms(), told, NOON + DATA_KEPT) is None


seconds = st.integers(0, 2_000_000)
actions = st.sampled_from(EndAction)
terms_of_any_kind = st.builds(
    Terms,
    lease=st.none() | st.builds(Lease, seconds=st.integers(10, 100_000), then=actions),
    silence=st.none() | st.builds(Silence, silence_s=st.integers(10, 100_000), then=actions),
    delete_stopped_s=st.none() | st.integers(10, 100_000),
)
moments = seconds.map(after)
terms_of_leases = st.none() | st.builds(
    lambda length_s, then, warned, ended: replace(
        term_of(length_s, NOON, WARNING, then), warned=warned, ended=ended
    ),
    st.integers(10, 1_000_000),
    actions,
    st.booleans(),
    st.booleans(),
)
situations = st.builds(
    Situation,
    term=terms_of_leases,
    can_stop=st.just(True),
    data_warned=st.booleans(),
    usable_since=st.none() | moments,
    used_at=st.none() | moments,
) | st.builds(
    Situation,
    term=terms_of_leases,
    can_stop=st.just(False),
    is_stopping=st.booleans(),
    stopped_since=st.none() | moments,
    data_warned=st.booleans(),
)


@given(terms_of_any_kind, situations, moments)
def test_whoever_looks_when_it_is_due_misses_no_end(terms: Terms, it: Situation, now: datetime) -> None:
    due = next_due(terms, it)
    has_ended = decide(terms, it, now) is not None
    assert has_ended == (due is not None and due <= now)
