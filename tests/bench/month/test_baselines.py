"""What others do on the same days: each differs from the rest where it is meant to."""

from __future__ import annotations

import pytest

from bench.month.baselines import POLICIES, play_baseline
from bench.month.measure import Cause, Figures, measure
from bench.month.users import draw_rentals
from bench.month.weather import draw_weather, month_catalogue

DAYS = 6.0
RENTALS = draw_rentals(7, 200, DAYS, month_catalogue())
ON_DEMAND, NOBODY, COLD, PREDECESSOR, SKYPILOT, DSTACK = range(len(POLICIES))

pytestmark = pytest.mark.together


@pytest.fixture(scope="module")
def months() -> list[Figures]:
    plan = draw_weather(7, DAYS)
    played = [play_baseline(it, plan, RENTALS) for it in POLICIES]
    figures = [measure(it) for it in played]
    for one, other in zip(played, figures, strict=True):
        assert other.paid_usd == one.world.bill_usd()
    return figures


def test_on_demand_is_never_taken_back_and_costs_most(months: list[Figures]) -> None:
    assert months[ON_DEMAND].reclaims == 0
    assert months[ON_DEMAND].served_s == months[ON_DEMAND].wanted_s
    assert months[ON_DEMAND].paid_usd == max(it.paid_usd for it in months)


def test_whoever_recovers_serves_more_of_what_is_wanted_and_sooner(months: list[Figures]) -> None:
    def served(n: int) -> float:
        return months[n].replaced_served_s / months[n].replaced_wanted_s

    assert served(NOBODY) < served(COLD) < served(SKYPILOT)
    assert sum(months[SKYPILOT].gaps_s) / len(months[SKYPILOT].gaps_s) < sum(months[COLD].gaps_s) / len(
        months[COLD].gaps_s
    )


def test_only_the_one_that_forgets_has_machines_that_nobody_knows_of(months: list[Figures]) -> None:
    assert [it.usd[Cause.UNBOUND] > 0 for it in months] == [n == PREDECESSOR for n in range(len(months))]


def test_whoever_ends_by_itself_wastes_little(months: list[Figures]) -> None:
    wasted = [float(it.waste_usd / it.paid_usd) for it in months]
    assert wasted[DSTACK] < 0.03
    assert wasted[DSTACK] < wasted[SKYPILOT] < wasted[NOBODY]
