"""A charge: one owner at one rate for one span of time, exactly.

This is the truth that a ledger is measured against, so nothing here rounds, and nothing of the service is
used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from gpuherd.simulator.money.tariff import HOUR_S

GPU, DISK, VOLUME = "gpu", "disk", "volume"


class Dated(NamedTuple):
    """From this moment on (Unix seconds) this value holds: a price, or a size."""

    at: float
    value: int


class Span(NamedTuple):
    """From one moment to another, in the world's Unix seconds."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Charge:
    """One owner (a machine or a volume) at one rate for one span."""

    owner_id: str
    kind: str
    span: Span
    # Cards of a machine, paid gigabytes of a disk.
    quantity: int
    usd_per_hour: Fraction

    @property
    def usd(self) -> Fraction:
        return self.usd_per_hour * (Fraction(self.span.end) - Fraction(self.span.begin)) / HOUR_S

    def within(self, window: Span) -> Charge | None:
        """Return the part of it that lies in `window`, if there is one."""
        begin, end = max(self.span.begin, window.begin), min(self.span.end, window.end)
        if end <= begin:
            return None
        return Charge(self.owner_id, self.kind, Span(begin, end), self.quantity, self.usd_per_hour)


def cut(span: Span, changes: Sequence[Dated]) -> Iterator[tuple[Span, int]]:
    """Yield the parts of `span` with the value that held in each; the first change may lie before it."""
    for number, change in enumerate(changes):
        until = changes[number + 1].at if number + 1 < len(changes) else span.end
        begin, end = max(span.begin, change.at), min(span.end, until)
        if begin < end:
            yield Span(begin, end), change.value


def total_usd(all_charges: Iterable[Charge]) -> Fraction:
    return sum((charge.usd for charge in all_charges), Fraction(0))


def millionths(usd: Fraction) -> Decimal:
    """Return an amount that people can read, to the millionth of a dollar."""
    return (Decimal(usd.numerator) / Decimal(usd.denominator)).quantize(Decimal("0.000001"))
