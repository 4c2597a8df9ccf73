"""What request bodies are made of: a strict model, a code for each field, texts and moments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    StrictStr,
    ValidationInfo,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

LABEL_MAX_CHARS = 100
USD_MAX = 1_000_000
ENV_VALUE_CHARS_MAX = 4095
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
YEAR_MIN, YEAR_MAX = 2000, 2100
DAY_WORDS = "must be a day such as 2026-11-15, and not lie ahead"
_YEAR_WORDS = f"must not lie before the year {YEAR_MIN}"
# What "not blank" means, as far as a schema can say it.
NOT_BLANK: dict[str, JsonValue] = {"minLength": 1, "pattern": r"\S"}
_BLANK = "must be a text that is not blank"
_LABEL = f"must have at most {LABEL_MAX_CHARS} characters and no control characters"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# The Unicode categories Cc, Cs, Zl and Zp.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True)
class Code:
    """Marks a field: the code of each problem with it, and with what is inside it."""

    code: str


@dataclass(frozen=True)
class Words:
    """Marks a field: what is said of a wrong value in place of pydantic's words.

    A validator that raises `ValueError` has better words, and is quoted.
    """

    words: str


class RequestModel(BaseModel):
    """Fields in camelCase, none but those that are declared; no problem ever repeats a value."""

    # Python code gives fields by name, JSON by alias only: see `validate_body`.
    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, validate_by_name=True, hide_input_in_errors=True
    )

    # The code of a problem with the whole, or with a field that has none of its own.
    problem_code: ClassVar[str] = "VALIDATION_ERROR"
    unknown_field: ClassVar[str] = "there is no field {path!r}"
    # Where unknown fields stand among the problems; see `_Problem.rank`.
    unknown_rank: ClassVar[int] = 1


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise PydanticCustomError("null", "must not be null")
    return value


class NotNull:
    """Marks a field that may be left out, but not be null: `Annotated[X | None, NotNull()] = None`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_refuse_null, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        schema = handler(core)
        found = [it for it in schema["anyOf"] if it != {"type": "null"}]
        return found[0] if len(found) == 1 else {**schema, "anyOf": found}


def has_control_characters(text: str) -> bool:
    """Return True if a text would do something to a terminal, or cannot be shown on one line."""
    return _CONTROL.search(text) is not None


def readable(value: str) -> str:
    """Return a text without blanks at its ends, or say why nobody could read it."""
    if not value.strip():
        raise ValueError("must not be blank")
    if has_control_characters(value):
        raise ValueError("must not contain control characters")
    return value.strip()


def plain_number(value: Any) -> Any:
    """Let amounts be numbers or texts; a float as it is written, not as it is stored."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a number of USD")  # noqa: TRY004  pydantic reports ValueError only
    return str(value)


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError(_BLANK)
    return value


def _label(value: str) -> str:
    if len(value) > LABEL_MAX_CHARS or has_control_characters(value):
        raise ValueError(_LABEL)
    return value.strip()


def _moment(value: Any) -> datetime:
    try:
        if isinstance(value, str | datetime):
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise PydanticCustomError("moment", "must be a time in ISO 8601")


Text = Annotated[StrictStr, Field(json_schema_extra=NOT_BLANK), AfterValidator(_not_blank), Words(_BLANK)]
ShortText = Annotated[StrictStr, Field(max_length=200, json_schema_extra=NOT_BLANK), AfterValidator(readable)]
Label = Annotated[
    Text,
    Field(json_schema_extra={**NOT_BLANK, "maxLength": LABEL_MAX_CHARS}),
    AfterValidator(_label),
    Code("INVALID_LABEL"),
]
Moment = Annotated[datetime, BeforeValidator(_moment)]

# Takes the kind of receiver and its address. Returns the address as it is kept, or raises `ValueError`.
CheckTarget = Callable[[str, str], str]


def checked_target(kind: str, address: str, info: ValidationInfo) -> str:
    """Return the address as it is kept. The context is the server's `CheckTarget`; without one all pass."""
    check: CheckTarget | None = info.context
    return address if check is None else check(kind, address)


def _webhook_url(value: str, info: ValidationInfo) -> str:
    return checked_target("webhook", value, info)


# Needs a `CheckTarget` as the context.
WebhookUrl = Annotated[
    StrictStr, AfterValidator(_webhook_url), Code("INVALID_WEBHOOK_URL"), Words("must be a string")
]


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


def env_value_problem(value: str) -> str | None:
    """Return what is wrong with the value of an environment variable or secret."""
    if len(value) > ENV_VALUE_CHARS_MAX:
        return f"must not be longer than {ENV_VALUE_CHARS_MAX} characters"
    if "\0" in value or _LONE_SURROGATE.search(value):
        return "must be a text without null characters"
    return None
