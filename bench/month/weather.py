"""The weather of a month: how the market moves, what the cloud does wrong, and when our process is killed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from bench.month.users import DAY_S, HOUR_S, PRODUCTS
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.market import Weather
from gpuherd.simulator.simulated_catalogue import CloudCatalogue, default_catalogue
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.world import World, set_weather
from proof.chaos.cloud.reused_ids import NEVER_REUSED, ReusingWorld
from proof.chaos.crash_injection import CrashPolicy

# A boot takes about three minutes, most of it the image.
PULL_S = 180.0
RECLAIM_MEAN_S = (6 * HOUR_S, 48 * HOUR_S)
MARKET = Weather(
    price_range=0.2, in_stock_s=24 * HOUR_S, out_of_stock_s=2 * HOUR_S, reclaim_mean_s=24 * HOUR_S
)
LOST_REPLY_PROBABILITY, ERROR_PROBABILITY = 0.005, 0.01
# By the month: short ones are of ten minutes, and one lasts two hours.
SHORT_OUTAGES, SHORT_OUTAGE_S, LONG_OUTAGE_S = 3, 600.0, 2 * HOUR_S
BLIND_WINDOWS, BLIND_S = 2, 600.0
# The wall clock is set wrong, and some hours later right again.
JUMP_S, JUMP_LASTS_S = 1800.0, 2 * HOUR_S
KILL_EVERY_S = 12 * HOUR_S
# Every other kill waits so long for the worst moment: a create was obeyed, and nobody has written it down.
WORST_MOMENT_S = 6 * HOUR_S
CREATED = "cloud.create_machine done"


@dataclass(frozen=True)
class WeatherPlan:
    """Everything that goes wrong in a month, decided before it begins; in seconds from its beginning."""

    seed: int
    days: float
    outages: tuple[tuple[float, float], ...]
    blind_windows: tuple[tuple[float, float], ...]
    # When the wall clock is set, and by how much.
    jumps: tuple[tuple[float, float], ...]
    kills: tuple[float, ...]
    # How long a machine lasts in each cluster, on average, after the hour that is guaranteed.
    reclaim_mean_s: Mapping[str, float]

    @property
    def end_s(self) -> float:
        return self.days * DAY_S

    def faults(self) -> list[Fault]:
        """Return what the cloud does wrong, from now on."""
        lost = Fault(
            FaultKind.LOST_REPLY_AFTER_COMMIT,
            probability=LOST_REPLY_PROBABILITY,
            endpoints=(ApiEndpoint.CREATE,),
        )
        outages = [Fault(FaultKind.OUTAGE, after_s=at, for_s=end - at) for at, end in self.outages]
        blind = [Fault(FaultKind.EMPTY_LIST, after_s=at, for_s=end - at) for at, end in self.blind_windows]
        return [*outages, *blind, Fault(FaultKind.OUTAGE, probability=ERROR_PROBABILITY), lost]

    def kill_policy(self, life: int, elapsed_s: Callable[[], float]) -> CrashPolicy:
        """Return when the n-th process is killed; the last one lives on."""
        if life > len(self.kills):
            return lambda _passed, _label: False
        at_s, waits = self.kills[life - 1], life % 2 == 0
        latest_s = at_s + WORST_MOMENT_S

        def strikes(_passed: int, label: str) -> bool:
            now_s = elapsed_s()
            return now_s >= at_s and (not waits or label == CREATED or now_s >= latest_s)

        return strikes


def draw_weather(seed: int, days: float) -> WeatherPlan:
    """Return the weather of a seed. A shorter time has as many kills a day, and one of everything else."""
    rng = Random(f"weather {seed}")
    whole = days * DAY_S
    part = min(1.0, days / 30)
    lengths = [SHORT_OUTAGE_S] * max(1, round(SHORT_OUTAGES * part)) + [LONG_OUTAGE_S] * (part == 1.0)
    blind = [BLIND_S] * max(1, round(BLIND_WINDOWS * part))
    # Each has a part of the time for itself.
    slots = len(lengths) + len(blind) + 1
    begins = [whole * (n + rng.uniform(0.2, 0.8)) / slots for n in range(slots)]
    rng.shuffle(begins)
    outages = [(begin, begin + it) for begin, it in zip(begins, lengths, strict=False)]
    dark = [(begin, begin + it) for begin, it in zip(begins[len(lengths) :], blind, strict=False)]
    kills = [KILL_EVERY_S * (n + rng.uniform(0.3, 0.7)) for n in range(int(whole / KILL_EVERY_S))]
    low, high = RECLAIM_MEAN_S
    clusters = [it.id for it in month_catalogue().clusters]
    return WeatherPlan(
        seed=seed,
        days=days,
        outages=tuple(sorted(outages)),
        blind_windows=tuple(sorted(dark)),
        jumps=((begins[-1], JUMP_S), (begins[-1] + JUMP_LASTS_S, -JUMP_S)),
        kills=tuple(kills),
        reclaim_mean_s={it: math.exp(rng.uniform(math.log(low), math.log(high))) for it in clusters},
    )


def month_catalogue() -> CloudCatalogue:
    """Return a cloud with what is rented here: its catalogue is asked for very often."""
    whole = default_catalogue()
    sold = tuple(it for it in whole.products if it.name in PRODUCTS and it.cluster_ids)
    places = {cluster_id for it in sold for cluster_id in it.cluster_ids}
    clusters = tuple(it for it in whole.clusters if it.id in places)
    return replace(whole, clusters=clusters, products=sold, cpu_products=())


class MonthWorld(ReusingWorld):
    """A cloud whose places are not equally safe."""

    def __init__(self, clock: Any, plan: WeatherPlan):
        world_rng, id_rng = Random(f"world {plan.seed}"), Random(f"ids {plan.seed}")
        super().__init__(clock, world_rng, month_catalogue(), reuse=NEVER_REUSED, id_rng=id_rng)
        self.origin_s = self.now()
        # When the cloud answers nobody, in seconds from the beginning.
        self.outages = plan.outages
        self.times = replace(self.times, pulling=PULL_S)
        self._means = plan.reclaim_mean_s
        self.weather_rng = Random(f"market {plan.seed}")
        self.reclaim_rng = Random(f"reclaims {plan.seed}")
        set_weather(self, MARKET)

    def elapsed(self, at: float) -> float:
        """Return a moment of this world in seconds from its beginning."""
        return at - self.origin_s

    def _reclaim_by_weather(self, machine: SimulatedMachine, running_at: float) -> float | None:
        usual = self.weather
        self.weather = replace(usual, reclaim_mean_s=self._means[machine.cluster_id])
        try:
            return super()._reclaim_by_weather(machine, running_at)
        finally:
            self.weather = usual


def set_faults(world: World, plan: WeatherPlan) -> None:
    """Let the cloud begin to do wrong what was planned."""
    world.faults.replace(plan.faults())
