"""The bodies of `POST /api/keys` and `PUT /api/secrets`. No problem repeats the value of a secret."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from gpuherd.contract.body_models import USD_MAX, Code, Label, Moment, RequestModel, Words, plain_number
from gpuherd.contract.lease_models import LeaseSeconds
from gpuherd.domain.api_key import NO_LIMITS, Limits, Scope
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.launch_spec import value_problem
from gpuherd.domain.secret import NAME, NAME_RULE, VALUE_CHARS_MAX, Secret
from gpuherd.usecases.access.manage_keys import KeyRequest

COUNT_MAX = 1_000_000


def _to_come(moment: datetime, info: ValidationInfo) -> datetime:
    assert isinstance(info.context, datetime)
    if moment <= info.context:
        raise PydanticCustomError("past", "must be to come")
    return moment


class LimitsBody(RequestModel):
    """How much a key may use; what is left out is not limited."""

    # A misspelt limit is none.
    unknown_field: ClassVar[str] = "{path} is not known; there are: {known}"

    requests_per_minute: Annotated[
        Annotated[StrictInt, Field(ge=1, le=COUNT_MAX)] | None,
        Words(f"must be a whole number from 1 to {COUNT_MAX}"),
    ] = None
    max_gpus: Annotated[
        Annotated[StrictInt, Field(ge=0, le=COUNT_MAX)] | None,
        Words(f"must be a whole number from 0 to {COUNT_MAX}"),
    ] = None
    max_hourly_usd: Annotated[
        Annotated[Decimal, Field(ge=0, le=USD_MAX), BeforeValidator(plain_number)] | None,
        Words(f"must be an amount in USD from 0 to {USD_MAX}, like 1.50"),
    ] = None
    max_lease_s: Annotated[LeaseSeconds | None, Field(alias="maxLeaseSeconds")] = None


class KeyBody(RequestModel):
    """A key: what it may do, for how long, and how much of it. Needs the present time as the context."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    scopes: Annotated[
        list[Scope],
        Field(min_length=1),
        Code("INVALID_SCOPES"),
        Words(f"must be a list of some of: {', '.join(Scope)}"),
    ]
    label: Label | None = None
    expires_at: Annotated[
        Annotated[Moment, AfterValidator(_to_come)] | None,
        Code("INVALID_EXPIRES_AT"),
        Words("must be a time to come in ISO 8601, like 2027-01-31T12:00:00Z"),
    ] = None
    limits: Annotated[LimitsBody | None, Code("INVALID_LIMITS"), Words("must be an object")] = None

    def to_request(self) -> KeyRequest:
        """Return what is asked for."""
        return KeyRequest(
            scopes=tuple(it for it in Scope if it in self.scopes),
            label=self.label or "",
            expires_at=self.expires_at,
            limits=NO_LIMITS if self.limits is None else Limits(**self.limits.__dict__),
        )


def checked_secret_name(name: str) -> str:
    """Return the name of a secret, or say why it is none."""
    if not NAME.fullmatch(name):
        raise InvalidRequest([FieldProblem("name", "INVALID_SECRET_NAME", f"name {NAME_RULE}")])
    return name


def _secret_value(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    if problem := value_problem(value):
        raise ValueError(problem)
    return value


class SecretBody(RequestModel):
    """The value of a secret, and who may use it."""

    value: Annotated[
        StrictStr,
        Field(json_schema_extra={"minLength": 1, "maxLength": VALUE_CHARS_MAX}, repr=False),
        AfterValidator(_secret_value),
        Code("INVALID_SECRET_VALUE"),
    ]
    shared: Annotated[StrictBool, Code("INVALID_SHARED")] = False

    @property
    def secret(self) -> Secret:
        return Secret(self.value)
