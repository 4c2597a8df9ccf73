"""I17: what is in a budget costs no more than its amount, and what could not be stopped in time."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lease import EndAction
from gpuherd.domain.money.budget import AtLimit, Budget, BudgetRules
from gpuherd.domain.money.usage_span import NANO
from gpuherd.simulator.simulated_bill import DISK, Charge, Span
from gpuherd.simulator.simulated_machine import machine_charges
from proof.chaos.checks.abilities import Abilities
from proof.chaos.checks.ends_checker import EPSILON_S, WITHIN_S
from proof.chaos.checks.evidence import Evidence, Violation
from proof.chaos.checks.money_checker import MachineLifetime

RULES = BudgetRules()
# The simulated cloud stops a machine in less, and bills meanwhile; a list must show that it has.
STOP_S = 30.0
# A stop or delete without an effect is asked for again after this, and after the next look.
ASK_AGAIN_S = 100.0
# By so much the ledger may lag behind the bill: until the next list shows what has begun.
UNSEEN_S = 60.0


def check_spending(evidence: Evidence, lifetimes: list[MachineLifetime]) -> Iterator[Violation]:
    """I17: the cloud's own bill against the amounts; nothing is accepted into one that is used up."""
    if not evidence.ends.budgets:
        return
    can = Abilities(evidence)
    for history in evidence.ends.budgets.values():
        budget = history[-1][1]
        yield from _check_accepted(evidence, budget, history)
        if budget.end_action is not None:
            used_up_s = next((at_s for at_s, it in history if it.exhausted), evidence.ended_s)
            yield from _check_amount(evidence, can, budget, lifetimes, used_up_s)
            yield from _check_all_ended(evidence, can, budget, history)


def _check_accepted(
    evidence: Evidence, budget: Budget, history: list[tuple[float, Budget]]
) -> Iterator[Violation]:
    if budget.at_limit is AtLimit.WARN and not budget.strict:
        return
    for instance_id, versions in evidence.ends.versions.items():
        at_s, it = versions[0].at_s, versions[0].instance
        if not budget.scope.includes(it.owner, it.labels) or it.status is not Status.CREATING:
            continue
        known = [version for since_s, version in history if since_s < at_s]
        if known and known[-1].exhausted:
            yield Violation("I17 budget", f"{instance_id} was accepted into {budget.name}, which is used up")
        if budget.strict and it.terms.lease is None:
            yield Violation("I17 budget", f"{instance_id} was accepted into {budget.name} without a lease")


def _check_amount(
    evidence: Evidence, can: Abilities, budget: Budget, lifetimes: list[MachineLifetime], used_up_s: float
) -> Iterator[Violation]:
    """Bill <= amount + burn x (lead + 10 s + stop) + what the weather forbade.

    A budget that stops leaves the disks: what is stopped keeps its data, and they go on costing.
    """
    spent, allowed, burn = Fraction(0), Fraction(budget.amount, NANO), Fraction(0)
    until_s = evidence.ended_s
    forbidden_s = can.forbidden_s(0.0, until_s) + can.set_back_s(0.0, until_s)
    forbidden_s += sum(it.seconds for it in (*evidence.outages, *evidence.blind_windows, *evidence.braked))
    for lifetime in lifetimes:
        owner = _owner(evidence, lifetime)
        if owner is None or not budget.scope.includes(owner.owner, owner.labels):
            continue
        charges = machine_charges(lifetime.machine, evidence.world.now())
        spent += sum((it.usd for it in _since_start(evidence, charges)), Fraction(0))
        if budget.end_action is EndAction.STOP:
            kept = Span(evidence.origin_s + used_up_s, evidence.world.now())
            disks = [part for it in charges if it.kind == DISK and (part := it.within(kept))]
            allowed += sum((it.usd for it in disks), Fraction(0))
        rate = max((it.usd_per_hour for it in charges), default=Fraction(0))
        burn += rate
        # Until it was bound nobody could have ended it; and commands that came to nothing were repeated.
        unbound_s = max(0.0, (lifetime.bound_s or lifetime.end_s) - lifetime.begin_s)
        failed = sum(bool(call.error) for call in evidence.ends.calls if call.cloud_id == lifetime.machine.id)
        lost = sum(
            line.machine_id == lifetime.machine.id
            and line.endpoint in ("stop", "delete")
            and line.outcome != "ok"
            for line in evidence.world.record.lines
        )
        allowed += rate * Fraction(unbound_s + UNSEEN_S + ASK_AGAIN_S * (failed + lost)) / 3600
    allowed += burn * Fraction(RULES.lead.total_seconds() + WITHIN_S + STOP_S + forbidden_s) / 3600
    if spent > allowed:
        words = f"{budget.name} ({budget.at_limit}) holds {budget.amount / NANO:.4f} USD, and"
        yield Violation(
            "I17 budget", f"{words} {float(spent):.4f} were spent; {float(allowed):.4f} is excused"
        )


def _owner(evidence: Evidence, lifetime: MachineLifetime) -> Instance | None:
    row = evidence.tables.instances.get(lifetime.owner)
    return None if row is None else row.instance


def _since_start(evidence: Evidence, charges: list[Charge]) -> Iterator[Charge]:
    window = Span(evidence.origin_s, evidence.world.now())
    for charge in charges:
        if (part := charge.within(window)) is not None:
            yield part


def _check_all_ended(
    evidence: Evidence, can: Abilities, budget: Budget, history: list[tuple[float, Budget]]
) -> Iterator[Violation]:
    """Once it is used up, everything in it is told to end within seconds."""
    used_up_s = next((at_s for at_s, it in history if it.exhausted), None)
    if used_up_s is None:
        return
    latest_s = can.latest(used_up_s, WITHIN_S)
    if latest_s >= evidence.ended_s:
        return
    for instance_id, versions in evidence.ends.versions.items():
        it = evidence.ends.version_at(instance_id, used_up_s)
        if it is None or not budget.scope.includes(it.owner, it.labels) or not _goes_on(it):
            continue
        after = [version.instance for version in versions if version.at_s <= latest_s + EPSILON_S]
        if _goes_on(after[-1]):
            late_s = latest_s - used_up_s
            yield Violation(
                "I17 budget", f"{instance_id} goes on {late_s:.0f} s after {budget.name} is used up"
            )


def _goes_on(it: Instance) -> bool:
    return it.goal is Goal.RUNNING and it.status not in (Status.EXITED, Status.FAILED, Status.DELETED)
