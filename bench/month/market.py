"""What the market offered at every moment of a month: played once, with nobody in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from bench.month.users import Rental
from bench.month.weather import MonthWorld, WeatherPlan
from gpuherd.simulator.simulated_bill import gpu_usd_per_hour
from proof.chaos.virtual_time import VirtualClock, VirtualLoop

ROUNDING_S = 1e-6


class Quote(NamedTuple):
    """One product in one cluster that could be rented, and what a GPU of it costs an hour."""

    product_name: str
    cluster_id: str
    spot_usd: Fraction
    on_demand_usd: Fraction

    def usd(self, rental: Rental) -> Fraction:
        """Return what such a rental would cost an hour, its disk included."""
        gpu_usd = self.spot_usd if rental.is_spot else self.on_demand_usd
        return gpu_usd + rental.disk_usd_per_hour

    def fits(self, rental: Rental) -> bool:
        return (
            self.product_name == rental.product_name
            and (not rental.clusters or self.cluster_id in rental.clusters)
            and self.usd(rental) <= Fraction(rental.hourly_usd_max)
        )


@dataclass(frozen=True)
class Market:
    """The quotes from each change on, in seconds from the beginning."""

    since_s: tuple[float, ...]
    quotes: tuple[tuple[Quote, ...], ...]

    def steps(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float, tuple[Quote, ...]]]:
        """Yield the stretches of a span in which nothing changed, with what was offered in each."""
        n = max(0, bisect_right(self.since_s, begin_s) - 1)
        while begin_s < end_s:
            until_s = self.since_s[n + 1] if n + 1 < len(self.since_s) else end_s
            step_end_s = min(end_s, until_s)
            yield begin_s, step_end_s, self.quotes[n]
            begin_s, n = step_end_s, n + 1


def cheapest(quotes: tuple[Quote, ...], rental: Rental) -> Quote | None:
    """Return the cheapest that a rental could have, if there is any."""
    return min((it for it in quotes if it.fits(rental)), key=lambda it: it.usd(rental), default=None)


def play_market(plan: WeatherPlan) -> Market:
    """Let prices and stock move for a month; whoever rents does not change them."""
    loop = VirtualLoop()
    try:
        world = MonthWorld(VirtualClock(loop), plan)
        since_s, quotes = [0.0], [quotes_of(world)]
        while (at_s := world.elapsed(world.timeline.events[0].at)) < plan.end_s:
            # A little later, or rounding might keep it from being due.
            loop._time_s = at_s + ROUNDING_S
            world.tick()
            since_s.append(at_s)
            quotes.append(quotes_of(world))
    finally:
        loop.close()
    return Market(tuple(since_s), tuple(quotes))


def quotes_of(world: MonthWorld) -> tuple[Quote, ...]:
    """Return what could be rented in a world at this moment."""
    return tuple(
        Quote(it.name, cluster_id, gpu_usd_per_hour(it.spot_price, 1), gpu_usd_per_hour(it.price, 1))
        for it in world.catalogue.products
        for cluster_id in it.cluster_ids
        if world.stock_levels.free(it.id, cluster_id)
    )
