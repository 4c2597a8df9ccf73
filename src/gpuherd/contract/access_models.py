"""API keys, secrets and the audit log."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, StrictStr, ValidationInfo
from pydantic_core import PydanticCustomError

from gpuherd.contract.body_models import (
    ENV_VALUE_CHARS_MAX,
    USD_MAX,
    Code,
    Label,
    RequestModel,
    Words,
    env_value_problem,
    plain_number,
)
from gpuherd.contract.body_models import Moment as GivenMoment
from gpuherd.contract.lease_models import LeaseSeconds
from gpuherd.contract.wire_models import Moment, ReplyModel, Usd, one_of

Scope = Annotated[str, one_of("read", "write", "admin")]
KeyStatus = Annotated[str, one_of("active", "expired", "revoked")]


class Limits(ReplyModel):
    """How much a key may do; None is no limit."""

    requests_per_minute: int | None
    max_gpus: int | None
    max_hourly_usd: Usd | None
    max_lease_seconds: int | None = Field(
        description="every instance of the key has a lease, of at most so long"
    )


class ApiKey(ReplyModel, needs=("id",)):
    """A key, without what would let anybody in."""

    id: str
    label: str
    scopes: tuple[Scope, ...]
    status: KeyStatus
    limits: Limits
    created_at: Moment
    expires_at: Moment | None
    last_used_at: Moment | None
    revoked_at: Moment | None


class ApiKeyWithSecret(ApiKey):
    """A key that was just made."""

    key: str | None = Field(
        repr=False, description="the key itself, in this reply only; null in the reply to a repeated request"
    )
    webhook_secret: str | None = Field(repr=False, description="signs the webhooks of its instances")


class OwnKey(ReplyModel, needs=("id", "scopes")):
    """What a key may know of itself."""

    id: str
    scopes: tuple[Scope, ...]
    limits: Limits
    strict_budget: bool = Field(
        description="a strict budget covers all that it rents, so nothing can cost more than was set aside"
    )


class ApiKeys(ReplyModel):
    """All keys, oldest first, revoked ones too."""

    keys: tuple[ApiKey, ...]
    total: int


class SecretName(ReplyModel, needs=("name",)):
    """A secret, without its value: that never comes back."""

    name: str
    shared: bool = Field(description="an admin has set it for every key")
    created_at: Moment
    changed_at: Moment


class Secrets(ReplyModel):
    """The secrets that the caller's key may use, by name. Its own hides a shared one of its name."""

    secrets: tuple[SecretName, ...]
    total: int


class SecretRemoved(ReplyModel):
    """A secret that is no more."""

    name: str
    removed: bool


class SecretsRotated(ReplyModel):
    """What the newest key has sealed again, and what still needs an earlier one."""

    resealed: int
    unreadable: tuple[str, ...] = Field(description="names of secrets that no key of this server opens")
    instances_left: int = Field(description="have variables that an earlier key has sealed")


class AuditEntry(ReplyModel):
    """One entry of the audit log, with everything that its hash was made of."""

    n: int
    at: Moment
    actor: str = Field(description="the id of a key, or one of gpuherd's own names")
    action: str
    target: str
    before: str
    after: str
    request_id: str
    hash: str = Field(description="SHA-256 over the hash before it and everything that this entry says")


class AuditAnchor(ReplyModel):
    """The last entry of the audit log that was pruned; the hash of the next one was made over this one."""

    n: int
    hash: str


class AuditPage(ReplyModel):
    """One page of the audit log."""

    entries: tuple[AuditEntry, ...]
    total: int = Field(description="on all pages")
    next_cursor: str | None = Field(description="of the next page; null on the last")
    anchor: AuditAnchor | None = Field(description="where the log begins; null as long as nothing was pruned")


# Bodies

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
        list[Literal["read", "write", "admin"]],
        Field(min_length=1),
        Code("INVALID_SCOPES"),
        Words("must be a list of some of: read, write, admin"),
    ]
    label: Label | None = None
    expires_at: Annotated[
        Annotated[GivenMoment, AfterValidator(_to_come)] | None,
        Code("INVALID_EXPIRES_AT"),
        Words("must be a time to come in ISO 8601, like 2027-01-31T12:00:00Z"),
    ] = None
    limits: Annotated[LimitsBody | None, Code("INVALID_LIMITS"), Words("must be an object")] = None


def _secret_value(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    if problem := env_value_problem(value):
        raise ValueError(problem)
    return value


class SecretBody(RequestModel):
    """The value of a secret, and who may use it."""

    value: Annotated[
        StrictStr,
        Field(json_schema_extra={"minLength": 1, "maxLength": ENV_VALUE_CHARS_MAX}, repr=False),
        AfterValidator(_secret_value),
        Code("INVALID_SECRET_VALUE"),
    ]
    shared: Annotated[StrictBool, Code("INVALID_SHARED")] = False
