"""Texts, times, amounts and addresses, as the request bodies share them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, StrictStr, ValidationInfo
from pydantic_core import PydanticCustomError

from gpuherd.domain.egress_policy import BlockedTarget, EgressPolicy, check_url
from gpuherd.entrypoints.schemas.request_model import Code, Words

LABEL_MAX_CHARS = 100
# What "not blank" means, as far as a schema can say it.
NOT_BLANK: dict[str, JsonValue] = {"minLength": 1, "pattern": r"\S"}
_BLANK = "must be a text that is not blank"
_LABEL = f"must have at most {LABEL_MAX_CHARS} characters and no control characters"
# The Unicode categories Cc, Cs, Zl and Zp.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def has_control_characters(text: str) -> bool:
    """Tell whether a text would do something to a terminal, or cannot be shown on one line."""
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
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise PydanticCustomError("moment", "must be a time in ISO 8601")


def _usable_url(value: str, info: ValidationInfo) -> str:
    assert isinstance(info.context, EgressPolicy)
    try:
        check_url(value, info.context)
    except BlockedTarget as blocked:
        raise ValueError(f"cannot be used: {blocked}") from None
    return value


Text = Annotated[StrictStr, Field(json_schema_extra=NOT_BLANK), AfterValidator(_not_blank), Words(_BLANK)]
ShortText = Annotated[StrictStr, Field(max_length=200, json_schema_extra=NOT_BLANK), AfterValidator(readable)]
Label = Annotated[
    Text,
    Field(json_schema_extra={**NOT_BLANK, "maxLength": LABEL_MAX_CHARS}),
    AfterValidator(_label),
    Code("INVALID_LABEL"),
]
Moment = Annotated[datetime, BeforeValidator(_moment)]
# Needs the egress policy as the context.
WebhookUrl = Annotated[
    StrictStr, AfterValidator(_usable_url), Code("INVALID_WEBHOOK_URL"), Words("must be a string")
]
