"""The body of `POST /api/costs/reconcile`."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr, ValidationInfo

from gpuherd.contract.body_models import Code, RequestModel, Words
from gpuherd.entrypoints.list_queries import DAY_WORDS, read_day


def _not_ahead(value: str, info: ValidationInfo) -> str:
    assert isinstance(info.context, datetime)
    if read_day(value) > info.context.astimezone(UTC).date():
        raise ValueError(DAY_WORDS)
    return value


class ReconcileBody(RequestModel):
    """Which day to compare with the bill. Needs the present time as the context."""

    day: Annotated[
        StrictStr,
        Field(json_schema_extra={"format": "date"}),
        AfterValidator(_not_ahead),
        Code("INVALID_DAY"),
        Words(DAY_WORDS),
    ]

    def to_day(self) -> date:
        return read_day(self.day)
