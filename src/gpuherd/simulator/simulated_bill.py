"""What the simulated cloud charges, exactly: rates, charges, bill rows, and how busy machines are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple

from gpuherd.simulator.simulated_catalogue import FREE_DISK_GB, PRICE_UNITS_PER_USD

HOUR_S = 3600
DAY_S = 86_400
DISK_USD_PER_GB_DAY = Fraction(5, 1000)
VOLUME_USD_PER_GB_DAY = Fraction(2, 1000)


def gpu_usd_per_hour(price_units: int, gpu_num: int) -> Fraction:
    """Return the hourly cost of a machine. One without a GPU is priced as a whole."""
    return Fraction(price_units * max(1, gpu_num), PRICE_UNITS_PER_USD)


def paid_disk_gb(disk_gb: int) -> int:
    """Return the billed part of a root disk; the first part is free."""
    return max(0, disk_gb - FREE_DISK_GB)


def disk_usd_per_hour(disk_gb: int) -> Fraction:
    """Return the hourly cost of a root disk."""
    return paid_disk_gb(disk_gb) * DISK_USD_PER_GB_DAY / 24


def volume_usd_per_hour(size_gb: int) -> Fraction:
    return size_gb * VOLUME_USD_PER_GB_DAY / 24


GPU, DISK, VOLUME = "gpu", "disk", "volume"


class Dated(NamedTuple):
    """A value (a price or a size) that is valid from this moment on (Unix seconds)."""

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
    """Yield the parts of `span` with the value in each. The first change may lie before the span."""
    for number, change in enumerate(changes):
        until = changes[number + 1].at if number + 1 < len(changes) else span.end
        begin, end = max(span.begin, change.at), min(span.end, until)
        if begin < end:
            yield Span(begin, end), change.value


def total_usd(all_charges: Iterable[Charge]) -> Fraction:
    return sum((charge.usd for charge in all_charges), Fraction(0))


def millionths(usd: Fraction) -> Decimal:
    """Return an amount for people, to the millionth of a dollar."""
    return (Decimal(usd.numerator) / Decimal(usd.denominator)).quantize(Decimal("0.000001"))


LATE_S = 300.0


"""How long after the end of an hour its rows can be read."""


CATEGORIES = {GPU: "gpu", DISK: "cloud_storage", VOLUME: "cloud_storage"}
CYCLES = {"Hour": HOUR_S, "Day": DAY_S}


@dataclass(frozen=True, slots=True)
class BillRow:
    """The charge for one owner, kind and price in one hour or day."""

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
    """Return the rows of whole cycles in `window` that the cloud has written by `now`."""
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


class Use(NamedTuple):
    """From this moment on the machine is this busy, in percent."""

    at: float
    gpu: float
    cpu: float


class UseSample(NamedTuple):
    at: int
    gpu: float
    cpu: float


BUSY = Use(0.0, 80.0, 40.0)


class UseTraces:
    """The configured use of machines. All others are busy."""

    def __init__(self) -> None:
        self.traces: dict[str, list[Use]] = {}

    def set(self, machine_id: str, use: Use) -> None:
        """Set how busy a machine is from a moment on. Later plans are dropped."""
        earlier = [it for it in self.traces.get(machine_id, []) if it.at < use.at]
        self.traces[machine_id] = [*earlier, use]

    def at(self, machine_id: str, moment: float) -> Use:
        trace = self.traces.get(machine_id, [])
        place = bisect_right(trace, moment, key=lambda use: use.at)
        return trace[place - 1] if place else BUSY

    def samples(
        self, machine_id: str, window: Span, interval_s: int, is_running: Callable[[float], bool]
    ) -> list[UseSample]:
        """Return the samples while the machine ran. A stopped machine has none."""
        first = -(-int(window.begin) // interval_s) * interval_s
        return [
            UseSample(moment, *self.at(machine_id, moment)[1:])
            for moment in range(first, int(window.end) + 1, interval_s)
            if is_running(moment)
        ]
