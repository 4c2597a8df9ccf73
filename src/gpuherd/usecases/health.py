"""Health: how everything is that the service needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuherd.clock import Clock
from gpuherd.domain.cloud.list_trust import why_unbelieved
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.flags import Flags
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.observations import Observations
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.cloud.account import AccountGuard
from gpuherd.usecases.cloud.creates import CREATES_BLOCKED
from gpuherd.usecases.cloud.installation_alarm import INSTALLATION_SHARED
from gpuherd.usecases.cloud.vanishing import VanishingBrake
from gpuherd.usecases.idleness.brake import AUTO_STOP_BRAKED
from gpuherd.usecases.orphans.collect import COLLECTOR_BRAKED

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
        """Tell whether the database can be read."""
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
