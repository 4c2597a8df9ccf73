"""A schedule: what users do and what befalls them, all of it drawn from one seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from proof.chaos.cloud.account_swap import DENYING_FAULTS, AccountSwap, draw_swap
from proof.chaos.cloud.reused_ids import NEVER_REUSED, IdReuse, draw_id_reuse
from proof.chaos.ends.plan import NO_ENDS, EndsPlan, draw_ends
from proof.chaos.fault_plan import FaultPlan, draw_fault_plan
from proof.chaos.operation import OPERATIONS_MAX, UserOperation
from proof.chaos.process import ENDS_SWEEP_S, Pace

# What somebody does at the cloud's own console, or the cloud by itself.
EXTERNAL_CHANGES = ("console_stop", "console_start", "console_delete", "console_migrate")
POLL_S = 30.0
# How often so many are late together that the collector does not dare to remove them all.
LATE_GROUP_PROBABILITY = 0.15
# A disk that costs as much as half a GPU, and a limit under which it fits in some regions only.
BIG_DISK_GB, BIG_DISK_USD_MAX = 500, Decimal("0.27")
BIG_DISK_PROBABILITY = 0.25
# How often a machine that comes too late comes to an instance that still looks for one.
LATE_WANTED_PROBABILITY = 0.1
# How often no list tells that a machine is gone whose id is used again.
UNSEEN_PROBABILITY = 0.7
# Long enough for another account to come, to be doubted, and to go.
SWAP_PHASE_S = (200.0, 600.0)
# Long enough for leases and budgets; what is idle takes longer, and gets it.
ENDS_PHASE_S = (300.0, 1200.0)
ENDS_IDLE_S = 30.0
# Not at all, for less long than the storm lasts, and for longer.
CAPACITY_WAITS_S = (0, 60, 600, 1800)
# Long enough for several to be taken back one after the other; there are more points to die at then.
HEIRS_PHASE_S, HEIRS_CRASH_SHARE = (400.0, 1500.0), 0.3
RECEIVER = ("receiver_down", "receiver_slow", "receiver_up")


@dataclass(frozen=True)
class Schedule:
    """Everything that is decided before the play begins."""

    seed: int
    profile: str
    pace: Pace
    # Machines that were there long before, and can vouch for lists.
    witness_instances: int
    ops: tuple[UserOperation, ...]
    fault_plan: FaultPlan
    downtime_s: float
    id_reuse: IdReuse = NEVER_REUSED
    account_swap: AccountSwap | None = None
    # What ends by itself: only where a profile is about that.
    ends: EndsPlan = NO_ENDS

    @property
    def has_heirs(self) -> bool:
        """Whether users mean lineages, and not single instances."""
        return PROFILES[self.profile].has_heirs


@dataclass(frozen=True)
class Profile:
    """How late the cloud may act on a call, and whether anything else goes wrong at all."""

    name: str
    # In settling times; past 1 the cloud may act after we have stopped waiting for it.
    late_max: float
    calm: bool = False
    unknown_outcomes_max: int = 3
    # Another account is shown for a while.
    swaps_accounts: bool = False
    without: frozenset[str] = frozenset()
    # Instances have leases, rules about their use, and budgets.
    has_ends: bool = False
    # The cloud is often sold out, and many wait for capacity.
    is_scarce: bool = False
    # Machines are taken back all the time, and other instances take over.
    has_heirs: bool = False


PROFILES = {
    it.name: it
    for it in (
        Profile("default", late_max=0.8),
        Profile("late", late_max=4.0),
        # As late as that, but a call of unknown outcome is never followed by another.
        Profile("strict", late_max=4.0, unknown_outcomes_max=1),
        Profile("calm", late_max=0.0, calm=True),
        Profile("ends", late_max=0.8, has_ends=True),
        Profile("ends_calm", late_max=0.0, calm=True, has_ends=True),
        Profile("capacity", late_max=0.8, is_scarce=True),
        Profile("heirs", late_max=0.8, has_heirs=True),
        Profile("accounts", late_max=0.8, swaps_accounts=True, without=DENYING_FAULTS),
    )
}


def draw_schedule(seed: int, profile_name: str = "default") -> Schedule:
    """Return the schedule of a seed: always the same."""
    profile = PROFILES[profile_name]
    schedule = _draw_weather(seed, profile, Random(f"schedule {profile.name} {seed}"))
    if profile.has_ends:
        return _with_ends(schedule, Random(f"ends {seed}"), calm=profile.calm)
    if profile.has_heirs:
        return _with_heirs(schedule, Random(f"heirs {seed}"))
    if profile.swaps_accounts:
        schedule = _with_account_swap(schedule)
    if profile.is_scarce:
        schedule = _with_scarcity(schedule)
    # Only where a second call follows does anybody still want the machine of a call that was given up.
    if profile.late_max > 1 and profile.unknown_outcomes_max > 1:
        schedule = _with_late_machine_wanted(schedule)
    reuse = NEVER_REUSED if profile.calm else draw_id_reuse(seed)
    return schedule if reuse is NEVER_REUSED else _with_reused_id(schedule, reuse)


def _draw_weather(seed: int, profile: Profile, rng: Random) -> Schedule:
    pace = Pace(
        look_s=rng.choice((10.0, 19.0, 20.0, 20.0, 20.0)),
        latency_s=rng.choice((0.0, 0.0, 0.1, 2.0)),
        delay_odds=rng.choice((0.0, 0.0, 0.05)),
        max_wait_s=rng.choice((1200.0, 3600.0)),
        # Where something may turn up while all is settled, it matters how often one looks then.
        idle_s=POLL_S if profile.late_max > 1 else Pace.idle_s,
        unknown_outcomes_max=profile.unknown_outcomes_max,
    )
    fault_phase_s = rng.uniform(*_phase_of(profile))
    late_max_s = profile.late_max * pace.settle_s
    fault_plan = (
        FaultPlan(rng, 0.0, 0.0)
        if profile.calm
        else draw_fault_plan(rng, fault_phase_s, late_max_s, without=profile.without)
    )
    fault_plan = replace(fault_plan, fault_phase_s=fault_phase_s)
    if fault_plan.jumps:
        pace = replace(pace, sweep_s=ENDS_SWEEP_S)
    ops = draw_ops(rng, fault_phase_s * 0.8)
    if profile.calm:
        ops = tuple(it for it in ops if it.kind not in EXTERNAL_CHANGES)
    if profile.late_max > 1:
        _force_lateness(fault_plan)
        if rng.random() < LATE_GROUP_PROBABILITY:
            ops = (*(_draw_create(rng, 0.0) for _ in range(5)), *ops)[:OPERATIONS_MAX]
    return Schedule(
        seed=seed,
        profile=profile.name,
        pace=pace,
        witness_instances=int(rng.random() < 0.7),
        ops=_with_big_disks(ops, Random(f"disks {profile.name} {seed}")),
        fault_plan=fault_plan,
        downtime_s=rng.choice((0.0, 20.0, 20.0, 200.0)),
    )


def _phase_of(profile: Profile) -> tuple[float, float]:
    if profile.has_heirs:
        return HEIRS_PHASE_S
    if profile.has_ends:
        return ENDS_PHASE_S
    return SWAP_PHASE_S if profile.swaps_accounts else (40.0, 300.0)


def _with_ends(schedule: Schedule, rng: Random, *, calm: bool) -> Schedule:
    """Let what users rent end by itself, and watch it as often as the service does."""
    drawn = draw_ends(schedule.ops, rng, schedule.fault_plan, calm=calm)
    pace = replace(schedule.pace, keeps_ends=True, idle_s=ENDS_IDLE_S, latency_s=rng.choice((0.0, 0.1, 0.5)))
    return replace(schedule, ops=drawn.ops, fault_plan=drawn.fault_plan, ends=drawn.plan, pace=pace)


def _with_heirs(schedule: Schedule, rng: Random) -> Schedule:
    """Let the cloud take most machines back, and let others take over: by notice, by loss, or by hand."""
    phase_s = schedule.fault_plan.fault_phase_s
    handover_s = rng.choice((0, 0, 60))
    ops = [
        replace(it, is_replaced=True, handover_s=handover_s, keep=False) if it.kind == "create" else it
        for it in schedule.ops
    ]
    # While a machine comes and another one goes, users change their minds.
    kinds = rng.choices(("delete", "stop", "start", "replace"), (3, 3, 2, 2), k=rng.randint(0, 3))
    ops += [UserOperation(rng.uniform(60.0, phase_s), kind, rng.randrange(OPERATIONS_MAX)) for kind in kinds]
    fault_plan = schedule.fault_plan
    fault_plan.active_faults.append("takes_back")
    fault_plan.add(
        FaultKind.RECLAIM,
        probability=rng.choice((0.5, 0.8)),
        seconds=rng.uniform(10.0, 240.0),
        notice_s=rng.choice((1.0, 60.0, 300.0, 900.0)),
        style=rng.choice(("time_at_reclaim", "time_at_notice")),
    )
    if rng.random() < 0.5:
        # Heirs that fail, or take long enough for their users to change their minds.
        kind, factor = rng.choice(((FaultKind.PULL_FAILURE, None), (FaultKind.SLOW_PULL, 6.0)))
        fault_plan.add(kind, probability=0.4, factor=factor)
    crashes = fault_plan.crash_probability * HEIRS_CRASH_SHARE
    fault_plan = replace(fault_plan, crash_probability=crashes)
    pace = replace(schedule.pace, idle_s=ENDS_IDLE_S, latency_s=rng.choice((0.0, 0.1, 0.5)))
    return replace(schedule, ops=tuple(ops), fault_plan=fault_plan, pace=pace)


def _with_account_swap(schedule: Schedule) -> Schedule:
    """Let another account be shown for a part of the storm."""
    rng = Random(f"accounts {schedule.seed}")
    swap, herd = draw_swap(rng, schedule.fault_plan.fault_phase_s)
    return replace(schedule, account_swap=swap, witness_instances=herd)


def _with_scarcity(schedule: Schedule) -> Schedule:
    """Let the cloud be sold out most of the time, whatever else goes wrong, and many who rent wait."""
    rng = Random(f"capacity {schedule.seed}")
    fault_plan = replace(schedule.fault_plan, faults=[*schedule.fault_plan.faults])
    fault_plan.add(FaultKind.SOLD_OUT, probability=rng.choice((0.5, 0.8, 0.98)))
    fault_plan.active_faults.append("scarcity")
    ops = tuple(
        replace(it, capacity_wait_s=rng.choice(CAPACITY_WAITS_S)) if it.kind == "create" else it
        for it in schedule.ops
    )
    return replace(schedule, fault_plan=fault_plan, ops=ops)


def _with_reused_id(schedule: Schedule, reuse: IdReuse) -> Schedule:
    """Let a machine go and another one come: by chance few schedules have an id to use again.

    Where somebody removes it at the console, mostly no list tells before its own user wants it gone, too.
    """
    rng = Random(f"id to use again {schedule.seed}")
    phase_s = schedule.fault_plan.fault_phase_s
    at_s = rng.uniform(0.0, phase_s * 0.4)
    leaves = UserOperation(at_s, rng.choice(("delete", "console_delete")), target=0)
    # Not before the id may be used again, and before all is over.
    comes = _draw_create(rng, at_s + reuse.after_s + rng.uniform(0.1, 0.5) * phase_s)
    ops, faults = [leaves, comes], list(schedule.fault_plan.faults)
    if leaves.kind == "console_delete":
        wanted = rng.choice(("delete", "delete", "stop"))
        ops.append(UserOperation(comes.at_s + rng.uniform(0.0, 60.0), wanted, target=0))
        if rng.random() < UNSEEN_PROBABILITY:
            for_s = ops[-1].at_s + 1.0 - at_s
            faults.append(Fault(FaultKind.PARTIAL_LIST, after_s=at_s, for_s=for_s, style="short_page"))
    last_s = ops[-1].at_s + 1.0
    fault_plan = replace(schedule.fault_plan, faults=faults, fault_phase_s=max(phase_s, last_s))
    ops = [*schedule.ops[: OPERATIONS_MAX - len(ops)], *ops]
    return replace(schedule, id_reuse=reuse, ops=tuple(ops), fault_plan=fault_plan)


def _with_late_machine_wanted(schedule: Schedule) -> Schedule:
    """Now and then keep an instance without a machine until that of a call which was given up turns up.

    By chance it is rare: the next create call mostly succeeds before. So the cloud refuses it until then.
    """
    rng = Random(f"late machine wanted {schedule.seed}")
    if rng.random() >= LATE_WANTED_PROBABILITY:
        return schedule
    settle_s = schedule.pace.settle_s
    late_s = rng.uniform(1.5, 2.5) * settle_s
    # Past both the late effect and the looks that show it.
    phase_s = late_s + settle_s
    before = schedule.fault_plan
    fault_plan = FaultPlan(before.rng, phase_s, late_s, crash_probability=before.crash_probability)
    fault_plan.active_faults.append("late_machine_wanted")
    fault_plan.add(FaultKind.LATE_COMMIT, count=1, seconds=late_s, endpoints=(ApiEndpoint.CREATE,))
    # Not before the first call was made, nor after it can be given up.
    fault_plan.add(
        FaultKind.RATE_LIMIT, after_s=settle_s / 2, retry_after="20", endpoints=(ApiEndpoint.CREATE,)
    )
    return replace(schedule, fault_plan=fault_plan, ops=schedule.ops[:1], witness_instances=1)


def _force_lateness(fault_plan: FaultPlan) -> None:
    """See to it that the window which only lateness opens is open."""
    fault_plan.active_faults.append("very_late")
    seconds = fault_plan.rng.uniform(0.5, 1.0) * fault_plan.late_max_s
    fault_plan.add(FaultKind.LATE_COMMIT, probability=0.4, seconds=seconds, endpoints=(ApiEndpoint.CREATE,))


def draw_ops(rng: Random, span_s: float) -> tuple[UserOperation, ...]:
    """Draw one to eight operations; few more often than many, and many of them close together."""
    count = min(OPERATIONS_MAX, 1 + int(rng.expovariate(0.5)))
    ops = [_draw_create(rng, 0.0)]
    at_s = 0.0
    while len(ops) < count:
        at_s += rng.choice((0.0, rng.expovariate(0.2), rng.expovariate(0.02)))
        if at_s >= span_s:
            break
        ops.append(_draw_op(rng, at_s))
        if ops[-1].kind == "stop" and rng.random() < 0.7:
            # Nobody stops for the sake of stopping: something follows, often before the stop is done.
            following = rng.choice(("start", "start", "delete"))
            ops.append(replace(ops[-1], at_s=at_s + rng.uniform(0.0, 30.0), kind=following))
    return tuple(ops[:OPERATIONS_MAX])


def _with_big_disks(ops: tuple[UserOperation, ...], rng: Random) -> tuple[UserOperation, ...]:
    """Let some creates want more disk than is free, for no more than so much. All else stays as drawn."""
    return tuple(
        replace(it, disk_gb=BIG_DISK_GB, hourly_usd_max=BIG_DISK_USD_MAX)
        if it.kind == "create" and rng.random() < BIG_DISK_PROBABILITY
        else it
        for it in ops
    )


def _draw_op(rng: Random, at_s: float) -> UserOperation:
    kind = rng.choices(
        ("create", "duplicate", "start", "stop", "delete", *EXTERNAL_CHANGES, *RECEIVER),
        (8, 4, 6, 6, 10, 1, 1, 1, 1, 2, 2, 2),
    )[0]
    if kind == "create":
        return _draw_create(rng, at_s)
    return UserOperation(at_s, kind, target=rng.randrange(OPERATIONS_MAX))


def _draw_create(rng: Random, at_s: float) -> UserOperation:
    return UserOperation(
        at_s,
        "create",
        webhook=rng.random() < 0.7,
        health_check=rng.random() < 0.2,
        keep=rng.random() < 0.1,
    )
