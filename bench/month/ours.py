"""Reads our own month: who wanted what until when, how late each end was, and how far the ledger is off."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from bench.month.measure import Played, Want, lost_s
from bench.month.play import MonthHarness, UserLog
from bench.month.users import IDLE_S, SILENCE_S, Habit
from bench.month.weather import MonthWorld
from gpuherd.domain.money.usage_span import NANO, CostKind, CostSpan
from gpuherd.simulator.simulated_bill import GPU, gpu_usd_per_hour
from gpuherd.simulator.simulated_machine import SimulatedMachine
from proof.chaos.checks.ledger_sums import LedgerSums, ledger_sums
from proof.chaos.checks.money_checker import owner_by_tag

NAME = "gpuherd"


def played_by_us(harness: MonthHarness) -> Played:
    """Return our month in the shape of all the others."""
    world = harness.world
    assert isinstance(world, MonthWorld)
    world.tick()
    log_of = {instance_id: log for log in harness.logs.values() for instance_id in log.instance_ids}
    machines: dict[str, list[SimulatedMachine]] = defaultdict(list)
    unbound = []
    for machine in world.machines.values():
        log = log_of.get(owner_by_tag(machine) or "")
        if log is None or machine.id not in harness.evidence.bound_at_s:
            unbound.append(machine)
        else:
            machines[log.rental.name].append(machine)
    played = Played(NAME, world, harness.plan.end_s, [], unbound)
    for log in harness.logs.values():
        if log.refused:
            played.refused[log.refused] += 1
        made = machines[log.rental.name]
        if made:
            end_s = want_end_s(harness, log, made)
            played.wants.append(Want(log.rental, end_s, end_s + log.rental.stopped_s, made))
    return played


def want_end_s(harness: MonthHarness, log: UserLog, made: list[SimulatedMachine]) -> float:
    """Return when a rental ends by the word of its user or by what was agreed."""
    world = harness.world
    assert isinstance(world, MonthWorld)
    if log.usable_s is None:
        # Whoever never got it usable wanted it until it had failed.
        return harness.plan.end_s
    nominal_s = log.usable_s + log.rental.wanted_s
    match log.rental.habit:
        case Habit.FORGOTTEN:
            promises = harness.evidence.ends.promises[log.instance_ids[-1]]
            return promises[-1].ends_s if promises else nominal_s
        case Habit.INTERACTIVE:
            return nominal_s
        case Habit.AGENT:
            if log.ended_s is None or any(lost_s(it, world) is not None for it in made):
                return nominal_s
            return silent_s(harness, log.ended_s)
        case _:
            return nominal_s if log.ended_s is None else log.ended_s


def silent_s(harness: MonthHarness, heard_s: float) -> float:
    """Return when the silence is long enough: it counts only while somebody could have been heard."""
    end_s = heard_s + SILENCE_S
    lives_s = harness.evidence.ends.lives_s
    while (began_s := lives_s[bisect_right(lives_s, end_s) - 1]) > heard_s:
        heard_s, end_s = began_s, began_s + SILENCE_S
    return end_s


def ends_late_s(harness: MonthHarness, played: Played, habits: frozenset[Habit]) -> list[float]:
    """Return how many seconds after each end the stop or the delete of its machine was first asked for."""
    asked: dict[str, list[float]] = defaultdict(list)
    for call in harness.evidence.ends.calls:
        asked[call.cloud_id].append(call.begin_s)
    late = []
    for want in played.wants:
        if want.rental.habit not in habits or want.end_s >= played.end_s:
            continue
        for machine in want.machines:
            at = played.world.origin_s + want.end_s
            if machine.status(at) == "running":
                calls = [it for it in sorted(asked[machine.id]) if it >= want.end_s - IDLE_S]
                late.append((calls[0] if calls else played.end_s) - want.end_s)
    return late


def compare_ledger(harness: MonthHarness) -> LedgerSums:
    """Sum up the ledger and the bill, and look at each machine by itself."""
    # The last one that was made: by a clock that is set back, an earlier one may seem later.
    seen_at = harness.tables.lists[max(harness.tables.lists)].started_at
    return ledger_sums(_spans(harness), harness.world, harness.clock.now(), seen_at)


def rented_at_other_price(harness: MonthHarness, sums: LedgerSums) -> int:
    """Return how many machines are off because their price moved between our look at it and the create."""
    machines = harness.world.machines
    return sum(kind == GPU and _is_other_price(harness, machines[key]) for key, kind in sums.beyond)


def _is_other_price(harness: MonthHarness, machine: SimulatedMachine) -> bool:
    mine = [it for it in _spans(harness) if it.cloud_id == machine.id and it.kind is CostKind.GPU]
    known = {it.rate.nano_usd for it in mine}
    return bool(known) and known != {int(gpu_usd_per_hour(machine.price, 1) * NANO)}


def _spans(harness: MonthHarness) -> list[CostSpan]:
    return [row.span for row in (*harness.archive.spans, *harness.tables.spans.values())]
