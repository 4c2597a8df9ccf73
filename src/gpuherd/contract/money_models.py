"""Money, in USD: costs, leftovers, the balance, the provider's bill, and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    model_validator,
)

from gpuherd.contract.body_models import (
    DAY_WORDS,
    USD_MAX,
    Code,
    NotNull,
    RequestModel,
    ShortText,
    Words,
    plain_number,
    read_day,
)
from gpuherd.contract.wire_models import Day, LeftOutIfNone, Moment, Number, ReplyModel, Usd, one_of

LeftoverKind = Annotated[str, one_of("running", "stopped", "volume", "orphan", "waiting")]


class CostsByKind(ReplyModel):
    """What was paid for."""

    gpu: Usd
    disk: Usd = Field(description="root disks above the free part, running or stopped")
    volume: Usd = Field(description="network volumes, mounted or not")


class Waste(ReplyModel):
    """What was paid for nothing, by its cause; it is part of the total. Causes may overlap."""

    unbound: Usd = Field(description="machines that no instance has; of an admin's report only")
    failed_boots: Usd = Field(description="instances that ended before they were usable")
    overlap: Usd = Field(description="an old machine beside the one that has taken its place")
    after_end: Usd = Field(description="from the moment the end was wanted to the moment it came")


class CostGroup(ReplyModel, needs=("total",)):
    """What belongs to one value of what the report is divided by."""

    value: str | None = Field(description="null for what has none, and for machines that no instance has")
    total: Usd
    uncertainty: Usd = Field(description="the total may be wrong by this, either way")
    hourly_now: Usd
    instances: int
    name: str | None = Field(description="of the instance, where the groups are instances")


class Billed(ReplyModel):
    """What the provider has charged for the days of the period that were compared with its bill."""

    through: Day = Field(description="the last of them")
    total: Usd
    drift: Usd = Field(description="what was metered on these days less what was billed")


class Costs(ReplyModel, needs=("total",)):
    """What a period has cost so far."""

    since: Moment = Field(validation_alias="from", serialization_alias="from")
    until: Moment = Field(
        validation_alias="to", serialization_alias="to", description="excluded; it may lie ahead"
    )
    group_by: str
    total: Usd
    uncertainty: Usd = Field(description="the total may be wrong by this, either way")
    hourly_now: Usd = Field(description="what goes on costs this an hour")
    by_kind: CostsByKind
    waste: Waste
    groups: tuple[CostGroup, ...] = Field(description="the dearest first, days in their order")
    groups_left_out: int = Field(description="how many more there are, of the cheapest")
    billed: Billed | None = Field(
        description="null where nothing was compared, and for keys that are not admin"
    )


class Leftover(ReplyModel, needs=("kind", "id")):
    """One thing that still costs money, or will."""

    kind: LeftoverKind
    id: str = Field(description="of the instance, else of the machine or volume in the cloud")
    name: str
    instance_id: str | None
    cloud_instance_id: str | None
    product_name: str | None
    region: str | None
    hourly_price: Usd
    cost_so_far: Usd | None = Field(description="of all of it, as far as it was metered")
    since: Moment | None = Field(description="since when it costs what it costs now")
    suggestion: str = Field(description="what could be done about it")


class Leftovers(ReplyModel, needs=("items",)):
    """Everything that still costs money, the dearest first."""

    items: tuple[Leftover, ...]
    hourly_total: Usd


class Balance(ReplyModel, needs=("available",)):
    """What is left on the account, and how long it lasts."""

    available: Usd
    hourly_now: Usd
    runway_hours: Number | None = Field(description="null while nothing costs anything")
    read_at: Moment


class BillLine(ReplyModel, needs=("cloud_instance_id",)):
    """One machine or volume on one day, by our meter and by the provider's bill."""

    cloud_instance_id: str
    instance_id: str | None
    metered: Usd
    billed: Usd | None = Field(description="null as long as the day was not compared")
    drift: Usd | None = Field(description="metered less billed")
    uncertainty: Usd = Field(description="of what was metered")


class BillTotal(ReplyModel):
    """A whole day."""

    metered: Usd
    billed: Usd | None
    drift: Usd | None


class Bill(ReplyModel, needs=("day", "rows")):
    """A day by our meter and by the provider's bill."""

    day: Day
    rows: tuple[BillLine, ...]
    total: BillTotal
    fetched_at: Moment | None = Field(description="when the provider was last asked about this day")


class DriftNotice(ReplyModel):
    """Machines whose metered and billed cost differ too much. Check them."""

    day: Day
    metered: Usd
    billed: Usd
    drift: Usd
    rows: tuple[BillLine, ...] = Field(description="the worst, at most twenty")


class PriceNotice(ReplyModel):
    """A machine is billed at another price than the one it was rented at."""

    day: Day
    cloud_instance_id: str
    instance_id: str | None
    metered_price: Usd = Field(description="an hour, for the whole machine")
    billed_price: Usd


class BalanceNotice(ReplyModel):
    """What is left does not last much longer."""

    available: Usd
    hourly_now: Usd
    runway_hours: Number | None


Period = Annotated[str, one_of("day", "week", "month", "total")]
AtLimit = Annotated[str, one_of("warn", "block", "stop", "delete")]
BudgetState = Annotated[str, one_of("ok", "warned", "exhausted")]


class BudgetScope(ReplyModel):
    """Whose costs count: one of the three."""

    all: LeftOutIfNone[bool] = Field(default=None, description="everything on the account")
    key: LeftOutIfNone[str] = Field(default=None, description="what was rented with the key of this id")
    label: LeftOutIfNone[Mapping[str, str]] = Field(default=None, description="what has this label")


class Budget(ReplyModel, needs=("id", "name")):
    """A budget, and what is spent of it."""

    id: str
    name: str
    scope: BudgetScope
    amount: Usd = Field(description="for each period")
    period: Period = Field(description="by the calendar in UTC, weeks from Monday")
    warn_percent: tuple[int, ...]
    at_limit: AtLimit
    strict: bool = Field(description="everything in it needs a lease, and whole leases count")
    spent: Usd = Field(description="in this period, with what goes on up to now")
    hourly_now: Usd = Field(description="what goes on costs this an hour")
    resets_at: Moment | None = Field(description="null of a total")
    state: BudgetState
    created_at: Moment


class Budgets(ReplyModel, needs=("budgets",)):
    """All budgets, by name."""

    budgets: tuple[Budget, ...]
    total: int


class BudgetRemoved(ReplyModel):
    """A budget that is no more."""

    id: str
    removed: bool


class BudgetNotice(ReplyModel):
    """How far a budget is used up."""

    budget_id: str
    name: str
    scope: BudgetScope
    amount: Usd
    period: Period
    spent: Usd
    hourly_now: Usd
    percent: int | None = Field(description="that was reached; of a warning only")
    at_limit: AtLimit


# Bodies

SCOPE_RULE = 'must be {"all": true}, {"key": "..."} or {"label": {"key": "value"}}'


class ScopeBody(RequestModel):
    """Whose costs count: one of the three."""

    unknown_field: ClassVar[str] = "{path} is not known; there are: {known}"

    all: Annotated[Literal[True] | None, Words(SCOPE_RULE)] = None
    key: Annotated[Annotated[StrictStr, Field(min_length=1, max_length=200)] | None, Words(SCOPE_RULE)] = None
    label: Annotated[
        Annotated[dict[StrictStr, StrictStr], Field(min_length=1, max_length=1)] | None, Words(SCOPE_RULE)
    ] = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(it is not None for it in (self.all, self.key, self.label)) != 1:
            raise ValueError(SCOPE_RULE)
        return self


BudgetNameField = Annotated[
    ShortText,
    Code("INVALID_NAME"),
    Words("must be a text of 1 to 200 characters"),
]
BudgetScopeField = Annotated[ScopeBody, Code("INVALID_SCOPE"), Words(SCOPE_RULE)]
BudgetAmountField = Annotated[
    Annotated[Decimal, Field(ge=0, le=USD_MAX, allow_inf_nan=False), BeforeValidator(plain_number)],
    Code("INVALID_AMOUNT"),
    Words(f"must be an amount in USD from 0 to {USD_MAX}, like 200 or 1.50"),
]
BudgetPeriodField = Annotated[
    Literal["day", "week", "month", "total"],
    Code("INVALID_PERIOD"),
    Words("must be one of: day, week, month, total"),
]
BudgetWarnPercentField = Annotated[
    Annotated[list[Annotated[StrictInt, Field(ge=1, le=100)]], Field(max_length=20)],
    Code("INVALID_WARN_PERCENT"),
    Words("must be a list of whole numbers from 1 to 100, at most 20"),
]
BudgetAtLimitField = Annotated[
    Literal["warn", "block", "stop", "delete"],
    Code("INVALID_AT_LIMIT"),
    Words("must be one of: warn, block, stop, delete"),
]
BudgetStrictField = Annotated[StrictBool, Code("INVALID_STRICT"), Words("must be true or false")]


class BudgetBody(RequestModel):
    """A budget."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    name: BudgetNameField
    scope: BudgetScopeField
    amount: BudgetAmountField
    period: BudgetPeriodField
    warn_percent: BudgetWarnPercentField = Field(default=[50, 80, 95])
    at_limit: BudgetAtLimitField = "block"
    strict: BudgetStrictField = False


class BudgetChangeBody(RequestModel):
    """What is to be different; what is left out stays."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    name: Annotated[BudgetNameField | None, NotNull()] = None
    scope: Annotated[BudgetScopeField | None, NotNull()] = None
    amount: Annotated[BudgetAmountField | None, NotNull()] = None
    period: Annotated[BudgetPeriodField | None, NotNull()] = None
    warn_percent: Annotated[BudgetWarnPercentField | None, NotNull()] = None
    at_limit: Annotated[BudgetAtLimitField | None, NotNull()] = None
    strict: Annotated[BudgetStrictField | None, NotNull()] = None


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
