"""Faults by seed: which kinds are active in this schedule, how often each strikes, and for how long.

Two levels of odds, as in FoundationDB's simulation: a site is active in this seed or it is not, and only then
does it strike now and then. So that seeds with one single fault turn up as well as storms of everything."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind

ACTIVE_PROBABILITY = 0.25
COMMANDS = (ApiEndpoint.START, ApiEndpoint.STOP, ApiEndpoint.DELETE)
CHANGES = (ApiEndpoint.CREATE, *COMMANDS)
# A create may hang, then commit late, then be listed late: together no later than is allowed.
LAG_SHARE, COMMIT_SHARE, HANG_SHARE = 0.3, 0.45, 0.2
GARBAGE = ("broken_json", "html", "empty", "empty_id", "number_id", "null_id", "cut", "list", "wrong_type")
PAGES = ("missing_page", "duplicated_page", "wrong_total", "short_page")


@dataclass
class FaultPlan:
    """What goes wrong, and when."""

    rng: Random
    fault_phase_s: float
    # No commit and no listing later than this after its call, together.
    late_max_s: float
    active_faults: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    # Spans in which every single call fails.
    outages: list[tuple[float, float]] = field(default_factory=list)
    # Spans in which no list shows anything.
    blind_windows: list[tuple[float, float]] = field(default_factory=list)
    jumps: list[tuple[float, float]] = field(default_factory=list)
    crash_probability: float = 0.0

    def add(self, kind: FaultKind, **particulars: object) -> None:
        """Set a fault for as long as the storm lasts, unless it says otherwise."""
        self.faults.append(Fault(kind, **{"for_s": self.fault_phase_s, **particulars}))  # type: ignore[arg-type]

    def window(self, longest_s: float) -> dict[str, float]:
        """Return a span somewhere in the storm."""
        after_s = self.rng.uniform(0.0, self.fault_phase_s * 0.7)
        return {
            "after_s": after_s,
            "for_s": min(self.rng.uniform(20.0, longest_s), self.fault_phase_s - after_s),
        }


def draw_fault_plan(
    rng: Random, fault_phase_s: float, late_max_s: float, *, without: Collection[str] = ()
) -> FaultPlan:
    """Return the weather of one schedule."""
    fault_plan = FaultPlan(rng, fault_phase_s, late_max_s)
    active = [name for name in FAULT_GENERATORS if rng.random() < ACTIVE_PROBABILITY]
    if rng.random() < 0.3:
        # A day on which only one thing goes wrong.
        active = [rng.choice(list(FAULT_GENERATORS))]
    for name in (it for it in active if it not in without):
        FAULT_GENERATORS[name](fault_plan, rng)
        fault_plan.active_faults.append(name)
    if not fault_plan.crash_probability and rng.random() < 0.6:
        fault_plan.crash_probability = 0.008
    return fault_plan


def _flaky(fault_plan: FaultPlan, _: Random) -> None:
    fault_plan.add(FaultKind.OUTAGE, probability=0.05)


def _storm(fault_plan: FaultPlan, rng: Random) -> None:
    fault_plan.add(FaultKind.OUTAGE, probability=0.4, style=rng.choice(("json", "html", "cut")))
    fault_plan.add(FaultKind.LOST_REPLY_AFTER_COMMIT, probability=0.2, endpoints=CHANGES)


def _outage(fault_plan: FaultPlan, rng: Random) -> None:
    span = fault_plan.window(400.0)
    fault_plan.add(FaultKind.OUTAGE, **span, style=rng.choice(("json", "html", "cut")))
    fault_plan.outages.append((span["after_s"], span["after_s"] + span["for_s"]))


def _empty_lists(fault_plan: FaultPlan, _: Random) -> None:
    fault_plan.add(FaultKind.EMPTY_LIST, **fault_plan.window(400.0))


def _partial_lists(fault_plan: FaultPlan, rng: Random) -> None:
    odds = rng.choice((0.3, 1.0))
    fault_plan.add(
        FaultKind.PARTIAL_LIST, **fault_plan.window(300.0), style=rng.choice(PAGES), probability=odds
    )


def _list_lag(fault_plan: FaultPlan, rng: Random) -> None:
    lag_s = rng.uniform(0.0, fault_plan.late_max_s * LAG_SHARE)
    fault_plan.add(FaultKind.LIST_LAG, probability=0.6, seconds=lag_s)


def _late_commits(fault_plan: FaultPlan, rng: Random) -> None:
    late_s = rng.uniform(0.0, fault_plan.late_max_s * COMMIT_SHARE)
    fault_plan.add(FaultKind.LATE_COMMIT, probability=0.5, seconds=late_s, endpoints=CHANGES)


def _lost_replies(fault_plan: FaultPlan, _: Random) -> None:
    fault_plan.add(FaultKind.LOST_REPLY_AFTER_COMMIT, probability=0.3, endpoints=CHANGES)
    fault_plan.add(FaultKind.LOST_REPLY_BEFORE_COMMIT, probability=0.2, endpoints=CHANGES)
    fault_plan.add(FaultKind.ERROR_AFTER_COMMIT, probability=0.15, endpoints=CHANGES, status=502)


def _garbage(fault_plan: FaultPlan, rng: Random) -> None:
    fault_plan.add(FaultKind.GARBAGE, probability=0.3, style=rng.choice(GARBAGE), endpoints=CHANGES)
    fault_plan.add(
        FaultKind.GARBAGE, probability=0.1, style="html", endpoints=(ApiEndpoint.LIST, ApiEndpoint.GET)
    )


def _crashes(fault_plan: FaultPlan, rng: Random) -> None:
    fault_plan.crash_probability = rng.choice((0.02, 0.03, 0.04))


def _clock_jumps(fault_plan: FaultPlan, rng: Random) -> None:
    # Each leap of the clock may make us believe that we have watched for longer than we have.
    fault_plan.late_max_s /= 2
    for _ in range(rng.randint(1, 3)):
        seconds = rng.choice((-600.0, -60.0, 30.0, 300.0, 3600.0))
        fault_plan.jumps.append((rng.uniform(0.0, fault_plan.fault_phase_s), seconds))


def _out_of_stock(fault_plan: FaultPlan, rng: Random) -> None:
    fault_plan.add(FaultKind.SOLD_OUT, probability=rng.choice((0.3, 0.7)))


def _reclaims(fault_plan: FaultPlan, rng: Random) -> None:
    after_s, notice_s = rng.uniform(0.0, 120.0), rng.uniform(0.0, 120.0)
    fault_plan.add(FaultKind.RECLAIM, probability=0.5, seconds=after_s, notice_s=notice_s)


def _flapping(fault_plan: FaultPlan, _: Random) -> None:
    fault_plan.add(FaultKind.STATUS_FLAP, probability=0.3)
    fault_plan.add(FaultKind.UNKNOWN_STATUS, probability=0.1)


def _hanging(fault_plan: FaultPlan, rng: Random) -> None:
    style = rng.choice(("after_commit", "before_commit"))
    seconds = rng.uniform(5.0, max(36.0, fault_plan.late_max_s * HANG_SHARE))
    fault_plan.add(FaultKind.HANG, probability=0.15, seconds=seconds, style=style)


def _throttling(fault_plan: FaultPlan, rng: Random) -> None:
    fault_plan.add(FaultKind.RATE_LIMIT, probability=0.3, retry_after=rng.choice(("", "2", "20")))


def _denials(fault_plan: FaultPlan, _: Random) -> None:
    fault_plan.add(FaultKind.GET_404_GLITCH, probability=0.3)


def _total_denial(fault_plan: FaultPlan, _: Random) -> None:
    """Lists and questions agree that nothing is there, as in a cloud that has lost its database."""
    span = fault_plan.window(200.0)
    fault_plan.add(FaultKind.EMPTY_LIST, **span)
    fault_plan.add(FaultKind.GET_404_GLITCH, **span)
    fault_plan.blind_windows.append((span["after_s"], span["after_s"] + span["for_s"]))


def _bad_starts(fault_plan: FaultPlan, rng: Random) -> None:
    fault_plan.add(FaultKind.PULL_FAILURE, probability=0.2, style=rng.choice(("exited", "stuck")))
    fault_plan.add(FaultKind.SLOW_PULL, probability=0.2, factor=5.0)
    fault_plan.add(FaultKind.START_WENT_THROUGH, probability=0.4)


FAULT_GENERATORS: dict[str, Callable[[FaultPlan, Random], None]] = {
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
