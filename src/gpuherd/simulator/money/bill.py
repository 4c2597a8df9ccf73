"""The provider's bill: hourly rows that appear a little late, and the balance that they are paid from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import groupby

from gpuherd.simulator.money.charge import DISK, GPU, VOLUME, Charge, Span, total_usd
from gpuherd.simulator.money.tariff import DAY_S, HOUR_S

LATE_S = 300.0
"""How long after the end of an hour its rows can be read."""

CATEGORIES = {GPU: "gpu", DISK: "cloud_storage", VOLUME: "cloud_storage"}
CYCLES = {"Hour": HOUR_S, "Day": DAY_S}


@dataclass(frozen=True, slots=True)
class BillRow:
    """What one owner owes for one kind of thing at one price in one hour or day."""

    owner_id: str
    kind: str
    span: Span
    # Card-seconds, or gigabyte-seconds.
    quantity: Fraction
    usd_per_unit_hour: Fraction
    usd: Fraction

    @property
    def category(self) -> str:
        return CATEGORIES[self.kind]


def bill_rows(charges: Iterable[Charge], now: float, window: Span, cycle_s: int = HOUR_S) -> list[BillRow]:
    """Return the rows of whole cycles that lie in `window`, and that the cloud has written by `now`."""
    settled = (now - LATE_S) // HOUR_S * HOUR_S
    window = Span(window.begin // cycle_s * cycle_s, min(window.end, settled))
    pieces = sorted(
        (piece for charge in charges for piece in _by_cycle(charge, window, cycle_s)),
        key=lambda it: (it[0], *_price_of(it[1])),
    )
    rows = []
    for (cycle, owner_id, kind, price), group in groupby(pieces, key=lambda it: (it[0], *_price_of(it[1]))):
        parts = [charge for _, charge in group]
        seconds = sum((Fraction(it.span.end) - Fraction(it.span.begin)) * it.quantity for it in parts)
        span = Span(cycle, cycle + cycle_s)
        rows.append(BillRow(owner_id, kind, span, Fraction(seconds), price, total_usd(parts)))
    return rows


def tenthousandths(usd: Fraction) -> int:
    """Return an amount in the unit of the billing API, whose whole numbers lose fractions."""
    return int(usd * 10_000)


def exact(usd: Fraction) -> str:
    """Return an amount as the API's decimal strings have it."""
    return format(Decimal(usd.numerator) / Decimal(usd.denominator), ".12f").rstrip("0").rstrip(".") or "0"


def _price_of(charge: Charge) -> tuple[str, str, Fraction]:
    return charge.owner_id, charge.kind, charge.usd_per_hour / charge.quantity


def _by_cycle(charge: Charge, window: Span, cycle_s: int) -> Iterator[tuple[float, Charge]]:
    inside = charge.within(window)
    if inside is None:
        return
    cycle = inside.span.begin // cycle_s * cycle_s
    while cycle < inside.span.end:
        piece = inside.within(Span(cycle, cycle + cycle_s))
        if piece is not None:
            yield cycle, piece
        cycle += cycle_s
