"""Observe: list the account's machines, write down what changed, and ring the instances that it concerns.

Watching N machines costs as many calls as the cloud has pages, however many turns wait for news.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import CloudError, DutyLost, MachineGone
from gpuherd.domain.machine import Listing
from gpuherd.domain.sighting import ListRecord, Patience, Sighting, Witness, compare, judge_witness
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.job_book import JobBook
from gpuherd.ports.store import Flags, Sightings
from gpuherd.usecases.activity import Activities
from gpuherd.usecases.duty import Duty, SoleDuty

log = structlog.get_logger()

WITNESSES = 20
# So many of them are asked for one by one when a list shows none.
ASKED = 3
FORGET_AFTER = timedelta(days=1)
# What we know counts as fresh for so many poll intervals, and never for less than this.
FRESH_INTERVALS = 3
FRESH_S = 90.0
# So often a look that another replica has cut short is begun anew.
LOOKS_MAX = 3
CLOUD_TROUBLE = "cloud_trouble"


@dataclass(frozen=True)
class Look:
    """One list, what it is worth, and how many machines it showed in a new light."""

    listing: Listing
    record: ListRecord
    changed: int


@dataclass
class ObserveCloud:
    """The one who looks. There must be only one at a time: it compares with what it saw before.

    Where there are several replicas, the one that has the duty looks, and the others learn from its lists.
    """

    cloud: Cloud
    sightings: Sightings
    jobs: JobBook
    activities: Activities
    clock: Clock
    patience: Patience
    # How long a list stays good while nothing moves.
    poll_interval: timedelta
    breaker_state: Callable[[], str] = lambda: "CLOSED"
    duty: Duty = field(default_factory=SoleDuty)
    # Where replicas tell each other what is wrong with the cloud; None of one who is alone.
    flags: Flags | None = None
    # The last list that was written down here.
    latest: ListRecord | None = field(default=None, init=False)
    # The code of what was wrong with the cloud when it was asked last, or nothing.
    trouble: str = field(default="", init=False)
    _begun_at: datetime = field(init=False)
    _has_looked: bool = field(default=False, init=False)
    _known: dict[str, Sighting] | None = field(default=None, init=False)
    # The term in which that was read or written.
    _known_in: int = field(default=0, init=False)
    _listed_at_s: float | None = field(default=None, init=False)
    _told: str | None = field(default=None, init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self._begun_at = self.clock.now()

    async def has_looked(self) -> bool:
        """Tell whether a believable list was made since this process began, by us or by another replica.

        Our own memory may be older than the cloud's: somebody may have put an old database back.
        """
        if not self._has_looked:
            self._learn(await self.sightings.last_list())
        return self._has_looked

    def is_stale(self) -> bool:
        """Tell whether the cloud could not be asked lately, so that what we know may be out of date."""
        if self._listed_at_s is None:
            # Just started is not the same as unable to ask.
            return self.breaker_state() != "CLOSED"
        fresh_s = max(FRESH_INTERVALS * self.poll_interval.total_seconds(), FRESH_S)
        return self.clock.monotonic() - self._listed_at_s > fresh_s

    async def tick(self) -> bool:
        """List if it is our duty and time to; tell whether a list was made."""
        if not self.duty.is_held():
            await self._follow()
            return False
        since_s = None if self._listed_at_s is None else self.clock.monotonic() - self._listed_at_s
        due = since_s is None or since_s >= self.poll_interval.total_seconds()
        if not due and not await self.sightings.anything_moves():
            return False
        return await self.look()

    async def look(self) -> bool:
        """Make one list and act on it; tell whether it worked."""
        try:
            async with self._looking:
                await self._look()
        except CloudError as error:
            # An outage is not news about any machine: keep what we know, and try again.
            await self._tell(error.code)
            log.warning("observer.cannot_list", code=error.code, reason=error.message)
            return False
        except DutyLost:
            log.warning("observer.overtaken")
            return False
        return True

    async def sync(self) -> Look:
        """Make one list now and act on it; `CloudError` if there was none, and nothing has changed then."""
        # One after the other, each with its comparison: of two lists that overlap none is the newer.
        async with self._looking:
            for _ in range(LOOKS_MAX - 1):
                with contextlib.suppress(DutyLost):
                    return await self._borrow_a_look()
            return await self._borrow_a_look()

    async def _borrow_a_look(self) -> Look:
        async with self.duty.borrowed():
            return await self._look()

    async def _look(self) -> Look:
        """Make one list and write it down; `DutyLost` if another replica has begun to look meanwhile."""
        known = await self._recall()
        listing = await self.cloud.list_machines()
        await self._tell("")
        listed_at_s = self.clock.monotonic()
        look = await self._take(listing, known)
        # Only what is written down counts as known.
        self._listed_at_s = listed_at_s
        return look

    async def _tell(self, trouble: str) -> None:
        """Say what is wrong with the cloud, if anything is, to the other replicas too."""
        self.trouble = trouble
        if self.flags is not None and self._told != trouble:
            await self.flags.put(CLOUD_TROUBLE, trouble or None)
            self._told = trouble

    async def _follow(self) -> None:
        """Learn from whoever looks for all of us."""
        self._learn(await self.sightings.last_list())
        if self.flags is not None:
            self.trouble = await self.flags.get(CLOUD_TROUBLE) or ""
            self._told = None

    def _learn(self, last: ListRecord | None) -> None:
        """Take note of a list that another replica may have made."""
        if last is None or last.started_at < self._begun_at:
            return
        age_s = max(0.0, (self.clock.now() - last.finished_at).total_seconds())
        self._listed_at_s = max(self._listed_at_s or 0.0, self.clock.monotonic() - age_s)
        self._has_looked = self._has_looked or last.believable

    async def _take(self, listing: Listing, known: dict[str, Sighting]) -> Look:
        """Write down what a list changes in what was known, and ring whom it concerns."""
        record = ListRecord(
            started_at=listing.started_at,
            finished_at=listing.finished_at,
            complete=listing.complete,
            witness=await self._worth_of(listing),
            machines=len(listing.machines),
        )
        changed = compare(known, listing, record, self.patience)
        forgotten = self._forgettable(known, record)
        if self.duty.fence != self._known_in:
            # The duty was lost and has come back: what was compared is not what is known by now.
            raise DutyLost("another replica has looked meanwhile")
        concerned = await self.sightings.record(record, changed, forgotten)
        for sighting in changed:
            known[sighting.machine.cloud_id] = sighting
        for cloud_id in forgotten:
            del known[cloud_id]
        self.latest = record
        self._has_looked = self._has_looked or record.believable
        if concerned:
            await self.jobs.ring([self.activities.turn(instance) for instance in concerned])
        if not record.believable:
            log.warning("observer.unbelievable_list", complete=record.complete, witness=record.witness.value)
        return Look(listing, record, len(changed))

    async def _worth_of(self, listing: Listing) -> Witness:
        """Tell what a list is worth; one that contradicts our witnesses is checked by asking for those."""
        # Read after the list was made: a witness that we learn of later cannot be held against it.
        witnesses = await self.sightings.witnesses(listing.started_at - self.patience.witness_age, WITNESSES)
        worth = judge_witness(witnesses, (machine.cloud_id for machine in listing.machines))
        if worth is Witness.MISSING and all([await self._is_gone(it) for it in list(witnesses)[:ASKED]]):
            # They really are gone, so the list may be honest; but nobody vouches for it any more.
            return Witness.NONE
        return worth

    async def _is_gone(self, cloud_id: str) -> bool:
        try:
            await self.cloud.get_machine(cloud_id)
        except MachineGone:
            return True
        except CloudError:
            return False
        return False

    async def _recall(self) -> dict[str, Sighting]:
        fence = self.duty.fence
        if self._known is None or self._known_in != fence:
            self._known, self._known_in = dict(await self.sightings.all_known()), fence
        return self._known

    def _forgettable(self, known: Mapping[str, Sighting], record: ListRecord) -> list[str]:
        oldest = record.finished_at - FORGET_AFTER
        return [
            cloud_id
            for cloud_id, it in known.items()
            if it.missing_since is not None and it.missing_since < oldest
        ]
