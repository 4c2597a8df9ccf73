"""Who rents in a month: arrivals, wishes and habits, all drawn from one seed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from random import Random
from statistics import median

from gpuherd.domain.instance.lease import (
    EndAction,
    Idleness,
    Lease,
    Silence,
    Terms,
)
from gpuherd.simulator.simulated_bill import disk_usd_per_hour
from gpuherd.simulator.simulated_catalogue import PRICE_UNITS_PER_USD, CloudCatalogue, Product

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


class Habit(StrEnum):
    """What kind of user it is."""

    BATCH = "batch"
    INTERACTIVE = "interactive"
    FORGOTTEN = "forgotten"
    AGENT = "agent"
    ON_DEMAND = "on demand"


# In percent. Nobody can rent a fleet here: the tenth that would be members of one are batch.
SHARES = {
    Habit.BATCH: 50,
    Habit.INTERACTIVE: 20,
    Habit.FORGOTTEN: 15,
    Habit.AGENT: 10,
    Habit.ON_DEMAND: 5,
}
PRODUCTS = {"RTX 4090 24GB": 50, "RTX 5090 32GB": 20, "L40S 48GB": 15, "H100 SXM 80GB": 15}
DISKS_GB = {60: 70, 200: 20, 500: 10}
WANTED_MEDIAN_S, WANTED_SIGMA = 4 * HOUR_S, 0.8
WANTED_MIN_S, WANTED_MAX_S = 600.0, 7 * DAY_S
CAP_FACTORS = (1.0, 1.5)
WAITS_PROBABILITY, WAIT_S = 0.3, 4 * HOUR_S
# How many do not go wherever it is cheapest, and to how many regions they go.
NAMES_REGIONS_PROBABILITY, REGIONS_NAMED = 0.25, 2
FORGOTTEN_LEASE_S = 8 * HOUR_S
IDLE_S, IDLE_LEASE_MIN_S, STOPPED_S = 1800.0, 12 * HOUR_S, HOUR_S
SILENCE_S = HOUR_S


@dataclass(frozen=True)
class Rental:
    """One rental, as its user means it."""

    n: int
    at_s: float
    habit: Habit
    # For how long somebody needs it, from when it is usable.
    needed_s: float
    product_name: str
    disk_gb: int
    # Ids of clusters; nothing means anywhere.
    clusters: tuple[str, ...]
    hourly_usd_max: Decimal
    wait_s: float

    @property
    def name(self) -> str:
        return f"rental-{self.n}"

    @property
    def is_spot(self) -> bool:
        return self.habit is not Habit.ON_DEMAND

    @property
    def replaces(self) -> bool:
        """Tell whether its user asks for another machine when the cloud takes this one back."""
        return self.habit is Habit.BATCH

    @property
    def wanted_s(self) -> float:
        """For how long it is wanted once it is usable: until its user or the agreed terms end it."""
        match self.habit:
            case Habit.INTERACTIVE:
                return self.needed_s + IDLE_S
            case Habit.FORGOTTEN:
                return FORGOTTEN_LEASE_S
            case Habit.AGENT:
                return self.needed_s + SILENCE_S
            case _:
                return self.needed_s

    @property
    def stopped_s(self) -> float:
        """For how long its disk is wanted after that, stopped."""
        return STOPPED_S if self.habit is Habit.INTERACTIVE else 0.0

    @property
    def disk_usd_per_hour(self) -> Fraction:
        return disk_usd_per_hour(self.disk_gb)

    @property
    def terms(self) -> Terms:
        """Return what its user agrees with us about its end."""
        match self.habit:
            case Habit.INTERACTIVE:
                lease_s = max(IDLE_LEASE_MIN_S, self.needed_s + 2 * HOUR_S)
                return Terms(
                    lease=Lease(int(lease_s)), idle=Idleness(int(IDLE_S)), delete_stopped_s=int(STOPPED_S)
                )
            case Habit.FORGOTTEN:
                lease = Lease(int(FORGOTTEN_LEASE_S), then=EndAction.DELETE)
                return Terms(lease=lease, delete_stopped_s=int(STOPPED_S))
            case Habit.AGENT:
                return Terms(
                    silence=Silence(int(SILENCE_S), EndAction.DELETE), delete_stopped_s=int(STOPPED_S)
                )
            case _:
                return Terms()


def draw_rentals(seed: int, count: int, days: float, catalogue: CloudCatalogue) -> tuple[Rental, ...]:
    """Return the rentals of a seed in the order of their arrival: as many as are asked for, spread evenly.

    Arrivals of a Poisson process whose number is known are as many independent draws from the whole time.
    """
    arrivals = Random(f"arrivals {seed}")
    at_s = sorted(arrivals.uniform(0.0, days * DAY_S) for _ in range(count))
    return tuple(_draw(n, it, Random(f"rental {seed}/{n}"), catalogue) for n, it in enumerate(at_s))


def _draw(n: int, at_s: float, rng: Random, catalogue: CloudCatalogue) -> Rental:
    habit = rng.choices(list(SHARES), list(SHARES.values()))[0]
    product_name = rng.choices(list(PRODUCTS), list(PRODUCTS.values()))[0]
    disk_gb = rng.choices(list(DISKS_GB), list(DISKS_GB.values()))[0]
    sold = [it for it in catalogue.products if it.name == product_name]
    places = sorted({cluster_id for it in sold for cluster_id in it.cluster_ids})
    names_regions = rng.random() < NAMES_REGIONS_PROBABILITY and len(places) > REGIONS_NAMED
    clusters = tuple(sorted(rng.sample(places, REGIONS_NAMED))) if names_regions else ()
    gpu_usd = Decimal(median(_price(it, habit) for it in sold)) / PRICE_UNITS_PER_USD
    cap = gpu_usd * Decimal(rng.uniform(*CAP_FACTORS)) + _decimal(disk_usd_per_hour(disk_gb))
    needed_s = rng.lognormvariate(0.0, WANTED_SIGMA) * WANTED_MEDIAN_S
    return Rental(
        n=n,
        at_s=at_s,
        habit=habit,
        needed_s=min(WANTED_MAX_S, max(WANTED_MIN_S, needed_s)),
        product_name=product_name,
        disk_gb=disk_gb,
        clusters=clusters,
        hourly_usd_max=cap.quantize(Decimal("0.0001")),
        wait_s=WAIT_S if rng.random() < WAITS_PROBABILITY else 0.0,
    )


def _price(product: Product, habit: Habit) -> int:
    return product.price if habit is Habit.ON_DEMAND else product.spot_price


def _decimal(usd: Fraction) -> Decimal:
    return Decimal(usd.numerator) / Decimal(usd.denominator)
