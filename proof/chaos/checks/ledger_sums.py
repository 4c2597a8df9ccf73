"""The whole ledger beside the whole bill: both sums, and which machines are off by more than is stated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from gpuherd.domain.money.usage_span import NANO, CostSpan, doubt_nano
from gpuherd.simulator.simulated_machine import machine_charges
from gpuherd.simulator.world import World

# A machine, and what of it is paid for.
MachineCost = tuple[str, str]


@dataclass(frozen=True)
class LedgerSums:
    """In dollars; `beyond` says in words what is off by more than the ledger states."""

    ledger_usd: Fraction
    billed_usd: Fraction
    stated_usd: Fraction
    beyond: dict[MachineCost, str]

    @property
    def relative_error(self) -> Fraction:
        return abs(self.ledger_usd - self.billed_usd) / self.billed_usd


def ledger_sums(spans: Iterable[CostSpan], world: World, now: datetime, seen_at: datetime) -> LedgerSums:
    """Sum up; nobody can have told us what has happened since the last list, begun at `seen_at`."""
    ledger: dict[MachineCost, int] = defaultdict(int)
    stated: dict[MachineCost, int] = defaultdict(int)
    for span in spans:
        key = span.cloud_id, span.kind.value
        ledger[key] += span.cost(now)
        stated[key] += span.uncertainty()
        if span.ended is None:
            stated[key] += doubt_nano(span.rate.nano_usd, now - seen_at)
    billed: dict[MachineCost, Fraction] = defaultdict(Fraction)
    for machine in world.machines.values():
        for charge in machine_charges(machine, world.now()):
            billed[charge.owner_id, charge.kind] += charge.usd * NANO
    beyond = {
        key: f"{key[1]} of {key[0]}: the ledger says {ledger[key] / NANO:.9f} "
        f"± {stated[key] / NANO:.9f}, the bill {float(billed[key]) / NANO:.9f}"
        for key in sorted({*ledger, *billed})
        if abs(ledger[key] - billed[key]) > stated[key]
    }
    return LedgerSums(
        ledger_usd=Fraction(sum(ledger.values()), NANO),
        billed_usd=sum(billed.values(), Fraction(0)) / NANO,
        stated_usd=Fraction(sum(stated.values()), NANO),
        beyond=beyond,
    )
