"""Bad days by seed: which faults are about in this schedule, how often each strikes, and for how long.

Two levels of odds, as in FoundationDB's simulation: a site is active in this seed or it is not, and only then
does it strike now and then. So that seeds with one single fault turn up as well as storms of everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from gpuherd.simulator.calls import Endpoint
from gpuherd.simulator.faults import Fault, FaultKind

ACTIVE_ODDS = 0.25
COMMANDS = (Endpoint.START, Endpoint.STOP, Endpoint.DELETE)
CHANGES = (Endpoint.CREATE, *COMMANDS)
# A create may hang, then commit late, then be listed late: together no later than is allowed.
LAG_SHARE, COMMIT_SHARE, HANG_SHARE = 0.3, 0.45, 0.2
GARBAGE = ("broken_json", "html", "empty", "empty_id", "number_id", "null_id", "cut", "list", "wrong_type")
PAGES = ("missing_page", "duplicated_page", "wrong_total", "short_page")


@dataclass
class Weather:
    """What goes wrong, and when."""

    chance: Random
    storm_s: float
    # No commit and no listing later than this after its call, together.
    late_max_s: float
    climates: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    # Spans in which every single call fails.
    outages: list[tuple[float, float]] = field(default_factory=list)
    # Spans in which no list shows anything.
    blindness: list[tuple[float, float]] = field(default_factory=list)
    jumps: list[tuple[float, float]] = field(default_factory=list)
    crash_odds: float = 0.0

    def add(self, kind: FaultKind, **particulars: object) -> None:
        """Set a fault for as long as the storm lasts, unless it says otherwise."""
        self.faults.append(Fault(kind, **{"for_s": self.storm_s, **particulars}))  # type: ignore[arg-type]

    def window(self, longest_s: float) -> dict[str, float]:
        """Return a span somewhere in the storm."""
        after_s = self.chance.uniform(0.0, self.storm_s * 0.7)
        return {
            "after_s": after_s,
            "for_s": min(self.chance.uniform(20.0, longest_s), self.storm_s - after_s),
        }


def draw_weather(chance: Random, storm_s: float, late_max_s: float) -> Weather:
    """Return the weather of one schedule."""
    weather = Weather(chance, storm_s, late_max_s)
    active = [name for name in CLIMATES if chance.random() < ACTIVE_ODDS]
    if chance.random() < 0.3:
        # A day on which only one thing goes wrong.
        active = [chance.choice(list(CLIMATES))]
    for name in active:
        CLIMATES[name](weather, chance)
        weather.climates.append(name)
    if not weather.crash_odds and chance.random() < 0.6:
        weather.crash_odds = 0.008
    return weather


def _flaky(weather: Weather, _: Random) -> None:
    weather.add(FaultKind.OUTAGE, probability=0.05)


def _storm(weather: Weather, chance: Random) -> None:
    weather.add(FaultKind.OUTAGE, probability=0.4, style=chance.choice(("json", "html", "cut")))
    weather.add(FaultKind.LOST_REPLY_AFTER_COMMIT, probability=0.2, endpoints=CHANGES)


def _outage(weather: Weather, chance: Random) -> None:
    span = weather.window(400.0)
    weather.add(FaultKind.OUTAGE, **span, style=chance.choice(("json", "html", "cut")))
    weather.outages.append((span["after_s"], span["after_s"] + span["for_s"]))


def _empty_lists(weather: Weather, _: Random) -> None:
    weather.add(FaultKind.EMPTY_LIST, **weather.window(400.0))


def _partial_lists(weather: Weather, chance: Random) -> None:
    odds = chance.choice((0.3, 1.0))
    weather.add(FaultKind.PARTIAL_LIST, **weather.window(300.0), style=chance.choice(PAGES), probability=odds)


def _list_lag(weather: Weather, chance: Random) -> None:
    lag_s = chance.uniform(0.0, weather.late_max_s * LAG_SHARE)
    weather.add(FaultKind.LIST_LAG, probability=0.6, seconds=lag_s)


def _late_commits(weather: Weather, chance: Random) -> None:
    late_s = chance.uniform(0.0, weather.late_max_s * COMMIT_SHARE)
    weather.add(FaultKind.LATE_COMMIT, probability=0.5, seconds=late_s, endpoints=CHANGES)


def _lost_replies(weather: Weather, _: Random) -> None:
    weather.add(FaultKind.LOST_REPLY_AFTER_COMMIT, probability=0.3, endpoints=CHANGES)
    weather.add(FaultKind.LOST_REPLY_BEFORE_COMMIT, probability=0.2, endpoints=CHANGES)
    weather.add(FaultKind.ERROR_AFTER_COMMIT, probability=0.15, endpoints=CHANGES, status=502)


def _garbage(weather: Weather, chance: Random) -> None:
    weather.add(FaultKind.GARBAGE, probability=0.3, style=chance.choice(GARBAGE), endpoints=CHANGES)
    weather.add(FaultKind.GARBAGE, probability=0.1, style="html", endpoints=(Endpoint.LIST, Endpoint.GET))


def _crashes(weather: Weather, chance: Random) -> None:
    weather.crash_odds = chance.choice((0.02, 0.03, 0.04))


def _clock_jumps(weather: Weather, chance: Random) -> None:
    # Each leap of the clock may make us believe that we have watched for longer than we have.
    weather.late_max_s /= 2
    for _ in range(chance.randint(1, 3)):
        seconds = chance.choice((-600.0, -60.0, 30.0, 300.0, 3600.0))
        weather.jumps.append((chance.uniform(0.0, weather.storm_s), seconds))


def _out_of_stock(weather: Weather, chance: Random) -> None:
    weather.add(FaultKind.SOLD_OUT, probability=chance.choice((0.3, 0.7)))


def _reclaims(weather: Weather, chance: Random) -> None:
    after_s, notice_s = chance.uniform(0.0, 120.0), chance.uniform(0.0, 120.0)
    weather.add(FaultKind.RECLAIM, probability=0.5, seconds=after_s, notice_s=notice_s)


def _flapping(weather: Weather, _: Random) -> None:
    weather.add(FaultKind.STATUS_FLAP, probability=0.3)
    weather.add(FaultKind.UNKNOWN_STATUS, probability=0.1)


def _hanging(weather: Weather, chance: Random) -> None:
    style = chance.choice(("after_commit", "before_commit"))
    seconds = chance.uniform(5.0, max(36.0, weather.late_max_s * HANG_SHARE))
    weather.add(FaultKind.HANG, probability=0.15, seconds=seconds, style=style)


def _throttling(weather: Weather, chance: Random) -> None:
    weather.add(FaultKind.RATE_LIMIT, probability=0.3, retry_after=chance.choice(("", "2", "20")))


def _denials(weather: Weather, _: Random) -> None:
    weather.add(FaultKind.GET_404_GLITCH, probability=0.3)


def _total_denial(weather: Weather, _: Random) -> None:
    """Lists and questions agree that nothing is there, as in a cloud that has lost its database."""
    span = weather.window(200.0)
    weather.add(FaultKind.EMPTY_LIST, **span)
    weather.add(FaultKind.GET_404_GLITCH, **span)
    weather.blindness.append((span["after_s"], span["after_s"] + span["for_s"]))


def _bad_starts(weather: Weather, chance: Random) -> None:
    weather.add(FaultKind.PULL_FAILURE, probability=0.2, style=chance.choice(("exited", "stuck")))
    weather.add(FaultKind.SLOW_PULL, probability=0.2, factor=5.0)
    weather.add(FaultKind.START_WENT_THROUGH, probability=0.4)


CLIMATES: dict[str, Callable[[Weather, Random], None]] = {
    # First, because it shortens what the others may do.
    "clock_jumps": _clock_jumps,
    "flaky": _flaky,
    "storm": _storm,
    "outage": _outage,
    "empty_lists": _empty_lists,
    "partial_lists": _partial_lists,
    "list_lag": _list_lag,
    "late_commits": _late_commits,
    "lost_replies": _lost_replies,
    "garbage": _garbage,
    "crashes": _crashes,
    "out_of_stock": _out_of_stock,
    "reclaims": _reclaims,
    "flapping": _flapping,
    "hanging": _hanging,
    "throttling": _throttling,
    "denials": _denials,
    "total_denial": _total_denial,
    "bad_starts": _bad_starts,
}
