"""Prepare a list for the meters, and meter volumes."""

from __future__ import annotations

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import structlog

from gpuherd.domain.clock_reading import ClockReading, find_seam
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.cloud.network_volume import VolumeLook, read_volumes, subject_of_volume
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine, Witness
from gpuherd.domain.errors import CloudError, StaleWrite, StoreUnavailable
from gpuherd.domain.instance.rent_attempt import machine_tag, owner_tag
from gpuherd.domain.money.bill import StorageVolume
from gpuherd.domain.money.meter import Metering, MeterState
from gpuherd.domain.money.meter_reading import (
    NO_RATE,
    ListTimes,
    PriceKey,
    Tariff,
)
from gpuherd.domain.money.span_rules import GPU_PAID
from gpuherd.domain.money.usage_span import CostKind
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.observation_port import Observations
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, price_list
from gpuherd.usecases.services import Services

log = structlog.get_logger()
BOOTING_OR_PAID = GPU_PAID | {Phase.CREATING}


# No list takes longer.
LIST_TIME_MAX = timedelta(minutes=5)


# At most so many machines from before the meter are metered with one list, the others with the next lists.
# All at once would hold the store longer than the leadership lasts.
FIRST_LOOKS_MAX = 2_000


BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass
class KnownPrices:
    """The prices of the catalogue, read only when a machine has no agreed price."""

    catalogue: CatalogueCache
    # All prices ever read: an old price is better than none.
    _known: dict[PriceKey, Decimal] = field(default_factory=dict, init=False)

    async def tariff(self, is_needed: bool) -> Tariff:
        """Return the tariff; read the prices again if they are needed."""
        if is_needed:
            self._known |= (await price_list(self.catalogue)).prices
        return Tariff(self._known, self.catalogue.disk)


@dataclass(kw_only=True)
class MeterMemory:
    """What the meters remember from list to list. The observer loads this from the store when it begins."""

    observations: Observations
    clock: Clock
    # The boot of the host: with the time since then, a clock step is detected across a restart.
    boot_id: str
    # Machines with a tag of this installation have an agreed price.
    installation: str
    tariff: Callable[[bool], Awaitable[Tariff]]
    _state: MeterState = field(default_factory=MeterState, init=False)
    # True if the last list may have changed the state.
    _is_stale: bool = field(default=True, init=False)
    _previous: ListRecord | None = field(default=None, init=False)
    # When the previous list was made, if the clock was set in the middle of it.
    _straddles: ListTimes | None = field(default=None, init=False)
    # The last list with a witness.
    _vouched: ListRecord | None = field(default=None, init=False)
    _last: ClockReading | None = field(default=None, init=False)
    # Machines from before the meter that were not listed since.
    _unmetered: set[str] = field(default_factory=set, init=False)
    # Machines that are not listed, but do not count as missing, because the clock was set back.
    _overlooked: set[str] = field(default_factory=set, init=False)
    # When a machine was last seen to change, by a clock that may have been ahead.
    _newest: datetime = field(default=BEGINNING, init=False)

    def forget(self) -> None:
        """Load the state again with the next list, because the store has lost commits."""
        self._is_stale = True

    async def load(self, known: Mapping[str, ObservedMachine]) -> None:
        """Read the state of the meters from the store."""
        self._is_stale = True
        self._straddles = None
        self._overlooked = set()
        self._previous = await self.observations.last_believable_list()
        self._vouched = await self.observations.last_vouched_list()
        last = await self.observations.last_list()
        self._last = None if last is None else last.reading
        unmetered = await self.observations.unmetered()
        # Machines that cost something and have no span: an older version has listed them last.
        self._unmetered = {it for it in unmetered if it in known and known[it].machine.phase in GPU_PAID}
        self._newest = max((it.changed_at for it in known.values()), default=BEGINNING)

    def read_clocks(self) -> ClockReading:
        return ClockReading(
            self.clock.now(), timedelta(seconds=round(self.clock.boottime(), 6)), self.boot_id
        )

    async def prepare(
        self,
        known: Mapping[str, ObservedMachine],
        listing: Listing | None,
        record: ListRecord,
        changed: Sequence[ObservedMachine],
        took: timedelta,
    ) -> Metering | None:
        """Return what the meters need to know about a list that took this long; None if nothing has changed.

        Without a `listing` (the list is of another account) this is only a step of the clock.
        """
        if self._is_stale:
            self._state = await self.observations.meter_state()
            self._is_stale = False
        state, reading = self._state, record.reading
        if reading is None:
            return None
        seam = find_seam(self._last, reading)
        is_vouched = record.witness is Witness.SEEN
        this = ListTimes(record.started_at, record.finished_at, is_vouched)
        if seam is not None:
            log.warning("meter.clock_step", seconds=round(seam.step.total_seconds(), 3))
            this = ListTimes(reading.at - took, reading.at, is_vouched)
        is_priced = listing is None or not (state.unpriced or self._needs_prices(known, changed))
        tariff = await self.tariff(not is_priced)
        also: tuple[ObservedMachine, ...] = ()
        if listing is not None:
            also = tuple(self._also(state, known, listing, record, changed, tariff))
        if not changed and not also and seam is None:
            return None
        first_look = frozenset[str]()
        if self._unmetered:
            listed = {it.machine.cloud_id for it in (*changed, *also) if it.missing_since is None}
            # guard: what ran before the ledger is metered from the first look
            first_look = frozenset(self._unmetered & listed)
        return Metering(
            before=known,
            previous=self._previous_times(reading),
            vouched_at=None if self._vouched is None else _times_by(reading, self._vouched).started_at,
            this=this,
            tariff=tariff,
            seam=seam,
            seams=state.seams,
            also=also,
            first_look=first_look,
            reading=reading,
        )

    def note_recorded(
        self, record: ListRecord, changed: Sequence[ObservedMachine], metering: Metering | None
    ) -> None:
        """Remember a list that was saved."""
        if record.reading is not None:
            self._last = record.reading
        if record.believable:
            self._previous = record
            self._straddles = None if metering is None or metering.seam is None else metering.this
            if record.witness is Witness.SEEN:
                self._vouched = record
        if metering is None:
            return
        self._unmetered.difference_update(it.machine.cloud_id for it in (*changed, *metering.also))
        self._overlooked.update(
            it.machine.cloud_id
            for it in metering.also
            if it.missing_since is not None and metering.before[it.machine.cloud_id].missing_since is None
        )
        self._newest = max([self._newest, *(it.changed_at for it in changed)])
        self._is_stale = True

    def _previous_times(self, reading: ClockReading) -> ListTimes | None:
        """Return when the last believable list was made, by the clock as it is now."""
        return None if self._previous is None else _times_by(reading, self._previous, self._straddles)

    def _also(
        self,
        state: MeterState,
        known: Mapping[str, ObservedMachine],
        listing: Listing,
        record: ListRecord,
        changed: Sequence[ObservedMachine],
        tariff: Tariff,
    ) -> Iterator[ObservedMachine]:
        """Yield the machines whose meter is to be read although nothing of them has changed."""
        overlooks = record.believable and record.started_at <= self._newest
        if not self._unmetered and not state.unclear and not state.unpriced and not overlooks:
            return
        listed = {it.cloud_id for it in listing.machines}
        self._overlooked -= listed
        changed_ids = {it.machine.cloud_id for it in changed}
        first_looks = 0
        for cloud_id, it in known.items():
            if cloud_id in changed_ids:
                continue
            # guard: a machine is not taken for seen by a list that does not show it, to give it its price
            if it.missing_since is None and cloud_id not in listed:
                # It was not seen, whatever else is to be read of it. After the clock was set back it does not
                # count as missing yet. Once: what was unclear before about its GPUs says nothing of its disk.
                # guard: what is overlooked after a step of the clock is put in doubt, disk and GPUs
                if overlooks and it.changed_at >= record.started_at and cloud_id not in self._overlooked:
                    yield replace(it, missing_since=record.finished_at, missing_lists=1)
            elif cloud_id in state.unpriced and tariff.gpu_rate(it.machine, None) is not NO_RATE:
                yield it
            elif it.missing_since is not None:
                continue
            elif cloud_id in self._unmetered:
                first_looks += 1
                if first_looks <= FIRST_LOOKS_MAX:
                    yield it
            elif cloud_id in state.unclear and it.machine.phase is not Phase.UNKNOWN:
                yield it

    def _needs_prices(self, known: Mapping[str, ObservedMachine], changed: Sequence[ObservedMachine]) -> bool:
        """Return True if a machine has no price that was agreed: it is not ours, or was started again."""
        for it in changed:
            before = known.get(it.machine.cloud_id)
            if before is None:
                if not self._is_ours(it.machine):
                    return True
            # guard: a machine that is not ours has its price as soon as it costs something
            elif it.machine.phase in GPU_PAID and (
                before.machine.phase not in BOOTING_OR_PAID
                or _has_other_ports(before.machine, it.machine)
                or (_begins_to_cost(before, it) and not self._is_ours(it.machine))
            ):
                return True
        return False

    def _is_ours(self, machine: Machine) -> bool:
        owner = owner_tag(machine)
        return owner is not None and owner.installation == self.installation


def _times_by(reading: ClockReading, it: ListRecord, straddles: ListTimes | None = None) -> ListTimes:
    """Return when a list was made, by the clock as it is now."""
    step = timedelta(0) if it.reading is None else it.reading.step_to(reading)
    times = straddles or ListTimes(it.started_at, it.finished_at)
    # A list in the middle of which the clock was set back, as a process before this one has left it.
    started_at = min(times.started_at, times.finished_at)
    if times.started_at > times.finished_at:
        started_at -= LIST_TIME_MAX
    return ListTimes(started_at + step, times.finished_at + step, it.witness is Witness.SEEN)


def _begins_to_cost(before: ObservedMachine, after: ObservedMachine) -> bool:
    """Return True if a machine that is paid for now was not, was taken for gone, or was another one."""
    is_other = machine_tag(before.machine) != machine_tag(after.machine)
    return before.machine.phase not in GPU_PAID or before.missing_since is not None or is_other


def _has_other_ports(before: Machine, after: Machine) -> bool:
    return bool(before.ports and after.ports) and before.ports != after.ports


VOLUMES_LOOKED_AT = "volumes_looked_at"


# Clocks are kept right by smaller steps than this.
STEP_MIN = timedelta(seconds=2)


@dataclass
class VolumeMeter:
    """What the meter of volumes remembers from list to list."""

    # Each list is compared with the one before.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # When the last list began, by the wall clock and since the boot of the host.
    last: tuple[datetime, float] | None = None


async def meter_volumes(services: Services) -> None:
    """List all volumes and meter them. The leader does this every few minutes."""
    await _list_volumes(services)


async def meter_volumes_now(services: Services, *, there: str = "", gone: str = "") -> None:
    """Meter the volumes after this process made or removed one, if it leads.

    A list that does not show the change yet is ignored. The next round makes up for a failure.
    """
    if not services.leadership.is_leader():
        return
    try:
        await _list_volumes(services, there, gone)
    except (StaleWrite, StoreUnavailable) as error:
        log.info("costs.volumes_not_written", code=error.code)


async def _list_volumes(services: Services, there: str = "", gone: str = "") -> None:
    async with services.volume_meter.lock:
        started_at, boottime = services.clock.now(), services.clock.boottime()
        try:
            listed = await services.billing.list_volumes()
        except CloudError as error:
            log.info("costs.volumes_unavailable", code=error.code)
            return
        ids = {it.volume_id for it in listed}
        if gone not in ids and (not there or there in ids):
            await _record_volumes(services, listed, started_at, boottime)


async def _record_volumes(
    services: Services, listed: Sequence[StorageVolume], started_at: datetime, boottime: float
) -> None:
    """Write down what a list has shown."""
    finished_at = services.clock.now()
    spans = await services.stores.metered_costs.open_spans(kind=CostKind.VOLUME)
    going_on = {it.span.cloud_id: it for it in spans}
    said = await services.stores.flags.get(VOLUMES_LOOKED_AT)
    previous = datetime.fromisoformat(said) if said else None
    step = _clock_step(services, previous, started_at, boottime)
    look = VolumeLook(previous, started_at, finished_at, step)
    changed = read_volumes({key: it.span for key, it in going_on.items()}, listed, look)
    volumes = {it.volume_id: it for it in listed}
    subjects = {
        it.cloud_id: going_on[it.cloud_id].subject
        if it.cloud_id in going_on
        else subject_of_volume(it.cloud_id, volumes.get(it.cloud_id), finished_at)
        for it in changed
    }
    await services.stores.metered_costs.write(changed, subjects, finished_at)
    # Last: should this be lost, the next edges are wider, and still true.
    await services.stores.flags.put(VOLUMES_LOOKED_AT, started_at.isoformat())
    services.volume_meter.last = (started_at, boottime)


def _clock_step(services: Services, previous: datetime | None, now: datetime, boottime: float) -> timedelta:
    """Return by how much the wall clock was set since the last list of this process."""
    last = services.volume_meter.last
    if last is None or last[0] != previous:
        return timedelta(0)
    step = (now - last[0]) - timedelta(seconds=boottime - last[1])
    return step if abs(step) >= STEP_MIN else timedelta(0)
