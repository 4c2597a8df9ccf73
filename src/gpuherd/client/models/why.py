"""Why an instance is as it is: what was weighed, tried and waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from gpuherd.client.models.base import ApiModel
from gpuherd.client.models.instance import Attempt, Failure, HealthReport
from gpuherd.client.models.plan import RefusedOffer


@dataclass(frozen=True, kw_only=True)
class Sentence(ApiModel):
    """One thing that happened; `times` in a row, the last time at `last_at`."""

    at: datetime
    text: str
    times: int = 1
    last_at: datetime | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class RankedOffer(ApiModel):
    """An offer that fitted, as it was on that day. `hourly_price` is for the whole instance."""

    rank: int
    product_id: str
    region: str
    product_name: str | None = None
    hourly_price: Decimal | None = None
    gpu_hourly_price: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class Considered(ApiModel):
    """A round in which offers were weighed; `rounds` in a row went the same way."""

    at: datetime
    rounds: int = 1
    last_at: datetime | None = None
    ranked: tuple[RankedOffer, ...] = ()
    refused: tuple[RefusedOffer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Waiting(ApiModel):
    """What is waited for now; `until` None means that it is never given up."""

    what: str = field(metadata={"key": "for"})
    sentence: str = ""
    since: datetime | None = None
    next_try_at: datetime | None = None
    until: datetime | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class StatusPhase(ApiModel):
    """A status, and how long it lasted; None while it lasts."""

    status: str
    at: datetime | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Why(ApiModel):
    """The whole record of an instance, and its story in sentences, oldest first."""

    instance_id: str
    name: str
    status: str
    story: tuple[Sentence, ...]
    usable: bool = False
    status_reason: str | None = None
    waits: Waiting | None = None
    advice: str | None = None
    last_error: Failure | None = None
    phases: tuple[StatusPhase, ...] = ()
    considered: tuple[Considered, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    health: HealthReport | None = None

    def __str__(self) -> str:
        return "\n".join(map(str, self.story))
