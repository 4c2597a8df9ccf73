"""What a month came to: dollars by cause and seconds served, from what the simulated cloud itself knows.

The same for every strategy: who wanted which machine until when, and the machines that were made for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from bench.month.floors import Served
from bench.month.users import Habit, Rental
from bench.month.weather import MonthWorld
from gpuherd.simulator.simulated_bill import GPU, Charge, Span
from gpuherd.simulator.simulated_machine import SimulatedMachine, machine_charges

# What is paid for longer than this after the end is wasted.
GRACE_S = 60.0

Spans = list[tuple[float, float]]


class Cause(StrEnum):
    """What a dollar was paid for."""

    SERVING = "serving"
    BOOTS = "boots"
    # The disk of what was taken back or stopped, while somebody still wants it.
    STOPPED_DISKS = "stopped disks"
    FAILED_BOOTS = "failed boots"
    UNBOUND = "unbound"
    AFTER_END = "after the end"
    OVERLAP = "overlap"


WASTE = (Cause.UNBOUND, Cause.AFTER_END, Cause.OVERLAP)


@dataclass(frozen=True)
class Want:
    """One rental that was accepted: until when its machine and its disk were wanted, and what was made."""

    rental: Rental
    end_s: float
    disk_end_s: float
    machines: Sequence[SimulatedMachine]


@dataclass
class Played:
    """A month that a strategy has played."""

    name: str
    world: MonthWorld
    end_s: float
    wants: list[Want]
    # Machines that nobody knows of.
    unbound: list[SimulatedMachine] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


@dataclass
class Figures:
    """All sums of one month."""

    name: str
    usd: dict[Cause, Fraction]
    # What was paid after the end, by whose it was.
    after_end_usd: dict[Habit, Fraction] = field(default_factory=lambda: dict.fromkeys(Habit, Fraction(0)))
    # Of that, what was paid while the cloud answered nobody: no service could have ended it then.
    outage_usd: Fraction = Fraction(0)
    wanted_s: float = 0.0
    served_s: float = 0.0
    # Of the rentals that ask for replacement.
    replaced_wanted_s: float = 0.0
    replaced_served_s: float = 0.0
    # After each loss, where replacement was asked for: whose it was, and when nothing was usable.
    gaps: list[tuple[Rental, float, float]] = field(default_factory=list)
    # Machines that the cloud took back or had announced to, while they were wanted.
    reclaims: int = 0
    started: int = 0
    done: int = 0
    machines: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    served: list[Served] = field(default_factory=list)
    missed: list[tuple[Rental, Spans]] = field(default_factory=list)

    @property
    def gaps_s(self) -> list[float]:
        return [until_s - at_s for _, at_s, until_s in self.gaps]

    @property
    def paid_usd(self) -> Fraction:
        return sum(self.usd.values(), Fraction(0))

    @property
    def waste_usd(self) -> Fraction:
        return sum((self.usd[it] for it in WASTE), Fraction(0))

    @property
    def usd_per_served_hour(self) -> float:
        return float(self.paid_usd) / (self.served_s / 3600) if self.served_s else float("inf")


def measure(played: Played) -> Figures:
    """Sum up a month."""
    world = played.world
    world.tick()
    figures = Figures(played.name, {it: Fraction(0) for it in Cause}, refused=played.refused)
    figures.machines = len(world.machines)
    for machine in played.unbound:
        for charge in machine_charges(machine, world.now()):
            figures.usd[Cause.UNBOUND] += charge.usd
    for want in played.wants:
        _measure_want(want, played, figures)
    return figures


def usable_spans(machine: SimulatedMachine, world: MonthWorld) -> Spans:
    """Return when a machine ran, in seconds from the beginning."""
    spans: Spans = []
    turns = [it for it in machine.turns if it.at <= world.now()]
    for n, turn in enumerate(turns):
        if turn.status == "running":
            until = turns[n + 1].at if n + 1 < len(turns) else world.now()
            spans.append((world.elapsed(turn.at), world.elapsed(until)))
    return spans


def lost_s(machine: SimulatedMachine, world: MonthWorld) -> float | None:
    """Return when the cloud took a machine back, if it did."""
    reclaim = machine.reclaim
    if reclaim is None or reclaim.end_at > world.now():
        return None
    evicted = any(it.status == "exited" and it.at == reclaim.end_at for it in machine.turns)
    return world.elapsed(reclaim.end_at) if evicted else None


def union(spans: Spans) -> Spans:
    """Return spans that do not overlap, in order."""
    found: Spans = []
    for begin_s, end_s in sorted(spans):
        if found and begin_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((begin_s, end_s))
    return found


def _measure_want(want: Want, played: Played, figures: Figures) -> None:
    world = played.world
    usable = {it.id: usable_spans(it, world) for it in want.machines}
    begins = {key: spans[0][0] for key, spans in usable.items() if spans}
    for machine in want.machines:
        later = [
            begins[it.id] for it in want.machines if it.created_at > machine.created_at and it.id in begins
        ]
        for cause, usd in _causes(machine, want, world, begins.get(machine.id), min(later, default=None)):
            figures.usd[cause] += usd
            if cause is Cause.AFTER_END:
                figures.after_end_usd[want.rental.habit] += usd
        figures.outage_usd += _in_outages(machine, want, world)
    if not begins:
        return
    begin_s, end_s = min(begins.values()), min(want.end_s, played.end_s)
    figures.started += 1
    figures.done += want.end_s <= played.end_s
    inside = [(max(begin_s, a), min(end_s, b)) for spans in usable.values() for a, b in spans]
    spans = union([(a, b) for a, b in inside if a < b])
    wanted_s, served_s = max(0.0, end_s - begin_s), sum(b - a for a, b in spans)
    figures.wanted_s += wanted_s
    figures.served_s += served_s
    stopped_s = max(0.0, min(want.disk_end_s, played.end_s) - end_s)
    figures.served.append(Served(want.rental, spans, stopped_s))
    figures.missed.append((want.rental, _without(spans, begin_s, end_s)))
    if want.rental.replaces:
        figures.replaced_wanted_s += wanted_s
        figures.replaced_served_s += served_s
    for machine in want.machines:
        at_s = _taken_back_s(machine, usable[machine.id], world)
        if at_s is None or at_s >= end_s:
            continue
        figures.reclaims += 1
        if want.rental.replaces:
            figures.gaps.append((want.rental, at_s, at_s + _gap(at_s, spans, end_s)))


def _taken_back_s(machine: SimulatedMachine, usable: Spans, world: MonthWorld) -> float | None:
    """Return when a machine stopped serving that the cloud takes back: by then, or given back before."""
    if machine.reclaim is None or not usable:
        return None
    end_s = usable[-1][1]
    return end_s if world.elapsed(machine.reclaim.notice_at) <= end_s else None


def _gap(at_s: float, spans: Spans, end_s: float) -> float:
    """Return for how long nothing was usable after a loss, as long as it was wanted."""
    following = [max(begin_s, at_s) for begin_s, until_s in spans if until_s > at_s]
    return min([*following, end_s]) - at_s


def _without(spans: Spans, begin_s: float, end_s: float) -> Spans:
    """Return the parts of a span that none of these cover."""
    found, at_s = [], begin_s
    for a, b in spans:
        if a > at_s:
            found.append((at_s, a))
        at_s = max(at_s, b)
    return [*found, (at_s, end_s)] if at_s < end_s else found


def _causes(
    machine: SimulatedMachine, want: Want, world: MonthWorld, usable_at_s: float | None, heir_s: float | None
) -> Iterator[tuple[Cause, Fraction]]:
    """Yield what each part of a machine's charges was paid for."""
    for charge in machine_charges(machine, world.now()):
        end_s = (want.end_s if charge.kind == GPU else want.disk_end_s) + GRACE_S
        limits = [
            (0.0, min(end_s, heir_s or end_s), None),
            (min(end_s, heir_s or end_s), end_s, Cause.OVERLAP),
        ]
        for begin_s, until_s, cause in (*limits, (end_s, float("inf"), Cause.AFTER_END)):
            part = _within(charge, begin_s, until_s, world)
            if part is None:
                continue
            if cause is not None:
                yield cause, part.usd
            elif usable_at_s is None:
                yield Cause.FAILED_BOOTS, part.usd
            else:
                yield from _of_use(machine, part, usable_at_s, world)


def _in_outages(machine: SimulatedMachine, want: Want, world: MonthWorld) -> Fraction:
    """Return what was paid after the end, and its grace, while the cloud answered nobody."""
    total = Fraction(0)
    for charge in machine_charges(machine, world.now()):
        end_s = (want.end_s if charge.kind == GPU else want.disk_end_s) + GRACE_S
        for begin_s, until_s in world.outages:
            part = _within(charge, max(begin_s, end_s), until_s, world)
            total += Fraction(0) if part is None else part.usd
    return total


def _of_use(
    machine: SimulatedMachine, charge: Charge, usable_at_s: float, world: MonthWorld
) -> Iterator[tuple[Cause, Fraction]]:
    """Split what was wanted into the boot, the use, and the disk of what does not run any more."""
    spans = usable_spans(machine, world)
    for begin_s, until_s, cause in (
        (0.0, usable_at_s, Cause.BOOTS),
        (usable_at_s, spans[-1][1], Cause.SERVING),
        (spans[-1][1], float("inf"), Cause.STOPPED_DISKS if charge.kind != GPU else Cause.SERVING),
    ):
        if (part := _within(charge, begin_s, until_s, world)) is not None:
            yield cause, part.usd


def _within(charge: Charge, begin_s: float, until_s: float, world: MonthWorld) -> Charge | None:
    if until_s <= begin_s:
        return None
    return charge.within(Span(world.origin_s + begin_s, world.origin_s + until_s))
