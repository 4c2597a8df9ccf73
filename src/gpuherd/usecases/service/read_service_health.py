"""The health of the service, and the overview of the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.observation import why_unbelieved
from gpuherd.domain.cloud.orphan import Orphan
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.job import JobStatus
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import Instances, LiveInstance
from gpuherd.ports.job_port import Jobs
from gpuherd.ports.observation_port import Observations, Orphans
from gpuherd.ports.replica_port import Flags
from gpuherd.ports.webhook_port import DeliveryFilter, DeliveryLog, DeliveryQuery
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud.collect_orphans import COLLECTOR_BRAKED
from gpuherd.usecases.cloud.guard_creates import (
    CREATES_BLOCKED,
    INSTALLATION_SHARED,
    AccountGuard,
    VanishingBrake,
)
from gpuherd.usecases.reconcile.watch_idleness import AUTO_STOP_BRAKED

# Everybody may ask, as often as they like: this is how long an answer serves all of them.
ANSWER_TTL_S = 1.0


@dataclass(frozen=True)
class ServiceHealth:
    """How the parts are."""

    breaker: str
    # The code of what was wrong with the cloud when it was asked last, or nothing.
    cloud_error: str
    last_listed_at: datetime | None
    oldest_due_s: float
    creates_blocked: str | None
    collector_braked: str | None
    # Why we believe that a second database uses our installation id; it stops creates and the collector.
    installation_shared: str | None
    # Why nothing is believed of this key's account, and why no loss of machines is.
    account_unconfirmed: str | None = None
    vanishing_held: str | None = None
    last_believed_at: datetime | None = None
    # Why no list could be believed for too long.
    lists_unbelieved: str | None = None
    # Why nothing ends by idleness.
    auto_stop_braked: str | None = None


@dataclass(kw_only=True)
class ReadServiceHealth:
    """Asks the database and this process, never the cloud, and that once a second at most."""

    clock: Clock
    observations: Observations
    jobs: Jobs
    flags: Flags
    breaker_state: Callable[[], str]
    cloud_error: Callable[[], str]
    account: AccountGuard
    vanishing: VanishingBrake
    poll_interval: timedelta
    _begun_at: datetime = field(init=False)
    # None while the database does not answer.
    _answer: Cache[str, ServiceHealth | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._begun_at = self.clock.now()
        self._answer = Cache(self.clock, ANSWER_TTL_S, 1, "health")

    async def database_answers(self) -> bool:
        """Return True if the database can be read."""
        try:
            await self.observations.last_list()
        except StoreUnavailable:
            return False
        return True

    async def __call__(self) -> ServiceHealth | None:
        """Return how everything is, or was up to a second ago; None if the database does not answer."""
        return await self._answer.get_or_load("health", self._ask)

    async def _ask(self) -> ServiceHealth | None:
        try:
            return await self._read()
        except StoreUnavailable:
            return None

    async def _read(self) -> ServiceHealth:
        oldest_due_s = await self.jobs.oldest_due_s()
        shared = await self.flags.get(INSTALLATION_SHARED)
        blocked = shared or await self.flags.get(CREATES_BLOCKED)
        braked = shared or await self.flags.get(COLLECTOR_BRAKED)
        breaker, cloud_error = self.breaker_state(), self.cloud_error()
        seen = await self.observations.last_list()
        listed_at = None if seen is None else seen.finished_at
        believed = await self.observations.last_believable_list()
        believed_at = None if believed is None else believed.finished_at
        return ServiceHealth(
            breaker,
            cloud_error,
            listed_at,
            oldest_due_s,
            blocked,
            braked,
            shared,
            account_unconfirmed=await self.account.unconfirmed(),
            vanishing_held=await self.vanishing.held(),
            last_believed_at=believed_at,
            auto_stop_braked=await self.flags.get(AUTO_STOP_BRAKED),
            lists_unbelieved=why_unbelieved(
                seen, believed_at, self._begun_at, self.clock.now(), self.poll_interval
            ),
        )


# Each of them is looked at closely, and nobody reads more at a glance.
UNKNOWN_MAX = 12


@dataclass(frozen=True)
class SystemStatus:
    """The state of everything that is not an instance; None where this key may not know."""

    breaker: str = "CLOSED"
    oldest_due_s: float = 0.0
    creates_blocked: str | None = None
    collector_braked: str | None = None
    account_unconfirmed: str | None = None
    vanishing_held: str | None = None
    auto_stop_braked: str | None = None
    dead_deliveries: int = 0
    failed_jobs: int = 0
    # Instances of which a create call got no answer.
    unknown: Sequence[Instance] = ()
    orphans: Sequence[Orphan] | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOverview:
    """As far as the caller may see."""

    instances: Instances
    jobs: Jobs
    flags: Flags
    deliveries: DeliveryLog
    orphans: Orphans
    breaker_state: Callable[[], str]
    account: AccountGuard
    vanishing: VanishingBrake

    async def live(self, caller: Caller) -> Sequence[LiveInstance]:
        """Return every instance that is not over."""
        return await self.instances.all_live(caller.owner)

    async def system(self, caller: Caller, live: Sequence[LiveInstance]) -> SystemStatus:
        """Return how everything else is."""
        stats = await self.jobs.stats(caller.owner)
        unsure = [it.instance for it in live if it.open_tag is not None][:UNKNOWN_MAX]
        dead = DeliveryQuery(state=DeliveryFilter.DEAD, owner=caller.owner, limit=1)
        return SystemStatus(
            breaker=self.breaker_state(),
            oldest_due_s=stats.oldest_due_s,
            creates_blocked=await self.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED),
            collector_braked=await self.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED)
            if caller.sees_all
            else None,
            account_unconfirmed=await self.account.unconfirmed(),
            vanishing_held=await self.vanishing.held(),
            auto_stop_braked=await self.flags.get(AUTO_STOP_BRAKED),
            dead_deliveries=(await self.deliveries.page(dead)).total,
            failed_jobs=stats.by_status.get(JobStatus.FAILED, 0),
            unknown=[it for it in unsure if await self._is_unknown(it)],
            orphans=await self.orphans.open() if caller.sees_all else None,
        )

    async def _is_unknown(self, it: Instance) -> bool:
        """Return True if a create call got no answer, and is not merely under way."""
        return any(one.state is AttemptState.UNKNOWN for one in await self.instances.attempts(it.id))
