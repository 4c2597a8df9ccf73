"""The floors: what the wanted seconds would have cost somebody who knew everything beforehand.

Floor A is the cheapest offer of each moment, changed for nothing and at once. Floor B adds what nobody can
avoid: a boot at the start, and one for each time that the cloud would have taken floor A's own machine back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from bench.month.market import Market, Quote, cheapest
from bench.month.users import HOUR_S, Rental
from bench.month.weather import MARKET, PULL_S, WeatherPlan
from gpuherd.simulator.market import notice_s
from gpuherd.simulator.simulated_machine import Times

Spans = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Floors:
    """Both floors of some rentals, in dollars, and the boots of floor B."""

    a_usd: Fraction
    b_usd: Fraction
    boots: int


@dataclass(frozen=True)
class Served:
    """The wanted seconds of a rental that it had a machine, and how long its disk was wanted after that."""

    rental: Rental
    spans: Spans
    stopped_s: float = 0.0


def floors(served: Iterable[Served], market: Market, plan: WeatherPlan) -> Floors:
    """Return the floors of all that was served: seconds that nobody was served cost nobody anything."""
    a_usd, b_usd, boots = Fraction(0), Fraction(0), 0
    for it in served:
        if not it.spans:
            continue
        its_usd = sum((_cheapest_usd(it.rental, *span, market) for span in it.spans), Fraction(0))
        its_usd += it.rental.disk_usd_per_hour * Fraction(it.stopped_s) / int(HOUR_S)
        booted = list(_boots(it, market, plan))
        a_usd += its_usd
        b_usd += its_usd + sum(booted, Fraction(0))
        boots += len(booted)
    return Floors(a_usd, b_usd, boots)


def unservable_s(rental: Rental, spans: Spans, market: Market) -> float:
    """Return for how many of these seconds nothing was offered that fits the wish."""
    return sum(
        end_s - begin_s
        for span in spans
        for begin_s, end_s, quotes in market.steps(*span)
        if cheapest(quotes, rental) is None
    )


def _cheapest_usd(rental: Rental, begin_s: float, end_s: float, market: Market) -> Fraction:
    """Where nothing is offered, whoever has a machine goes on paying what was the cheapest before."""
    total, usd = Fraction(0), Fraction(rental.hourly_usd_max)
    for step_begin_s, step_end_s, quotes in market.steps(begin_s, end_s):
        best = cheapest(quotes, rental)
        usd = usd if best is None else best.usd(rental)
        total += usd * (Fraction(step_end_s) - Fraction(step_begin_s)) / int(HOUR_S)
    return total


def _boots(it: Served, market: Market, plan: WeatherPlan) -> Iterable[Fraction]:
    """Yield the price of each boot: at the beginning, and whenever its machine would be taken back."""
    rng = Random(f"floor {plan.seed}/{it.rental.n}")
    times = Times()
    at_s, end_s = it.spans[0][0], it.spans[-1][1]
    while at_s < end_s:
        best = _best_at(it.rental, at_s, market)
        usd = Fraction(it.rental.hourly_usd_max) if best is None else best.usd(it.rental)
        yield usd * Fraction(PULL_S) / int(HOUR_S)
        if not (it.rental.is_spot and it.rental.replaces) or best is None:
            return
        mean_s = plan.reclaim_mean_s[best.cluster_id]
        notice = notice_s(MARKET, times.spot_notice, rng)
        at_s += times.spot_guaranteed + rng.expovariate(1 / mean_s) + notice + times.reclaiming


def _best_at(rental: Rental, at_s: float, market: Market) -> Quote | None:
    _, _, quotes = next(market.steps(at_s, at_s + 1.0))
    return cheapest(quotes, rental)
