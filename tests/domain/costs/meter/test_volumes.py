"""The meter of network volumes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gpuherd.domain.cloud.network_volume import VolumeLook, rate_of, read_volumes
from gpuherd.domain.money.bill import StorageVolume
from gpuherd.domain.money.usage_span import CostSpan, Edge

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
VOLUME = StorageVolume("vol-1", "data", "US-CA-06", 120)
LATER = VolumeLook(NOON, NOON + 5 * MINUTE, NOON + 5 * MINUTE + SECOND)


def opened() -> CostSpan:
    first = VolumeLook(NOON - 5 * MINUTE, NOON, NOON + SECOND)
    (span,) = read_volumes({}, [VOLUME], first)
    return span


def test_a_new_volume_began_since_the_look_before():
    assert opened().began == Edge(NOON - 5 * MINUTE, NOON + SECOND)
    assert opened().rate.nano_usd == 10_000_000


def test_what_is_there_at_the_first_look_of_all_counts_from_then_on():
    (span,) = read_volumes({}, [VOLUME], VolumeLook(None, NOON, NOON + SECOND))
    assert span.began == Edge(NOON + SECOND, NOON + SECOND)


def test_a_volume_that_is_still_there_goes_on_and_was_surely_there_at_this_look():
    (span,) = read_volumes({"vol-1": opened()}, [VOLUME], LATER)
    assert span.ended is None
    assert span.sure_until == LATER.started_at


def test_a_volume_that_is_gone_ended_since_the_look_before():
    (span,) = read_volumes({"vol-1": opened()}, [], LATER)
    assert span.ended == Edge(NOON, LATER.finished_at)
    assert span.ended_by == "removed"


def test_a_volume_that_has_grown_is_cut_without_a_gap_or_an_overlap():
    old, new = read_volumes({"vol-1": opened()}, [replace(VOLUME, size_gb=240)], LATER)
    assert old.ended == new.began
    assert new.rate == rate_of(replace(VOLUME, size_gb=240))
    assert new.id == 0


def test_a_clock_that_was_set_back_makes_no_edge_run_backwards():
    back = VolumeLook(NOON, NOON - timedelta(hours=1), NOON - timedelta(hours=1))
    (span,) = read_volumes({"vol-1": opened()}, [], back)
    assert span.ended is not None
    assert span.ended.lo <= span.ended.hi


def test_a_volume_that_costs_nothing_has_no_span():
    assert read_volumes({}, [replace(VOLUME, size_gb=0)], LATER) == []


def test_a_clock_that_is_set_makes_no_hour_and_takes_none():
    hour = timedelta(hours=1)
    for step in (hour, -hour):
        look = VolumeLook(NOON, NOON + 5 * MINUTE + step, NOON + 5 * MINUTE + step, step)
        old, new = read_volumes({"vol-1": opened()}, [VOLUME], look)
        assert old.ended == Edge(NOON + 5 * MINUTE, NOON + 5 * MINUTE)
        assert new.began == Edge(look.started_at, look.started_at)
        (gone,) = read_volumes({"vol-1": opened()}, [], look)
        assert gone.ended == Edge(NOON, NOON + 5 * MINUTE)
