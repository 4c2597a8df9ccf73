"""How the server is, and what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from gpuherd.contract.codec.model import Model
from gpuherd.contract.codec.values import LeftOutIfNone, OffsetTime, OneOf

UpDown = Annotated[str, OneOf(("up", "down"))]
Breaker = Annotated[str, OneOf(("CLOSED", "OPEN", "HALF_OPEN"))]


class Liveness(Model):
    """The process can answer."""

    status: Annotated[str, OneOf(("alive",))]


class Readiness(Model):
    """Whether requests can be taken now."""

    status: Annotated[str, OneOf(("ready", "not ready"))]


class CloudHealth(Model):
    """The way to the cloud."""

    status: UpDown
    breaker: Breaker  # the circuit breaker in front of it
    trouble: str | None  # the code of what went wrong last
    last_listed_at: OffsetTime | None
    last_believed_at: OffsetTime | None  # when a list last could prove that something is gone
    unbelieved: str | None  # why no list could be believed for minutes, if so; without a key a code


class DatabaseHealth(Model):
    """The database."""

    status: UpDown


class QueueHealth(Model):
    """The jobs."""

    status: Annotated[str, OneOf(("up", "late"))]
    oldest_due_seconds: float


class Dependencies(Model):
    """What gpuherd needs. Without its database it knows nothing of the others."""

    novita: LeftOutIfNone[CloudHealth] = None
    database: DatabaseHealth
    queue: LeftOutIfNone[QueueHealth] = None

    def __getitem__(self, name: str) -> Any:
        """Return what the server said of one, by its name on the wire, as the client always did."""
        return self.raw[name]


class Unhealthy(Model):
    """The database is not there."""

    status: Annotated[str, OneOf(("unhealthy",))]
    dependencies: Dependencies


class Health(Model, needs=("status",)):
    """How everything is that gpuherd needs."""

    status: Annotated[str, OneOf(("healthy", "degraded"))]
    dependencies: Dependencies
    creates_blocked: str | None  # why nothing is rented, if so; without a key a code
    collector_braked: str | None  # why no surplus machine is removed, if so; without a key a code
    installation_shared: (
        str | None
    )  # why a second database seems to use our id, if so: it stops both; without a key a code
    account_unconfirmed: (
        str | None
    )  # why the key is not believed to be of the right account, if so; without a key a code
    vanishing_held: (
        str | None
    )  # why machines that are missing are not believed lost, if so; without a key a code
    auto_stop_braked: str | None  # why nothing ends by idleness, if so; without a key a code
    replicas: Mapping[str, int]  # the processes on this database, by what they do
    timestamp: OffsetTime


class Creates(Model):
    """Whether new machines may be rented."""

    blocked: str | None  # why not


class CloudTrust(Model):
    """What of the cloud is not believed."""

    account_unconfirmed: str | None  # why the key is not believed to be of the right account
    vanishing_held: str | None  # why machines that are missing are not believed lost


class Sync(Model, needs=("listed",)):
    """What one look at the cloud has found."""

    listed: int
    complete: bool  # False: good for finding, useless for missing
    witness: str  # how far the list is believed
    changed: int


class CacheStats(Model):
    """How one cache is used."""

    size: int
    hits: int
    misses: int
    sets: int
    evictions: int
    hit_ratio: float
    ttl_seconds: float
    cached_ids: tuple[str, ...]  # the latest used ones; for admins only


class CachesStats(Model):
    """All caches, by name."""

    caches: Mapping[str, CacheStats]
    tracked_instances: int  # of so many there is anything to remember


class CachesCleared(Model):
    """Which caches are empty now."""

    cleared: tuple[str, ...]


class CachesCleaned(Model):
    """How many entries were thrown out."""

    removed: int
