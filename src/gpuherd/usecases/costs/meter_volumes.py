"""Meter network volumes: they cost money by themselves, whether a machine has them or not.

They are looked at every few minutes, and right before and after we make or remove one: what comes and goes
between two looks would cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.costs.bill import StorageVolume
from gpuherd.domain.costs.meter.volumes import VolumeLook, read_volumes, subject_of_volume
from gpuherd.domain.costs.span import CostKind
from gpuherd.domain.errors import CloudError, StaleWrite, StoreUnavailable
from gpuherd.ports.costs import Costs, ProviderBilling
from gpuherd.ports.flags import Flags
from gpuherd.usecases.replicas.leadership import Leadership

log = structlog.get_logger()

VOLUMES_LOOKED_AT = "volumes_looked_at"
# Clocks are kept right by smaller steps than this.
STEP_MIN = timedelta(seconds=2)


@dataclass
class MeterVolumes:
    """Runs every few minutes, at the leader; `costs` refuses what another one writes."""

    billing: ProviderBilling
    costs: Costs
    flags: Flags
    clock: Clock
    leadership: Leadership
    # By the wall clock, and since the boot of the host.
    _last: tuple[datetime, float] | None = field(default=None, init=False)
    # Each look is compared with the one before.
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def __call__(self) -> None:
        """Look at all volumes."""
        await self._look()

    async def look_now(self, *, there: str = "", gone: str = "") -> None:
        """Look because we make or remove a volume, where we lead. The next usual look makes up for a failure.

        A list that does not show yet what we have just done says nothing.
        """
        if not self.leadership.is_leader():
            return
        try:
            await self._look(there, gone)
        except (StaleWrite, StoreUnavailable) as error:
            log.info("costs.volumes_not_written", code=error.code)

    async def _look(self, there: str = "", gone: str = "") -> None:
        async with self._looking:
            started_at, boottime = self.clock.now(), self.clock.boottime()
            try:
                listed = await self.billing.list_volumes()
            except CloudError as error:
                log.info("costs.volumes_unavailable", code=error.code)
                return
            ids = {it.volume_id for it in listed}
            if gone not in ids and (not there or there in ids):
                await self._record(listed, started_at, boottime)

    async def _record(self, listed: Sequence[StorageVolume], started_at: datetime, boottime: float) -> None:
        """Write down what a look has shown."""
        finished_at = self.clock.now()
        spans = await self.costs.open_spans(kind=CostKind.VOLUME)
        going_on = {it.span.cloud_id: it for it in spans}
        said = await self.flags.get(VOLUMES_LOOKED_AT)
        previous = datetime.fromisoformat(said) if said else None
        step = self._step(previous, started_at, boottime)
        look = VolumeLook(previous, started_at, finished_at, step)
        changed = read_volumes({key: it.span for key, it in going_on.items()}, listed, look)
        volumes = {it.volume_id: it for it in listed}
        subjects = {
            it.cloud_id: going_on[it.cloud_id].subject
            if it.cloud_id in going_on
            else subject_of_volume(it.cloud_id, volumes.get(it.cloud_id), finished_at)
            for it in changed
        }
        await self.costs.write(changed, subjects, finished_at)
        # Last: should this be lost, the next edges are wider, and still true.
        await self.flags.put(VOLUMES_LOOKED_AT, started_at.isoformat())
        self._last = (started_at, boottime)

    def _step(self, previous: datetime | None, now: datetime, boottime: float) -> timedelta:
        """Return by how much the wall clock was set since our own last look; a restart cannot tell."""
        if self._last is None or self._last[0] != previous:
            return timedelta(0)
        step = (now - self._last[0]) - timedelta(seconds=boottime - self._last[1])
        return step if abs(step) >= STEP_MIN else timedelta(0)
