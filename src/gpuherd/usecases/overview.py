"""Overview: what runs, and what needs a person."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuherd.domain.access.caller import Caller
from gpuherd.domain.instance.attempt import AttemptState
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.orphans.orphan import Orphan
from gpuherd.jobs.job import JobStatus
from gpuherd.ports.flags import Flags
from gpuherd.ports.instances import Instances, LiveInstance
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.orphans import Orphans
from gpuherd.ports.webhooks import DeliveryFilter, DeliveryLog, DeliveryQuery
from gpuherd.usecases.cloud.account import AccountGuard
from gpuherd.usecases.cloud.creates import CREATES_BLOCKED
from gpuherd.usecases.cloud.installation_alarm import INSTALLATION_SHARED
from gpuherd.usecases.cloud.vanishing import VanishingBrake
from gpuherd.usecases.idleness.brake import AUTO_STOP_BRAKED
from gpuherd.usecases.orphans.collect import COLLECTOR_BRAKED

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
        """Tell whether a create call got no answer, and is not merely under way."""
        return any(one.state is AttemptState.UNKNOWN for one in await self.instances.attempts(it.id))
