"""When a machine of others was made, by a clock that does not follow ours."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.domain.clock_reading import ClockSeam
from gpuherd.domain.money.meter import (
    LISTED_LATE_MAX,
    Metering,
    cut_all,
    read_meters,
)
from gpuherd.domain.money.meter_reading import ListTimes, MachineMeter, Tariff
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    Edge,
    PriceSource,
    Rate,
)
from tests.support.builders import a_machine, a_sighting
from tests.support.fake_clock import START

SECOND = timedelta(seconds=1)
STEP = 60 * SECOND
PRICED: Any = {"product_id": "p", "cluster_id": "c", "billing_mode": "spot", "gpu_num": 1}


def first_sight(made_s: int, seen_s: int) -> Any:
    """Return the span of a machine that a list shows first so many seconds after our clock was set back.

    The cloud's clock goes on as ours did before.
    """
    seam = ClockSeam(before=START, after=START - STEP, noticed_at=START)
    now = START - STEP + seen_s * SECOND
    metering = Metering(
        before={},
        # It came before the machine was there, or shows new ones late.
        previous=ListTimes(now - 20 * SECOND, now - 20 * SECOND),
        this=ListTimes(now, now),
        tariff=Tariff({("spot", "p", "c"): Decimal(1)}),
        seams=(seam,),
    )
    machine = a_machine(1, created_at=START + made_s * SECOND, **PRICED)
    (span,) = read_meters(metering, [a_sighting(machine)], {}, {}, {})
    return span


@pytest.mark.parametrize("seen_s", [50, 130])
def test_a_stamp_of_a_clock_that_was_not_set_counts_by_ours_before_the_step(seen_s: int) -> None:
    # By our clock as it is now, that is ahead of us at first, and not so long ago later.
    assert first_sight(made_s=5, seen_s=seen_s).began.lo == START - STEP + 5 * SECOND


def test_a_step_long_ago_says_nothing_about_a_new_machine() -> None:
    late_s = int(LISTED_LATE_MAX / SECOND) + 100
    found = first_sight(made_s=late_s - 110, seen_s=late_s)
    assert found.began.lo == START + (late_s - 110) * SECOND


def test_an_edge_that_was_reckoned_back_is_not_taken_for_one_that_the_clock_has_shown_since() -> None:
    """The clock was set ahead by 300 s and back by 60. What ended in between was last seen before, at a time
    that the clock, as it was then, had skipped; it has shown it since (seed 709171)."""
    ahead = ClockSeam(START + 37 * SECOND, START + 337 * SECOND, START + 37 * SECOND)
    back = ClockSeam(START + 351 * SECOND, START + 291 * SECOND, START + 351 * SECOND)
    # Seen at the start and missed 46 s later, both by the clock between the two steps.
    ended = Edge(START + 300 * SECOND, START + 346 * SECOND)
    now = START + 632 * SECOND
    metering = Metering(
        before={
            "m": replace(
                a_sighting(a_machine(1, cloud_id="m", **PRICED)), missing_since=START, missing_lists=2
            )
        },
        previous=ListTimes(now - 10 * SECOND, now - 10 * SECOND),
        this=ListTimes(now, now),
        tariff=Tariff({("spot", "p", "c"): Decimal(1)}),
        seams=(ahead, back),
    )
    meters = {"m": MachineMeter(last_ended={CostKind.GPU: ended})}
    (span,) = read_meters(metering, [a_sighting(a_machine(1, cloud_id="m", **PRICED))], meters, {}, {})
    assert span.began.lo == START + 240 * SECOND


def test_where_no_list_could_be_believed_nothing_is_sure_of_the_time_before_the_clock_was_set() -> None:
    """The machine was gone long before, and no list since has shown it (chaos strict, seed 841446)."""
    began = Edge(START, START)
    span = CostSpan("m", CostKind.GPU, Rate(1, PriceSource.RENTAL), began, "running")
    seam = ClockSeam(START + 90 * SECOND, START + 3690 * SECOND, START + 210 * SECOND)
    old, new = cut_all([span], seam, None)
    assert (old.began, old.ended) == (began, Edge(START, START + 90 * SECOND))
    assert new.began == Edge(START + 3690 * SECOND, START + 3690 * SECOND)
