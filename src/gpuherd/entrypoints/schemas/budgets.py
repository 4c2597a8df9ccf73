"""The bodies of `POST /api/budgets` and `PATCH /api/budgets/{id}`."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr, model_validator

from gpuherd.contract.body_models import Code, NotNull, RequestModel, ShortText, Words, plain_number
from gpuherd.domain.money.budget import (
    WARN_PERCENT,
    AtLimit,
    BudgetScope,
    ScopeKind,
)
from gpuherd.domain.money.period import BudgetPeriod
from gpuherd.domain.money.usage_span import nano_usd
from gpuherd.entrypoints.schemas.keys import USD_MAX
from gpuherd.usecases.money.manage_budgets import BudgetRequest

_SCOPE = 'must be {"all": true}, {"key": "..."} or {"label": {"key": "value"}}'


class ScopeBody(RequestModel):
    """Whose costs count: one of the three."""

    unknown_field: ClassVar[str] = "{path} is not known; there are: {known}"

    all: Annotated[Literal[True] | None, Words(_SCOPE)] = None
    key: Annotated[Annotated[StrictStr, Field(min_length=1, max_length=200)] | None, Words(_SCOPE)] = None
    label: Annotated[
        Annotated[dict[StrictStr, StrictStr], Field(min_length=1, max_length=1)] | None, Words(_SCOPE)
    ] = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(it is not None for it in (self.all, self.key, self.label)) != 1:
            raise ValueError(_SCOPE)
        return self

    def to_domain(self) -> BudgetScope:
        """Return whose costs count."""
        if self.key is not None:
            return BudgetScope(ScopeKind.KEY, self.key)
        if self.label is not None:
            ((key, value),) = self.label.items()
            return BudgetScope(ScopeKind.LABEL, key, value)
        return BudgetScope()


_Name = Annotated[
    ShortText,
    Code("INVALID_NAME"),
    Words("must be a text of 1 to 200 characters"),
]
_Scope = Annotated[ScopeBody, Code("INVALID_SCOPE"), Words(_SCOPE)]
_Amount = Annotated[
    Annotated[Decimal, Field(ge=0, le=USD_MAX, allow_inf_nan=False), BeforeValidator(plain_number)],
    Code("INVALID_AMOUNT"),
    Words(f"must be an amount in USD from 0 to {USD_MAX}, like 200 or 1.50"),
]
_Period = Annotated[BudgetPeriod, Code("INVALID_PERIOD"), Words(f"must be one of: {', '.join(BudgetPeriod)}")]
_WarnPercent = Annotated[
    Annotated[list[Annotated[StrictInt, Field(ge=1, le=100)]], Field(max_length=20)],
    Code("INVALID_WARN_PERCENT"),
    Words("must be a list of whole numbers from 1 to 100, at most 20"),
]
_AtLimit = Annotated[AtLimit, Code("INVALID_AT_LIMIT"), Words(f"must be one of: {', '.join(AtLimit)}")]
_Strict = Annotated[StrictBool, Code("INVALID_STRICT"), Words("must be true or false")]


class BudgetBody(RequestModel):
    """A budget."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    name: _Name
    scope: _Scope
    amount: _Amount
    period: _Period
    warn_percent: _WarnPercent = Field(default=list(WARN_PERCENT))
    at_limit: _AtLimit = AtLimit.BLOCK
    strict: _Strict = False

    def to_request(self) -> BudgetRequest:
        """Return what is asked for."""
        return BudgetRequest(
            name=self.name,
            scope=self.scope.to_domain(),
            amount=nano_usd(self.amount),
            period=self.period,
            warn_percent=_percents(self.warn_percent),
            at_limit=self.at_limit,
            strict=self.strict,
        )


class BudgetChangeBody(RequestModel):
    """What is to be different; what is left out stays."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    name: Annotated[_Name | None, NotNull()] = None
    scope: Annotated[_Scope | None, NotNull()] = None
    amount: Annotated[_Amount | None, NotNull()] = None
    period: Annotated[_Period | None, NotNull()] = None
    warn_percent: Annotated[_WarnPercent | None, NotNull()] = None
    at_limit: Annotated[_AtLimit | None, NotNull()] = None
    strict: Annotated[_Strict | None, NotNull()] = None

    def to_values(self) -> dict[str, Any]:
        """Return the fields of a budget that get another value."""
        values: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("name", "period", "at_limit", "strict")
            if getattr(self, name) is not None
        }
        if self.scope is not None:
            values["scope"] = self.scope.to_domain()
        if self.amount is not None:
            values["amount"] = nano_usd(self.amount)
        if self.warn_percent is not None:
            values["warn_percent"] = _percents(self.warn_percent)
        return values


def _percents(numbers: list[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))
