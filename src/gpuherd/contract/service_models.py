"""The state of the server and of the cloud, and the machines that no instance has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictStr

from gpuherd.contract.body_models import Code, RequestModel, Words
from gpuherd.contract.instance_models import Status
from gpuherd.contract.wire_models import LeftOutIfNone, Moment, Number, OffsetTime, ReplyModel, Usd, one_of

UpDown = Annotated[str, one_of("up", "down")]
Breaker = Annotated[str, one_of("CLOSED", "OPEN", "HALF_OPEN")]


class Liveness(ReplyModel):
    """The process can answer."""

    status: Annotated[str, one_of("alive")]


class Readiness(ReplyModel):
    """Whether requests can be taken now."""

    status: Annotated[str, one_of("ready", "not ready")]


class CloudHealth(ReplyModel):
    """The way to the cloud."""

    status: UpDown
    breaker: Breaker = Field(description="the circuit breaker in front of it")
    trouble: str | None = Field(description="the code of what went wrong last")
    last_listed_at: OffsetTime | None
    last_believed_at: OffsetTime | None = Field(
        description="when a list last could prove that something is gone"
    )
    unbelieved: str | None = Field(
        description="why no list could be believed for minutes, if so; without a key a code"
    )


class DatabaseHealth(ReplyModel):
    """The database."""

    status: UpDown


class QueueHealth(ReplyModel):
    """The jobs."""

    status: Annotated[str, one_of("up", "late")]
    oldest_due_seconds: Number


class Dependencies(ReplyModel):
    """What gpuherd needs. Without its database it knows nothing of the others."""

    novita: LeftOutIfNone[CloudHealth] = None
    database: DatabaseHealth
    queue: LeftOutIfNone[QueueHealth] = None

    def __getitem__(self, name: str) -> Any:
        """Return what the server said of one, by its name on the wire, as the client always did."""
        return self.raw[name]


class Unhealthy(ReplyModel):
    """The database is not there."""

    status: Annotated[str, one_of("unhealthy")]
    dependencies: Dependencies


class Health(ReplyModel, needs=("status",)):
    """How everything is that gpuherd needs."""

    status: Annotated[str, one_of("healthy", "degraded")]
    dependencies: Dependencies
    creates_blocked: str | None = Field(description="why nothing is rented, if so; without a key a code")
    collector_braked: str | None = Field(
        description="why no surplus machine is removed, if so; without a key a code"
    )
    installation_shared: str | None = Field(
        description="why a second database seems to use our id, if so: it stops both; without a key a code"
    )
    account_unconfirmed: str | None = Field(
        description="why the key is not believed to be of the right account, if so; without a key a code"
    )
    vanishing_held: str | None = Field(
        description="why machines that are missing are not believed lost, if so; without a key a code"
    )
    auto_stop_braked: str | None = Field(
        description="why nothing ends by idleness, if so; without a key a code"
    )
    replicas: Mapping[str, int] = Field(description="the processes on this database, by what they do")
    timestamp: OffsetTime


class Creates(ReplyModel):
    """Whether new machines may be rented."""

    blocked: str | None = Field(description="why not")


class CloudTrust(ReplyModel):
    """What of the cloud is not believed."""

    account_unconfirmed: str | None = Field(
        description="why the key is not believed to be of the right account"
    )
    vanishing_held: str | None = Field(description="why machines that are missing are not believed lost")


class Sync(ReplyModel, needs=("listed",)):
    """What one look at the cloud has found."""

    listed: int
    complete: bool = Field(description="False: good for finding, useless for missing")
    witness: str = Field(description="how far the list is believed")
    changed: int


class CacheStats(ReplyModel):
    """How one cache is used."""

    size: int
    hits: int
    misses: int
    sets: int
    evictions: int
    hit_ratio: Number
    ttl_seconds: Number
    cached_ids: tuple[str, ...] = Field(description="the latest used ones; for admins only")


class CachesStats(ReplyModel):
    """All caches, by name."""

    caches: Mapping[str, CacheStats]
    tracked_instances: int = Field(description="of so many there is anything to remember")


class CachesCleared(ReplyModel):
    """Which caches are empty now."""

    cleared: tuple[str, ...]


class CachesCleaned(ReplyModel):
    """How many entries were thrown out."""

    removed: int


# surplus: ours and superfluous; unrecorded: ours, but this database does not know it; foreign: not ours.
Verdict = Annotated[str, one_of("surplus", "unrecorded", "foreign")]
OrphanOrder = Annotated[str, one_of("stop", "delete")]


class Orphan(ReplyModel, needs=("cloud_id", "verdict")):
    """A machine that no instance has. Prices are USD."""

    cloud_id: str
    name: str
    verdict: Verdict = Field(
        description="ours and superfluous, ours but unrecorded in this database, or not ours"
    )
    reason: str
    instance_id: str | None = Field(description="the instance that its tag names")
    status: Status | None
    cloud_status: str = Field(description="in the cloud's own word")
    product_id: str | None
    product_name: str | None
    region: str | None
    gpu_num: int
    billing_mode: str | None
    hourly_price: Usd | None = Field(
        description="what it costs now, its disk included; a stopped one has only that"
    )
    cost_so_far: Usd | None
    age_s: int = Field(validation_alias="ageSeconds", serialization_alias="ageSeconds")
    created_at: Moment | None
    first_seen_at: Moment
    confirmed_at: Moment | None
    order: OrphanOrder | None = Field(description="what shall become of it")
    ordered_at: Moment | None
    ordered_by: str | None = Field(description="the id of a key, or `collector`")
    asked_at: Moment | None = Field(description="when the cloud was last asked to do it")
    tries: int
    error: str | None


class Orphans(ReplyModel, needs=("orphans",)):
    """All orphans, and what they cost an hour."""

    orphans: tuple[Orphan, ...]
    total: int
    hourly_price: Usd = Field(description="of all whose price is known")
    braked: str | None = Field(description="why none is removed by itself, if so")


class Released(ReplyModel, needs=("released",)):
    """The orphans that the brake had held back and that are deleted now."""

    braked: None
    released: tuple[Orphan, ...]


class OrphanNotice(ReplyModel):
    """What an event says of a machine that was found."""

    cloud_instance_id: str
    verdict: Verdict
    hourly_price: Usd | None
    product_name: str | None
    region: str | None


# Bodies


class EmptyBody(RequestModel):
    """No fields: a client that sends some expects something that would not happen."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"


class ClearCacheBody(RequestModel):
    """Which cache to forget; without a name, all."""

    unknown_field: ClassVar[str] = "there is only the field {known}"

    cache_name: Annotated[StrictStr | None, Code("INVALID_CACHE_NAME"), Words("must be a string")] = None
