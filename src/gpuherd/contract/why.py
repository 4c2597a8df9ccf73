"""Why an instance is as it is: what was weighed, tried and waited for."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from gpuherd.contract.codec.model import Model, on_wire_as
from gpuherd.contract.codec.values import OneOf
from gpuherd.contract.instance import Answer, Failure, HealthReport, Status

AttemptState = Annotated[str, OneOf(("sent", "bound", "rejected", "unknown", "abandoned"))]
WaitingFor = Annotated[
    str,
    OneOf(
        (
            *("cloud", "capacity", "creates"),
            *("order", "outcome", "machine", "application", "move", "stop", "removal"),
        )
    ),
]


class Sentence(Model, needs=("at", "text")):
    """One thing that happened."""

    at: datetime
    text: str
    times: int  # in a row
    last_at: datetime | None  # the last time, of several

    def __str__(self) -> str:
        return self.text


class RankedOffer(Model, needs=("rank", "product_id", "region")):
    """An offer that fitted, as it was on that day."""

    rank: int  # from 1, best first
    product_id: str
    product_name: str
    region: str
    gpu_hourly_price: Decimal | None  # of one GPU
    hourly_price: Decimal | None  # of the whole instance


class RejectedOffer(Model, needs=("product_id", "region")):
    """An offer that did not fit, and why."""

    product_id: str
    product_name: str
    region: str
    gpu_hourly_price: Decimal | None  # of one GPU
    hourly_price: Decimal | None  # of the whole instance
    reason: str


class UnpricedOffer(Model, needs=("product_id", "region")):
    """An offer that did not fit while capacity was waited for, and why. Its price is not on record."""

    product_id: str
    product_name: str
    reason: str
    region: str

    @property
    def gpu_hourly_price(self) -> None:
        return None

    @property
    def hourly_price(self) -> None:
        return None


class RegionWithoutOffer(Model, needs=("region",)):
    """A region that was asked for and sells nothing of the kind."""

    region: str
    reason: str


class Considered(Model, needs=("at",)):
    """A round in which offers were weighed."""

    at: datetime
    rounds: int  # so many in a row went the same way
    last_at: datetime  # the last of them
    ranked: tuple[RankedOffer, ...]  # the first of them
    refused: tuple[RejectedOffer | UnpricedOffer, ...]  # the first of them
    ranked_total: int
    refused_total: int
    regions_without_offer: tuple[RegionWithoutOffer, ...]


class AttemptError(Model, needs=("code",)):
    """Why a create call came to nothing."""

    code: str
    message: str


class Attempt(Model, needs=("n", "state")):
    """One create call, and what became of it."""

    n: int
    tag: str  # by which the machine is recognised
    state: AttemptState
    product_id: str
    product_name: str
    region: str
    gpu_hourly_price: Decimal  # of one GPU
    sent_at: datetime
    closed_at: datetime | None
    cloud_instance_id: str | None
    error: AttemptError | None


class Waiting(Model, needs=("what",)):
    """What is waited for now."""

    what: WaitingFor = on_wire_as("for")
    sentence: str
    since: datetime
    next_try_at: datetime | None  # None while one is under way
    until: datetime | None  # then it is given up; None: never
    deadline: datetime  # until then it must be usable
    position: int | None  # in line for capacity; 1 is tried next
    ahead: int | None  # how many come first
    last_answer: Answer | None


class StatusPhase(Model, needs=("status",)):
    """A status, and how long it lasted."""

    status: Status
    at: datetime
    seconds: float | None  # None while it lasts


class LineageMember(Model, needs=("instance_id",)):
    """One of the instances that take over from one another."""

    instance_id: str
    link: int  # which of them it is, from 1
    status: Status
    usable: bool
    region: str | None
    made_for: Annotated[str, OneOf(("notice", "lost", "asked"))] | None  # why it took over; None of the first
    created_at: datetime
    ready_at: datetime | None
    stopped_at: datetime | None


class Why(Model, needs=("instance_id", "name", "status", "story")):
    """The whole record of an instance, and its story in sentences, oldest first."""

    instance_id: str
    name: str
    status: Status
    status_reason: str
    usable: bool
    last_error: Failure | None
    advice: str | None  # what a person can do now
    story: tuple[Sentence, ...]
    waits: Waiting | None
    phases: tuple[StatusPhase, ...]
    considered: tuple[Considered, ...]
    attempts: tuple[Attempt, ...]
    health: HealthReport | None
    lineage: tuple[LineageMember, ...]  # the first of them first; empty where it is alone

    def __str__(self) -> str:
        return "\n".join(map(str, self.story))
