"""Spans of cost: the middle of an edge counts, its width is stated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    Edge,
    PriceSource,
    Rate,
    cost_nano,
    nano_usd,
    usd_of,
)

T0 = datetime(2026, 11, 16, tzinfo=UTC)
RATE = Rate(nano_usd(Decimal("0.36")), PriceSource.RENTAL)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def test_amounts_are_whole_numbers_and_prices_exact():
    assert nano_usd(Decimal("0.175")) == 175_000_000
    assert usd_of(175_000_000) == Decimal("0.175")
    assert cost_nano(nano_usd(Decimal("0.36")), timedelta(seconds=1)) == 100_000


def test_a_span_costs_from_middle_to_middle_give_or_take_half_the_widths():
    span = CostSpan(
        "m", CostKind.GPU, RATE, Edge(at(0), at(2)), "pulling", Edge(at(3600), at(3610)), "stopped"
    )
    assert span.cost(at(9999)) == cost_nano(RATE.nano_usd, timedelta(seconds=3604))
    assert span.uncertainty() == cost_nano(RATE.nano_usd, timedelta(seconds=6)) + 1


def test_a_span_that_goes_on_costs_up_to_now():
    span = CostSpan("m", CostKind.GPU, RATE, Edge(at(0), at(0)), "pulling")
    assert usd_of(span.cost(at(3600))) == Decimal("0.36")
    assert span.cost(at(-5)) == 0
