"""Instances whose changes are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuherd.adapters.metrics.metered_leases import meter_status
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.instances.store import SqlInstances
from gpuherd.clock import Clock
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.instances import Change, IdempotencyClaim
from gpuherd.ports.metrics import Meter


class MeteredInstances(SqlInstances):
    """Measures what changes outside of turns: somebody wants an instance started, stopped or deleted."""

    def __init__(
        self, database: Database, clock: Clock, announce: Callable[[Sequence[str]], None], meter: Meter
    ) -> None:
        super().__init__(database, clock, announce)
        self._meter = meter

    async def update(self, change: Change, claim: IdempotencyClaim | None = None) -> Instance:
        updated = await super().update(change, claim)
        meter_status(self._meter, change)
        return updated
