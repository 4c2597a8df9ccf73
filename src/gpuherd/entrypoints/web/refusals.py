"""A form that was refused: what is said beside which field, and with which status."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeVar

from gpuherd.domain.errors import CloudError, GpuherdError, InvalidRequest
from gpuherd.entrypoints.problems import problem_of
from gpuherd.entrypoints.web.views.wish_form import problems_by_field

UNDER_WAY = "IDEMPOTENCY_KEY_IN_USE"
# How the codes end of what got no answer.
NOT_KNOWN = "OUTCOME_UNKNOWN"
T = TypeVar("T")


@dataclass(frozen=True)
class FormRefusal:
    """Which form was refused, and why; without any, nothing was."""

    form: str = ""
    status: int = 200
    problems: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    # It may have been done all the same.
    is_open: bool = False

    @classmethod
    def of(cls, error: GpuherdError, form: str) -> Self:
        """Return what a page says of an error."""
        status = problem_of(error).status
        if isinstance(error, InvalidRequest):
            found = problems_by_field(error.problems, {})
            return cls(form, status, found, found.get("form", ""))
        if error.code == UNDER_WAY:
            return cls(form, status, message="this was sent already and is under way; open the page anew")
        return cls(form, status, message=error.message, is_open=error.code.endswith(NOT_KNOWN))

    def problems_of(self, form: str) -> Mapping[str, str]:
        """Return what is wrong with the fields of one of several forms."""
        return self.problems if form == self.form else {}


NOT_REFUSED = FormRefusal()


async def unless_unreachable(question: Awaitable[T], otherwise: T) -> tuple[T, str]:
    """Return what the cloud answers; or something else, and why it cannot be asked."""
    try:
        return await question, ""
    except CloudError as error:
        return otherwise, error.message
