"""Values as JSON has them: times and money are strings, and some strings are one of a few words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, TypeVar


@dataclass(frozen=True)
class OneOf:
    """The words that a text may be. Readers take others too: a newer server may know more of them."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class TextFormat:
    """What a text is, in JSON Schema's word for it."""

    name: str


class WithOffset:
    """A time with its offset as +00:00 and microseconds only where there are some."""


class LeftOut:
    """Not on the wire at all while it is None."""


T = TypeVar("T")
LeftOutIfNone = Annotated[T | None, LeftOut()]
OffsetTime = Annotated[datetime, WithOffset()]
Url = Annotated[str, TextFormat("uri")]


def camel(name: str) -> str:
    """Return a name as the API writes it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def iso_time(moment: datetime) -> str:
    """Return a time as ISO 8601 in UTC with microseconds."""
    if moment.tzinfo is not UTC:
        return moment.isoformat("T", "microseconds").replace("+00:00", "Z")
    # An instance has a dozen of them, and to write down an offset that is known takes as long as the rest.
    return f"{moment.date().isoformat()}T{moment.time().isoformat('microseconds')}Z"


def decimal_text(amount: Decimal) -> str:
    """Return an amount as a plain decimal string."""
    return f"{amount.normalize():f}"


def iso(moment: datetime | None) -> str | None:
    """Return a time as the API writes it, if there is one."""
    return None if moment is None else iso_time(moment)


def usd(amount: Decimal | None) -> str | None:
    """Return an amount as the API writes it, if there is one."""
    return None if amount is None else decimal_text(amount)


def read_money(value: Any) -> Decimal:
    """Return an amount, or raise `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError  # noqa: TRY004
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise ValueError from None
    if not amount.is_finite():
        raise ValueError
    return amount


def read_time(value: Any) -> datetime:
    """Return a time in UTC, or raise `ValueError`; one without a zone is UTC."""
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
