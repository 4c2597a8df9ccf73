"""Observe: list the account's machines, write down what changed, and ring the instances that it concerns.

Watching N machines costs as many calls as the cloud has pages, however many turns wait for news.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import CloudError
from gpuherd.domain.sighting import ListRecord, Patience, Sighting, compare, judge_witness
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.store import JobBook, Sightings
from gpuherd.usecases.activity import Activities

log = structlog.get_logger()

WITNESSES = 20
FORGET_AFTER = timedelta(days=1)


@dataclass
class ObserveCloud:
    """The one who looks. There must be only one at a time: it compares with what it saw before."""

    cloud: Cloud
    sightings: Sightings
    jobs: JobBook
    activities: Activities
    clock: Clock
    patience: Patience
    # How long a list stays good while nothing moves.
    poll_interval: timedelta
    _known: dict[str, Sighting] | None = field(default=None, init=False)
    _listed_at_s: float | None = field(default=None, init=False)

    async def tick(self) -> bool:
        """List if it is time to; tell whether a list was made."""
        since_s = None if self._listed_at_s is None else self.clock.monotonic() - self._listed_at_s
        due = since_s is None or since_s >= self.poll_interval.total_seconds()
        if not due and not await self.sightings.anything_moves():
            return False
        return await self.look()

    async def look(self) -> bool:
        """Make one list and act on it; tell whether it worked."""
        known = await self._recall()
        try:
            listing = await self.cloud.list_machines()
        except CloudError as error:
            # An outage is not news about any machine: keep what we know, and try again.
            log.warning("observer.cannot_list", code=error.code, reason=error.message)
            return False
        self._listed_at_s = self.clock.monotonic()
        # Witnesses are read after the list was made: one that we learn of later cannot be held against it.
        witnesses = await self.sightings.witnesses(listing.started_at - self.patience.witness_age, WITNESSES)
        record = ListRecord(
            started_at=listing.started_at,
            finished_at=listing.finished_at,
            complete=listing.complete,
            witness=judge_witness(witnesses, (machine.cloud_id for machine in listing.machines)),
            machines=len(listing.machines),
        )
        changed = compare(known, listing, record, self.patience)
        forgotten = self._forgettable(known, record)
        concerned = await self.sightings.record(record, changed, forgotten)
        for sighting in changed:
            known[sighting.machine.cloud_id] = sighting
        for cloud_id in forgotten:
            del known[cloud_id]
        if concerned:
            await self.jobs.ring([self.activities.turn(instance) for instance in concerned])
        if not record.believable:
            log.warning("observer.unbelievable_list", complete=record.complete, witness=record.witness.value)
        return True

    async def _recall(self) -> dict[str, Sighting]:
        if self._known is None:
            self._known = dict(await self.sightings.all_known())
        return self._known

    def _forgettable(self, known: Mapping[str, Sighting], record: ListRecord) -> list[str]:
        oldest = record.finished_at - FORGET_AFTER
        return [
            cloud_id
            for cloud_id, it in known.items()
            if it.missing_since is not None and it.missing_since < oldest
        ]
