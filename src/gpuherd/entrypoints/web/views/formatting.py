"""Money, times and statuses as people read them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from gpuherd.contract.codec.price_text import price_text
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.entrypoints.durations import format_duration, relative_time

CENT, FINE = Decimal("0.01"), Decimal("0.0001")
FINE_BELOW = Decimal(10)
NOTHING = "–"

GOOD, MOVING, IDLE, GONE, BAD = "good", "moving", "idle", "gone", "bad"
_LOOKS = {
    Status.READY: GOOD,
    Status.EXITED: IDLE,
    Status.DELETED: GONE,
    Status.FAILED: BAD,
}


def money(amount: Decimal | None) -> str:
    """Return an amount with at least two decimals, four where it is small enough that they matter."""
    if amount is None:
        return NOTHING
    if abs(amount) >= FINE_BELOW:
        return f"${amount.quantize(CENT):,}"
    digits = f"{amount.quantize(FINE):f}".rstrip("0")
    whole, _, cents = digits.partition(".")
    return f"${whole}.{cents.ljust(2, '0')}"


def signed(amount: Decimal) -> str:
    """Return a difference, with its sign."""
    shown = money(abs(amount))
    sign = "" if shown == money(Decimal(0)) else "+" if amount > 0 else "−"
    return f"{sign}{shown}"


def hourly(amount: Decimal | None) -> str:
    """Return a price for an hour."""
    return NOTHING if amount is None else f"{price_text(amount)}/h"


def ago(moment: datetime, now: datetime) -> str:
    """Say when it was, or will be."""
    return relative_time(moment, now)


def elapsed(moment: datetime, now: datetime) -> str:
    """Say for how long it has been so."""
    return format_duration((now - moment).total_seconds())


def exact(seconds: float | None) -> str:
    """Say how long something took."""
    return NOTHING if seconds is None else format_duration(seconds)


def iso_time(moment: datetime) -> str:
    """Return a time for programs."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp(moment: datetime) -> str:
    """Return a time in full, for people."""
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def plain(word: object) -> str:
    """Return a word of ours as people write it."""
    return str(word).replace("_", " ")


def event_words(kind: str) -> str:
    """Return what an event is called: `instance.health_checking` is "health checking"."""
    return plain(kind.removeprefix("instance."))


def look_of(instance: Instance) -> str:
    """Return by which shape and colour an instance is shown."""
    if instance.status is Status.RUNNING:
        return GOOD if instance.usable else MOVING
    return _LOOKS.get(instance.status, MOVING)


def look_of_status(word: str) -> str:
    """Return the same for the name of a status in a history."""
    if word == Status.RUNNING:
        return GOOD
    return _LOOKS.get(Status(word), MOVING) if word in set(Status) else IDLE
