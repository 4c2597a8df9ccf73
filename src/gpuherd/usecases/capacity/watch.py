"""Watch capacity: one look at the catalogue for all who wait, and a wake-up for whoever is first in line."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import CloudError
from gpuherd.domain.instance.capacity_line import REFUSALS_FORGOTTEN
from gpuherd.ports.instances import CapacityMemory
from gpuherd.ports.jobs import Jobs
from gpuherd.usecases.capacity.line import CapacityLine
from gpuherd.usecases.jobs.kinds import JobFactory

log = structlog.get_logger()

# Whoever is the first in line is woken so often while something can be tried.
WAKE_AGAIN_S = 30.0


@dataclass
class WatchCapacity:
    """Runs every few seconds for the leader, and after each rental of one who waited."""

    line: CapacityLine
    memory: CapacityMemory
    jobs: Jobs
    job_factory: JobFactory
    clock: Clock
    _woken_at_s: dict[str, float] = field(default_factory=dict, init=False)

    async def __call__(self) -> int:
        """Learn who waits, and wake whoever may try; return how many."""
        await self.line.refresh()
        if self.line.is_quiet:
            self._woken_at_s.clear()
            return 0
        if self.line.is_forgetful():
            await self.memory.prune(self.clock.now() - REFUSALS_FORGOTTEN)
        return await self.wake_heads()

    async def wake_heads(self) -> int:
        """Wake whoever is first in line for what can be tried now; return how many."""
        try:
            heads = await self.line.heads()
        except CloudError as error:
            # The catalogue is looked at again soon, and who waits has time.
            log.info("capacity.catalogue_unknown", code=error.code)
            return 0
        now_s = self.clock.monotonic()
        due = [it for it in heads if now_s - self._woken_at_s.get(it.id, -WAKE_AGAIN_S) >= WAKE_AGAIN_S]
        known = self._woken_at_s
        self._woken_at_s = {it.id: known.get(it.id, now_s) for it in heads} | {it.id: now_s for it in due}
        if due:
            await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(it) for it in due])
        return len(due)
