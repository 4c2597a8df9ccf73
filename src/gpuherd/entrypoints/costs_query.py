"""How a report of costs is asked for: from when to when, and divided by what."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from gpuherd.domain.costs.period import Period, day_start
from gpuherd.entrypoints.query import Query, QueryParameter
from gpuherd.ports.costs import GroupBy

DAYS_DEFAULT = 30
YEAR_MIN, YEAR_MAX = 2000, 2100
LABEL_MAX = 200
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LABEL_PREFIX = f"{GroupBy.LABEL.value}:"
_WORDS = [it.value for it in GroupBy if it is not GroupBy.LABEL]
_MOMENT_WORDS = "must be a day such as 2026-11-01, or a moment such as 2026-11-01T12:00:00Z"
DAY_WORDS = "must be a day such as 2026-11-15, and not lie ahead"
_YEAR_WORDS = f"must not lie before the year {YEAR_MIN}"


class Grouping(NamedTuple):
    """By what a report is divided; `label` is the key of the label, if it is one."""

    by: GroupBy
    label: str = ""


def read_day(value: str) -> date:
    """Return a day, or raise `ValueError`."""
    if not _DAY.fullmatch(value):
        raise ValueError(DAY_WORDS)
    try:
        found = date.fromisoformat(value)
    except ValueError:
        raise ValueError(DAY_WORDS) from None
    if found.year < YEAR_MIN:
        raise ValueError(_YEAR_WORDS)
    if found.year > YEAR_MAX:
        raise ValueError(DAY_WORDS)
    return found


def _read_moment(value: str) -> datetime:
    try:
        found = datetime.fromisoformat(value)
        found = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(_MOMENT_WORDS) from None
    if not YEAR_MIN <= found.year < YEAR_MAX:
        raise ValueError(f"must lie between the years {YEAR_MIN} and {YEAR_MAX}")
    return found


def _read_grouping(value: str) -> Grouping:
    if value.startswith(_LABEL_PREFIX):
        key = value.removeprefix(_LABEL_PREFIX)
        if not 0 < len(key) <= LABEL_MAX:
            raise ValueError(f"must name a label of 1 to {LABEL_MAX} characters, like label:team")
        return Grouping(GroupBy.LABEL, key)
    if value not in _WORDS:
        raise ValueError(f"must be one of {', '.join(_WORDS)}, or label:KEY")
    return Grouping(GroupBy(value))


def _moment(name: str, code: str) -> QueryParameter[datetime | None]:
    schema = {"type": "string", "description": "a day (UTC) or a moment in ISO 8601"}
    return QueryParameter(name, schema, _read_moment, None, code)


FROM = _moment("from", "INVALID_FROM")
TO = _moment("to", "INVALID_TO")
GROUP_BY = QueryParameter(
    "groupBy",
    {
        "type": "string",
        "pattern": rf"^({'|'.join(_WORDS)}|label:[\s\S]{{1,{LABEL_MAX}}})$",
        "default": GroupBy.INSTANCE.value,
    },
    _read_grouping,
    Grouping(GroupBy.INSTANCE),
    "INVALID_GROUP_BY",
)
DAY: QueryParameter[date | None] = QueryParameter(
    "day", {"type": "string", "format": "date"}, read_day, None, "INVALID_DAY"
)
COST_QUERY = (FROM, TO, GROUP_BY)
BILL_QUERY = (DAY,)


def cost_query(query: Query, now: datetime) -> tuple[Period, Grouping]:
    """Return what a request for a report asks for; without a period, the last thirty days."""
    begin, end, grouping = query(FROM), query(TO), query(GROUP_BY)
    query.only(COST_QUERY)
    until = end or now
    since = begin or day_start(until) - timedelta(days=DAYS_DEFAULT)
    if until <= since:
        _refuse_period(query, has_end=end is not None)
    query.done()
    return Period(since, until), grouping


def _refuse_period(query: Query, *, has_end: bool) -> None:
    if has_end:
        query.refuse(TO, "must lie after from")
    else:
        query.refuse(FROM, "must not lie ahead unless to is given, and lies after it")


def bill_day(query: Query, now: datetime) -> date:
    """Return the day whose bill is asked for; without one, the day before."""
    day = query(DAY)
    query.only(BILL_QUERY)
    today = now.astimezone(UTC).date()
    if day is not None and day > today:
        query.refuse(DAY, DAY_WORDS)
    query.done()
    return day or today - timedelta(days=1)
