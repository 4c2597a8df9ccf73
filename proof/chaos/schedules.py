"""A schedule: what users do and what befalls them, all of it drawn from one seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random

from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.faults.fault import FaultKind
from proof.chaos.fault_plan import FaultPlan, draw_fault_plan
from proof.chaos.process import Pace

OPERATIONS_MAX = 8
# What somebody does at the cloud's own console, or the cloud by itself.
EXTERNAL_CHANGES = ("console_stop", "console_start", "console_delete", "console_migrate")
POLL_S = 30.0
# How often so many are late together that the collector does not dare to remove them all.
LATE_GROUP_PROBABILITY = 0.15
# A disk that costs as much as half a GPU, and a limit under which it fits in some regions only.
BIG_DISK_GB, BIG_DISK_USD_MAX = 500, Decimal("0.27")
BIG_DISK_PROBABILITY = 0.25
RECEIVER = ("receiver_down", "receiver_slow", "receiver_up")


@dataclass(frozen=True)
class UserOperation:
    """One thing that a user does, so long after the storm began."""

    at_s: float
    kind: str
    # Which of the instances that this user has made: the n-th, counted round.
    target: int = 0
    webhook: bool = False
    health_check: bool = False
    keep: bool = False
    disk_gb: int = 60
    hourly_usd_max: Decimal | None = None


@dataclass(frozen=True)
class Schedule:
    """Everything that is decided before the play begins."""

    seed: int
    profile: str
    pace: Pace
    # A machine that was there long before, and can vouch for lists.
    has_witness_instance: bool
    ops: tuple[UserOperation, ...]
    fault_plan: FaultPlan
    downtime_s: float


@dataclass(frozen=True)
class Profile:
    """How late the cloud may act on a call, and whether anything else goes wrong at all."""

    name: str
    # In settling times; past 1 the cloud may act after we have stopped waiting for it.
    late_max: float
    calm: bool = False
    unknown_outcomes_max: int = 3


PROFILES = {
    it.name: it
    for it in (
        Profile("default", late_max=0.8),
        Profile("late", late_max=4.0),
        # As late as that, but a call of unknown outcome is never followed by another.
        Profile("strict", late_max=4.0, unknown_outcomes_max=1),
        Profile("calm", late_max=0.0, calm=True),
    )
}


def draw_schedule(seed: int, profile_name: str = "default") -> Schedule:
    """Return the schedule of a seed: always the same."""
    profile = PROFILES[profile_name]
    chance = Random(f"schedule {profile.name} {seed}")
    pace = Pace(
        look_s=chance.choice((10.0, 19.0, 20.0, 20.0, 20.0)),
        latency_s=chance.choice((0.0, 0.0, 0.1, 2.0)),
        delay_odds=chance.choice((0.0, 0.0, 0.05)),
        max_wait_s=chance.choice((1200.0, 3600.0)),
        # Where something may turn up while all is settled, it matters how often one looks then.
        idle_s=POLL_S if profile.late_max > 1 else Pace.idle_s,
        unknown_outcomes_max=profile.unknown_outcomes_max,
    )
    fault_phase_s = chance.uniform(40.0, 300.0)
    late_max_s = profile.late_max * pace.settle_s
    fault_plan = (
        FaultPlan(chance, 0.0, 0.0) if profile.calm else draw_fault_plan(chance, fault_phase_s, late_max_s)
    )
    fault_plan = replace(fault_plan, fault_phase_s=fault_phase_s)
    ops = draw_ops(chance, fault_phase_s * 0.8)
    if profile.calm:
        ops = tuple(it for it in ops if it.kind not in EXTERNAL_CHANGES)
    if profile.late_max > 1:
        _force_lateness(fault_plan)
        if chance.random() < LATE_GROUP_PROBABILITY:
            ops = (*(_draw_create(chance, 0.0) for _ in range(5)), *ops)[:OPERATIONS_MAX]
    return Schedule(
        seed=seed,
        profile=profile.name,
        pace=pace,
        has_witness_instance=chance.random() < 0.7,
        ops=_with_big_disks(ops, Random(f"disks {profile.name} {seed}")),
        fault_plan=fault_plan,
        downtime_s=chance.choice((0.0, 20.0, 20.0, 200.0)),
    )


def _force_lateness(fault_plan: FaultPlan) -> None:
    """See to it that the window which only lateness opens is open."""
    fault_plan.active_faults.append("very_late")
    seconds = fault_plan.chance.uniform(0.5, 1.0) * fault_plan.late_max_s
    fault_plan.add(FaultKind.LATE_COMMIT, probability=0.4, seconds=seconds, endpoints=(ApiEndpoint.CREATE,))


def draw_ops(chance: Random, span_s: float) -> tuple[UserOperation, ...]:
    """Draw one to eight operations; few more often than many, and many of them close together."""
    count = min(OPERATIONS_MAX, 1 + int(chance.expovariate(0.5)))
    ops = [_draw_create(chance, 0.0)]
    at_s = 0.0
    while len(ops) < count:
        at_s += chance.choice((0.0, chance.expovariate(0.2), chance.expovariate(0.02)))
        if at_s >= span_s:
            break
        ops.append(_draw_op(chance, at_s))
        if ops[-1].kind == "stop" and chance.random() < 0.7:
            # Nobody stops for the sake of stopping: something follows, often before the stop is done.
            following = chance.choice(("start", "start", "delete"))
            ops.append(replace(ops[-1], at_s=at_s + chance.uniform(0.0, 30.0), kind=following))
    return tuple(ops[:OPERATIONS_MAX])


def _with_big_disks(ops: tuple[UserOperation, ...], chance: Random) -> tuple[UserOperation, ...]:
    """Let some creates want more disk than is free, for no more than so much. All else stays as drawn."""
    return tuple(
        replace(it, disk_gb=BIG_DISK_GB, hourly_usd_max=BIG_DISK_USD_MAX)
        if it.kind == "create" and chance.random() < BIG_DISK_PROBABILITY
        else it
        for it in ops
    )


def _draw_op(chance: Random, at_s: float) -> UserOperation:
    kind = chance.choices(
        ("create", "duplicate", "start", "stop", "delete", *EXTERNAL_CHANGES, *RECEIVER),
        (8, 4, 6, 6, 10, 1, 1, 1, 1, 2, 2, 2),
    )[0]
    if kind == "create":
        return _draw_create(chance, at_s)
    return UserOperation(at_s, kind, target=chance.randrange(OPERATIONS_MAX))


def _draw_create(chance: Random, at_s: float) -> UserOperation:
    return UserOperation(
        at_s,
        "create",
        webhook=chance.random() < 0.7,
        health_check=chance.random() < 0.2,
        keep=chance.random() < 0.1,
    )
