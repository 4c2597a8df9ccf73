"""Queries of lists: pages, filters, periods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import (
    UTC,
    date,
    datetime,
    timedelta,
)
from enum import StrEnum
from typing import (
    Any,
    Generic,
    NamedTuple,
    TypeVar,
)

from starlette.requests import Request

from gpuherd.contract.body_models import DAY_WORDS, YEAR_MAX, YEAR_MIN, read_day
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.instance import ID_PREFIX, Status
from gpuherd.domain.job import JOB_ID_PREFIX, JobStatus
from gpuherd.domain.money.period import Period, day_start
from gpuherd.domain.webhooks.webhook_delivery import DELIVERY_ID_PREFIX
from gpuherd.ports.clock_port import id_pattern
from gpuherd.ports.costs_port import GroupBy
from gpuherd.ports.instance_port import InstanceQuery
from gpuherd.ports.job_port import JobQuery
from gpuherd.ports.webhook_port import DeliveryFilter, DeliveryQuery

Json = dict[str, Any]
E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
LIMIT_MAX = 100
LIMIT_DEFAULT = 50
TEXT_MAX = 200


# As far as a program in JavaScript can count.
POSITION_MAX = 2**53


TEXT_SCHEMA: Json = {"type": "string", "minLength": 1, "maxLength": TEXT_MAX}
POSITION_SCHEMA: Json = {"type": "integer", "minimum": 0, "maximum": POSITION_MAX}


# No sign, no exponent, no digits of other scripts: what a person writes for a number of seconds.
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")


@dataclass(frozen=True)
class QueryParameter(Generic[T]):
    """One parameter. `read` raises `ValueError` in words that go on after its name."""

    name: str
    schema: Json
    read: Callable[[str], T]
    default: T
    code: str = "INVALID_PARAMETER"


def text(name: str) -> QueryParameter[str | None]:
    """Return a parameter that is any short text."""

    def read(value: str) -> str:
        if not 0 < len(value) <= TEXT_MAX:
            raise ValueError(f"must have 1 to {TEXT_MAX} characters")
        return value

    return QueryParameter(name, TEXT_SCHEMA, read, None)


def choice(name: str, choices: type[E]) -> QueryParameter[E | None]:
    """Return a parameter that is one of some words."""

    def read(value: str) -> E:
        try:
            return choices(value)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(choices)}") from None

    return QueryParameter(name, {"type": "string", "enum": [it.value for it in choices]}, read, None)


def limit() -> QueryParameter[int]:
    """Return the parameter that says how many entries a page has."""
    words = f"must be a number from 1 to {LIMIT_MAX}"
    schema = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}
    return QueryParameter("limit", schema, lambda value: _whole(value, 1, LIMIT_MAX, words), LIMIT_DEFAULT)


def number(name: str, low: int, high: int, default: int) -> QueryParameter[float]:
    """Return a parameter that is a number, perhaps with a fraction."""

    def read(value: str) -> float:
        if not _NUMBER.fullmatch(value) or not low <= float(value) <= high:
            raise ValueError(f"must be a number from {low} to {high}")
        return float(value)

    return QueryParameter(
        name, {"type": "number", "minimum": low, "maximum": high, "default": default}, read, float(default)
    )


def position(name: str) -> QueryParameter[int | None]:
    """Return a parameter that is the number of an event or entry."""
    words = f"must be a whole number from 0 to {POSITION_MAX}"
    return QueryParameter(name, POSITION_SCHEMA, lambda value: _whole(value, 0, POSITION_MAX, words), None)


def flag(name: str, *, default: bool) -> QueryParameter[bool]:
    """Return a parameter that is true or false."""

    def read(value: str) -> bool:
        if value not in ("true", "false"):
            raise ValueError("must be true or false")
        return value == "true"

    return QueryParameter(name, {"type": "boolean", "default": default}, read, default)


def pair(name: str) -> QueryParameter[tuple[str, str] | None]:
    """Return a parameter that is `key=value`."""

    def read(value: str) -> tuple[str, str]:
        key, separator, word = value.partition("=")
        if not separator or not key:
            raise ValueError("must look like key=value")
        return key, word

    schema = {"type": "string", "pattern": "^[^=]+=", "description": "key=value"}
    return QueryParameter(name, schema, read, None)


_NO_CURSOR = "is not the nextCursor of a page of this list; without a cursor you get the first page"
INVALID_CURSOR = "INVALID_CURSOR"


def id_cursor(prefix: str) -> QueryParameter[str | None]:
    """Return the cursor of a list whose pages end with an id."""
    pattern = id_pattern(prefix)

    def read(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(_NO_CURSOR)
        return value

    return QueryParameter("cursor", TEXT_SCHEMA, read, None, INVALID_CURSOR)


def position_cursor() -> QueryParameter[int | None]:
    """Return the cursor of a list whose pages end with a number."""
    return QueryParameter(
        "cursor",
        POSITION_SCHEMA,
        lambda value: _whole(value, 0, POSITION_MAX, _NO_CURSOR),
        None,
        INVALID_CURSOR,
    )


def _whole(value: str, low: int, high: int, words: str) -> int:
    digits = value.isascii() and value.isdigit() and len(value) <= len(str(high))
    if not digits or not low <= int(value) <= high:
        raise ValueError(words)
    return int(value)


def described(parameters: Iterable[QueryParameter[Any]]) -> Json:
    """Return the `openapi_extra` of a route that reads these."""
    return {
        "parameters": [
            {"name": it.name, "in": "query", "required": False, "schema": dict(it.schema)}
            for it in parameters
        ]
    }


class Query:
    """Collects the problems of all parameters, so that they are reported at once."""

    def __init__(self, request: Request):
        self._params = request.query_params
        self._problems: list[FieldProblem] = []

    def __call__(self, parameter: QueryParameter[T]) -> T:
        """Return what the request says of a parameter; its default if that is nothing, or nothing good."""
        value = self._params.get(parameter.name)
        if value is None:
            return parameter.default
        try:
            return parameter.read(value)
        except ValueError as error:
            self._add_problem(parameter.name, parameter.code, str(error))
            return parameter.default

    def only(self, parameters: Iterable[QueryParameter[Any]]) -> None:
        """Refuse every parameter but these: a misspelt one must not pass for its default."""
        names = [it.name for it in parameters]
        for name in sorted(set(self._params) - set(names)):
            words = f"is not known here; there are: {', '.join(names)}"
            self._add_problem(name[:50], "INVALID_PARAMETER", words)

    def refuse(self, parameter: QueryParameter[Any], words: str) -> None:
        """Note a problem that only shows beside other parameters; `words` go on after the name."""
        self._add_problem(parameter.name, parameter.code, words)

    def done(self) -> None:
        """Raise if anything was wrong."""
        if self._problems:
            raise InvalidRequest(self._problems)

    def _add_problem(self, name: str, code: str, message: str) -> None:
        self._problems.append(FieldProblem(name, code, f"{name} {message}"))


class Order(StrEnum):
    ASC = "asc"
    DESC = "desc"


LIMIT, NAME, LABEL, TYPE = limit(), text("name"), pair("label"), text("type")
INSTANCE_ID, ENDPOINT_ID = text("instanceId"), text("endpointId")


INSTANCE_STATUS, JOB_STATUS, STATE = (
    choice("status", Status),
    choice("status", JobStatus),
    choice("state", DeliveryFilter),
)


INSTANCE_CURSOR, JOB_CURSOR = id_cursor(ID_PREFIX), id_cursor(JOB_ID_PREFIX)
DELIVERY_CURSOR, POSITION_CURSOR = id_cursor(DELIVERY_ID_PREFIX), position_cursor()
ORDER = choice("order", Order)
INSTANCE_LIST = (INSTANCE_STATUS, NAME, LABEL, LIMIT, INSTANCE_CURSOR)
JOB_LIST = (TYPE, JOB_STATUS, INSTANCE_ID, LIMIT, JOB_CURSOR)
DELIVERY_LIST = (STATE, INSTANCE_ID, ENDPOINT_ID, TYPE, LIMIT, DELIVERY_CURSOR)
AUDIT_LIST = (LIMIT, POSITION_CURSOR, ORDER)


def instance_query(query: Query, owner: str | None) -> InstanceQuery:
    """Return which instances a request asks for, of those that `owner` may see."""
    status = query(INSTANCE_STATUS)
    return InstanceQuery(
        statuses=() if status is None else (status,),
        name=query(NAME),
        label=query(LABEL),
        owner=owner,
        limit=query(LIMIT),
        cursor=query(INSTANCE_CURSOR),
    )


def job_query(query: Query, owner: str | None) -> JobQuery:
    """Return which jobs a request asks for, of those that `owner` may see."""
    return JobQuery(
        kind=query(TYPE),
        status=query(JOB_STATUS),
        instance_id=query(INSTANCE_ID),
        owner=owner,
        limit=query(LIMIT),
        cursor=query(JOB_CURSOR),
    )


def delivery_query(query: Query, owner: str | None) -> DeliveryQuery:
    """Return which deliveries a request asks for, of those that `owner` may see."""
    return DeliveryQuery(
        state=query(STATE),
        instance_id=query(INSTANCE_ID),
        endpoint_id=query(ENDPOINT_ID),
        type=query(TYPE),
        owner=owner,
        limit=query(LIMIT),
        cursor=query(DELIVERY_CURSOR),
    )


DAYS_DEFAULT = 30
LABEL_MAX = 200
_LABEL_PREFIX = f"{GroupBy.LABEL.value}:"
_WORDS = [it.value for it in GroupBy if it is not GroupBy.LABEL]
_MOMENT_WORDS = "must be a day such as 2026-11-01, or a moment such as 2026-11-01T12:00:00Z"


class Grouping(NamedTuple):
    """By what a report is divided; `label` is the key of the label, if it is one."""

    by: GroupBy
    label: str = ""


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
