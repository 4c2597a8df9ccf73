"""The health of the service, and the overview of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.observation import why_unbelieved
from gpuherd.domain.cloud.orphan import Orphan
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.job import JobStatus
from gpuherd.ports.instance_port import LiveInstance
from gpuherd.ports.webhook_port import DeliveryFilter, DeliveryQuery
from gpuherd.usecases.cloud.collect_orphans import COLLECTOR_BRAKED
from gpuherd.usecases.cloud.guard_creates import (
    CREATES_BLOCKED,
    INSTALLATION_SHARED,
)
from gpuherd.usecases.reconcile.watch_idleness import AUTO_STOP_BRAKED
from gpuherd.usecases.services import Services

# Anybody may ask, at any rate: one answer serves all callers for so long.
ANSWER_TTL_S = 1.0


@dataclass(frozen=True)
class ServiceHealth:
    """The health of the parts of the service."""

    breaker: str
    # The code of the error of the last call to the cloud, or nothing.
    cloud_error: str
    last_listed_at: datetime | None
    oldest_due_s: float
    creates_blocked: str | None
    collector_braked: str | None
    # Why a second database seems to use our installation id. This stops creates and the collector.
    installation_shared: str | None
    # Why no list of this account is believed, and why no loss of machines is.
    account_unconfirmed: str | None = None
    vanishing_held: str | None = None
    last_believed_at: datetime | None = None
    # Why no list could be believed for too long.
    lists_unbelieved: str | None = None
    # Why nothing ends by idleness.
    auto_stop_braked: str | None = None


async def database_answers(services: Services) -> bool:
    """Return True if the database can be read."""
    try:
        await services.stores.observations.last_list()
    except StoreUnavailable:
        return False
    return True


async def read_service_health(services: Services) -> ServiceHealth | None:
    """Return the health of at most a second ago; None if the database does not answer.

    The cloud is never asked.
    """
    return await services.health_cache.get_or_load("health", partial(_read_or_none, services))


async def _read_or_none(services: Services) -> ServiceHealth | None:
    try:
        return await _read(services)
    except StoreUnavailable:
        return None


async def _read(services: Services) -> ServiceHealth:
    oldest_due_s = await services.stores.jobs.oldest_due_s()
    shared = await services.stores.flags.get(INSTALLATION_SHARED)
    blocked = shared or await services.stores.flags.get(CREATES_BLOCKED)
    braked = shared or await services.stores.flags.get(COLLECTOR_BRAKED)
    breaker, cloud_error = services.breaker_state(), services.observer.error_code
    seen = await services.stores.observations.last_list()
    listed_at = None if seen is None else seen.finished_at
    believed = await services.stores.observations.last_believable_list()
    believed_at = None if believed is None else believed.finished_at
    return ServiceHealth(
        breaker,
        cloud_error,
        listed_at,
        oldest_due_s,
        blocked,
        braked,
        shared,
        account_unconfirmed=await services.account.unconfirmed(),
        vanishing_held=await services.vanishing.held(),
        last_believed_at=believed_at,
        auto_stop_braked=await services.stores.flags.get(AUTO_STOP_BRAKED),
        lists_unbelieved=why_unbelieved(
            seen, believed_at, services.begun_at, services.clock.now(), services.rules.poll_interval
        ),
    )


# Each of these costs a read, and the overview shows no more.
UNKNOWN_MAX = 12


@dataclass(frozen=True)
class SystemStatus:
    """The state of everything that is not an instance; None where this key may not see."""

    breaker: str = "CLOSED"
    oldest_due_s: float = 0.0
    creates_blocked: str | None = None
    collector_braked: str | None = None
    account_unconfirmed: str | None = None
    vanishing_held: str | None = None
    auto_stop_braked: str | None = None
    dead_deliveries: int = 0
    failed_jobs: int = 0
    # Instances with a create call that got no answer.
    unknown: Sequence[Instance] = ()
    orphans: Sequence[Orphan] | None = None


async def read_system_status(
    services: Services, caller: Caller, live: Sequence[LiveInstance]
) -> SystemStatus:
    """Return the state of everything that is not an instance, as far as the caller may see."""
    stats = await services.stores.jobs.stats(caller.owner)
    unsure = [it.instance for it in live if it.open_tag is not None][:UNKNOWN_MAX]
    dead = DeliveryQuery(state=DeliveryFilter.DEAD, owner=caller.owner, limit=1)
    return SystemStatus(
        breaker=services.breaker_state(),
        oldest_due_s=stats.oldest_due_s,
        creates_blocked=await services.stores.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED),
        collector_braked=await services.stores.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED)
        if caller.sees_all
        else None,
        account_unconfirmed=await services.account.unconfirmed(),
        vanishing_held=await services.vanishing.held(),
        auto_stop_braked=await services.stores.flags.get(AUTO_STOP_BRAKED),
        dead_deliveries=(await services.stores.deliveries.page(dead)).total,
        failed_jobs=stats.by_status.get(JobStatus.FAILED, 0),
        unknown=[it for it in unsure if await _is_unknown(services, it)],
        orphans=await services.stores.orphans.open() if caller.sees_all else None,
    )


async def _is_unknown(services: Services, it: Instance) -> bool:
    """Return True if a create call of this instance got no answer and is not under way."""
    return any(one.state is AttemptState.UNKNOWN for one in await services.stores.instances.attempts(it.id))
