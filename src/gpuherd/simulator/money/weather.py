"""How the market moves by itself: prices, stock and evictions, drawn from chance of their own.

The draws do not come from the world's own chance, so that the same seed boots the same machines in any
weather.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gpuherd.simulator.catalogue import Product
from gpuherd.simulator.money.tariff import HOUR_S


@dataclass(frozen=True, slots=True)
class Weather:
    """Every knob; the default is a market that stands still."""

    # Spot prices walk this far at most from where they began, as a part of it, one step a `walk_every_s`.
    price_range: float = 0.0
    walk_every_s: float = HOUR_S
    # Whether a running machine pays today's price, or the one it was rented at.
    price_follows: bool = False
    # Mean seconds for which a product is for sale in a cluster, and then is not.
    in_stock_s: float | None = None
    out_of_stock_s: float = HOUR_S
    # Mean seconds until a spot machine is taken back, after the hour that is guaranteed.
    reclaim_mean_s: float | None = None
    # Which parts of the evictions come with a shorter notice, and with none.
    short_notice: float = 0.1
    no_notice: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.price_range < 1:
            raise ValueError("priceRange must be at least 0 and below 1")
        if not 0 <= self.short_notice + self.no_notice <= 1:
            raise ValueError("shortNotice and noNotice are parts of 1")
        for seconds in (self.walk_every_s, self.in_stock_s, self.out_of_stock_s, self.reclaim_mean_s):
            if seconds is not None and not seconds > 0:
                raise ValueError("a time must be above 0")


CALM = Weather()


def walked(product: Product, began_at: int, weather: Weather, rng: Random) -> int:
    """Return the next spot price of a product that began at a price; it never leaves the range."""
    step = rng.uniform(-1, 1) * began_at * weather.price_range / 4
    low, high = began_at * (1 - weather.price_range), began_at * (1 + weather.price_range)
    return max(1, round(min(high, max(low, product.spot_price + step))))


def reclaim_after_s(weather: Weather, guaranteed_s: float, rng: Random) -> float | None:
    """Return how long after it runs a spot machine gets its notice, if it ever does."""
    if weather.reclaim_mean_s is None:
        return None
    return guaranteed_s + rng.expovariate(1 / weather.reclaim_mean_s)


def notice_s(weather: Weather, usual_s: float, rng: Random) -> float:
    """Return how long the notice is: the usual time, a part of it, or nothing."""
    draw = rng.random()
    if draw < weather.no_notice:
        return 0.0
    if draw < weather.no_notice + weather.short_notice:
        return usual_s * rng.random()
    return usual_s


def stock_turn_s(weather: Weather, rng: Random, *, in_stock: bool) -> float | None:
    """Return how long the present state of a shelf lasts, if shelves change at all."""
    if weather.in_stock_s is None:
        return None
    return rng.expovariate(1 / (weather.in_stock_s if in_stock else weather.out_of_stock_s))
