"""Single values as Novita writes them: numbers in strings, "0" for never, and on a bad day anything."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

TEXT_CHARS = 2048
PRICE_UNITS_PER_USD = 100_000

_WHOLE = re.compile(r"-?\d{1,18}(?:\.0{1,6})?", re.ASCII)
_YEAR_10000_S = 253_402_300_800
# Control characters break terminals and logs; lone surrogates break every database.
_UNSAFE = frozenset({"Cc", "Cs"})


def safe_text(value: str, chars: int = TEXT_CHARS) -> str:
    """Return text that can be shown and stored, on one line."""
    if len(value) > chars:
        value = value[:chars]
    if value.isprintable():
        return value
    return "".join(" " if unicodedata.category(c) in _UNSAFE else c for c in value).strip()


def text(row: dict[str, Any], key: str) -> str:
    """Return a string field; a number becomes its digits, anything else nothing."""
    value = row.get(key)
    if isinstance(value, str):
        return safe_text(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def shared_text(row: dict[str, Any], key: str) -> str:
    """Return the same where many rows say one thing: kept once, however many machines there are."""
    return sys.intern(text(row, key))


def program_text(row: dict[str, Any], key: str) -> str:
    """Return text that a machine reads: whole, with its line breaks, minus what no process can be given."""
    value = row.get(key)
    if not isinstance(value, str):
        return ""
    return value.replace("\0", "").encode("utf-8", "ignore").decode("utf-8")


def whole(row: dict[str, Any], key: str) -> int | None:
    """Return a whole number that may be written as a number or as a string."""
    value = row.get(key)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 10**18 else None
    if isinstance(value, float):
        value = str(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    return None


def usd(row: dict[str, Any], key: str) -> Decimal | None:
    """Return a price in USD, or None where the thing is not sold that way."""
    units = whole(row, key)
    return Decimal(units) / PRICE_UNITS_PER_USD if units is not None and units > 0 else None


def moment(row: dict[str, Any], key: str) -> datetime | None:
    """Return a time given in Unix seconds; 0, -1 and nonsense mean never."""
    seconds = whole(row, key)
    if seconds is None or not 0 < seconds < _YEAR_10000_S:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def part(row: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object inside the row, empty where there is none."""
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def parts(row: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list inside the row and pass over everything else in it."""
    value = row.get(key)
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def texts(row: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return the strings of a list inside the row."""
    value = row.get(key)
    if not isinstance(value, list):
        return ()
    return tuple(safe_text(item) for item in value if isinstance(item, str))
