"""Draws what ends by itself: which terms instances have, how they are used, and what budgets there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from gpuherd.domain.instance.lease import (
    EndAction,
    Idleness,
    Lease,
    Silence,
)
from gpuherd.domain.money.budget import AtLimit, BudgetScope, ScopeKind
from gpuherd.domain.money.period import BudgetPeriod
from gpuherd.simulator.faults import FaultKind
from gpuherd.usecases.money.manage_budgets import BudgetRequest
from proof.chaos.fault_plan import FaultPlan
from proof.chaos.operation import UserOperation

# Where the looks are seconds apart there are many more points to die at.
CRASH_SHARE = 0.08
# A step that is no step at all by the service's own word is left out: it takes half a minute.
SMALL_STEP_S, NOTICED_STEP_S = 30.0, 45.0
# What a machine costs here, in nano-dollars an hour, and what is counted for it when it is accepted.
NANO_AN_HOUR, HORIZON_S = 200_000_000, 900.0
# An idle machine is given its time to come up, then the time of idleness, then it is announced.
IDLE_PHASE_S = (2000.0, 3000.0)
# Long enough for some of them to be used up.
BUDGET_PHASE_S = (1200.0, 2400.0)
USES = ("zero", "zero", "zero", "busy", "blips", "cpu", "ends", "begins")
TEAMS = ("red", "blue")


@dataclass(frozen=True)
class EndsPlan:
    """What there is beside the operations of users."""

    budgets: tuple[BudgetRequest, ...] = ()
    # How often a reply of the metrics misses one sample in the middle.
    hole_probability: float = 0.0
    # From when to when, in seconds after the storm began, the metrics say that nothing is used.
    zeros: tuple[float, float] | None = None


NO_ENDS = EndsPlan()


@dataclass(frozen=True)
class DrawnEnds:
    """A schedule's operations and weather with ends in them."""

    ops: tuple[UserOperation, ...]
    fault_plan: FaultPlan
    plan: EndsPlan = NO_ENDS


def draw_ends(
    ops: Sequence[UserOperation], rng: Random, fault_plan: FaultPlan, *, calm: bool = False
) -> DrawnEnds:
    """Let instances have ends of one kind, or of all."""
    jumps = [
        (at_s, NOTICED_STEP_S if step_s == SMALL_STEP_S else step_s) for at_s, step_s in fault_plan.jumps
    ]
    fault_plan = replace(
        fault_plan, jumps=jumps, crash_probability=fault_plan.crash_probability * CRASH_SHARE
    )
    drawn = DrawnEnds(tuple(ops), fault_plan)
    kinds = tuple(_KINDS.values()) if rng.random() < 0.15 else (_KINDS[rng.choice(_WEIGHTED)],)
    for kind in kinds:
        drawn = kind(drawn, rng)
    if calm:
        return replace(drawn, plan=replace(drawn.plan, hole_probability=0.0, zeros=None))
    if drawn.plan.zeros is not None:
        after_s, until_s = drawn.plan.zeros
        drawn.fault_plan.add(FaultKind.WRONG_METRICS, style="zeros", after_s=after_s, for_s=until_s - after_s)
    return drawn


def _leases(drawn: DrawnEnds, rng: Random) -> DrawnEnds:
    phase_s = drawn.fault_plan.fault_phase_s
    ops = []
    for it in drawn.ops:
        if it.kind == "create":
            lease = Lease(rng.randint(20, 400), then=_action(rng))
            stopped = rng.choice((None, None, rng.randint(30, 200)))
            it = replace(it, terms=replace(it.terms, lease=lease, delete_stopped_s=stopped))
        ops.append(it)
    for _ in range(rng.randint(0, 4)):
        op = UserOperation(rng.uniform(0.0, phase_s * 0.8), "extend", rng.randrange(8))
        op = replace(op, seconds=rng.randint(10, 300))
        if rng.random() < 0.5:
            # As near to the end as it gets, on both sides of it.
            op = replace(op, before_end_s=rng.choice((0.0, rng.uniform(-6.0, 3.0))))
        ops.append(op)
    return replace(drawn, ops=tuple(ops))


def _silence(drawn: DrawnEnds, rng: Random) -> DrawnEnds:
    phase_s = drawn.fault_plan.fault_phase_s
    ops = []
    for it in drawn.ops:
        if it.kind == "create" and rng.random() < 0.8:
            silence = Silence(rng.randint(20, 150), _action(rng))
            beats_for_s = rng.choice((0.0, rng.uniform(0.0, phase_s), phase_s))
            it = replace(it, terms=replace(it.terms, silence=silence), beats_for_s=beats_for_s)
        ops.append(it)
    return replace(drawn, ops=tuple(ops))


def _idleness(drawn: DrawnEnds, rng: Random) -> DrawnEnds:
    phase_s = rng.uniform(*IDLE_PHASE_S)
    creates = [it for it in drawn.ops if it.kind == "create"]
    # Enough of them for the brake to matter.
    creates += [replace(creates[0], at_s=rng.uniform(0.0, 60.0)) for _ in range(rng.randint(0, 4))]
    others = [it for it in drawn.ops if it.kind in ("duplicate", "console_stop", "console_migrate")]
    ops: list[UserOperation] = []
    for it in creates:
        idle = Idleness(rng.randint(300, 600), then=_action(rng))
        beats_for_s = rng.choice((0.0, 0.0, 0.0, rng.uniform(0.0, phase_s)))
        terms = replace(it.terms, idle=idle)
        ops.append(replace(it, terms=terms, use=rng.choice(USES), beats_for_s=beats_for_s))
    zeros = (0.0, phase_s) if rng.random() < 0.3 else None
    plan = replace(drawn.plan, hole_probability=rng.choice((0.0, 0.0, 0.5)), zeros=zeros)
    fault_plan = replace(drawn.fault_plan, fault_phase_s=phase_s)
    if zeros is None and rng.random() < 0.3:
        style = rng.choice(("gap", "empty"))
        fault_plan.add(FaultKind.WRONG_METRICS, style=style, probability=rng.choice((0.3, 1.0)))
    return replace(drawn, ops=(*ops, *others), fault_plan=fault_plan, plan=plan)


def _budgets(drawn: DrawnEnds, rng: Random) -> DrawnEnds:
    creates = [it for it in drawn.ops if it.kind == "create"]
    more = [replace(creates[0], at_s=rng.uniform(0.0, 120.0)) for _ in range(rng.randint(0, 4))]
    budgets, ops = [], []
    scopes = [BudgetScope(ScopeKind.LABEL, "team", TEAMS[0]), BudgetScope(ScopeKind.KEY, "admin")]
    for n, scope in enumerate(rng.sample([*scopes, BudgetScope()], rng.randint(1, 2))):
        strict = rng.random() < 0.3
        # Of one machine it pays for as long as is counted when it is accepted, and somewhat longer.
        seconds = HORIZON_S * rng.uniform(1.05, 3.0)
        at_limit = rng.choice((AtLimit.WARN, AtLimit.BLOCK, AtLimit.STOP, AtLimit.STOP, AtLimit.DELETE))
        amount = int(NANO_AN_HOUR * seconds / 3600)
        budgets.append(
            BudgetRequest(f"b{n}", scope, amount, BudgetPeriod.TOTAL, at_limit=at_limit, strict=strict)
        )
    needs_lease = any(it.strict for it in budgets)
    for it in (*drawn.ops, *more):
        if it.kind == "create":
            it = replace(it, labels={"team": rng.choice(TEAMS)})
            if needs_lease and it.terms.lease is None and rng.random() < 0.9:
                it = replace(it, terms=replace(it.terms, lease=Lease(rng.randint(60, 1500))))
        ops.append(it)
    phase_s = max(drawn.fault_plan.fault_phase_s, rng.uniform(*BUDGET_PHASE_S))
    fault_plan = replace(drawn.fault_plan, fault_phase_s=phase_s)
    plan = replace(drawn.plan, budgets=tuple(budgets))
    return replace(drawn, ops=tuple(ops), plan=plan, fault_plan=fault_plan)


def _action(rng: Random) -> EndAction:
    return rng.choice((EndAction.STOP, EndAction.STOP, EndAction.DELETE))


_KINDS: dict[str, Callable[[DrawnEnds, Random], DrawnEnds]] = {
    "leases": _leases,
    "silence": _silence,
    "idleness": _idleness,
    "budgets": _budgets,
}
_WEIGHTED = ("leases", "leases", "silence", "idleness", "budgets")
