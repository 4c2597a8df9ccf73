"""List the account, judge the list, record it, and wake the instances it concerns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.cloud.observation import (
    ListRecord,
    ObservedMachine,
    SettlingPolicy,
    Witness,
    diff_listing,
    judge_witness,
)
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    LeadershipLost,
    MachineGone,
)
from gpuherd.domain.trace_spans import Trace
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.job_port import Jobs
from gpuherd.ports.observation_port import Observations
from gpuherd.ports.replica_port import Flags
from gpuherd.ports.telemetry_port import NullTracer, Tracer
from gpuherd.usecases.cloud.guard_creates import AccountGuard, VanishingBrake
from gpuherd.usecases.money.meter_costs import MeterMemory
from gpuherd.usecases.service.leader_election import AlwaysLeader, Leadership, StoreHistory
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.services import Services

log = structlog.get_logger()
FORGET_AFTER = timedelta(days=1)


# What we know counts as fresh for so many poll intervals, and never for less than this.
FRESH_INTERVALS = 3


FRESH_MIN_S = 90.0


# What is remembered of the store is compared with it this often: rows may vanish without a word.
KNOWN_RECHECK_S = 300.0


# So often a look that another replica has cut short is begun anew.
SYNC_TRIES_MAX = 3


# After so many lists in a row that could not be had, what we know counts as out of date.
FAILED_LISTS_STALE = 2


# So many machines vouch for a list.
WITNESSES_MAX = 20
# So many of them are asked for one by one when a list shows none.
WITNESS_CHECKS_MAX = 3
CLOUD_ERROR_FLAG = "cloud_trouble"


# Up while the last lists could not be had, so that all replicas call what they know out of date.
LISTS_FAILING_FLAG = "lists_failing"


@dataclass(frozen=True)
class ListResult:
    """One list, what it is worth, and how many machines it showed in a new light."""

    listing: Listing
    record: ListRecord
    changed: int


@dataclass(kw_only=True)
class ObserveCloud:
    """Lists the account. One process at a time does this, because each list is compared with the last.

    Of several replicas the leader lists, and the others follow its lists.
    """

    cloud: Cloud
    observations: Observations
    jobs: Jobs
    job_factory: JobFactory
    clock: Clock
    settling: SettlingPolicy
    # How long a list stays good while nothing moves.
    poll_interval: timedelta
    account: AccountGuard
    vanishing: VanishingBrake
    metering: MeterMemory
    breaker_state: Callable[[], str] = lambda: "CLOSED"
    # Reports when the store has lost data that was saved here.
    history: StoreHistory
    leadership: Leadership = field(default_factory=AlwaysLeader)
    # Replicas share the errors of the cloud here. None for a process without replicas.
    flags: Flags | None = None
    tracer: Tracer = field(default_factory=NullTracer)
    # The last list that was written down here.
    latest: ListRecord | None = field(default=None, init=False)
    # The code of what was wrong with the cloud when it was asked last, or nothing.
    error_code: str = field(default="", init=False)
    # The last list that was in the store when this process began; None until it was looked up.
    _first_list_id: int | None = field(default=None, init=False)
    _has_listed: bool = field(default=False, init=False)
    _known: dict[str, ObservedMachine] | None = field(default=None, init=False)
    # The term in which that was read or written.
    _known_token: int = field(default=0, init=False)
    _known_since_s: float = field(default=0.0, init=False)
    # Counts how often everything was forgotten.
    _generation: int = field(default=0, init=False)
    _listed_at_s: float | None = field(default=None, init=False)
    # When the last list that was written down here was made.
    _known_at_s: float | None = field(default=None, init=False)
    # When we last listed to see whose account it is, while another replica looks.
    _examined_at_s: float | None = field(default=None, init=False)
    # How many lists in a row have failed.
    _failed_lists: int = field(default=0, init=False)
    # The last report to the other replicas: the error code, and True if the lists fail.
    _published: tuple[str, bool] | None = field(default=None, init=False)
    # A list that was requested and has not begun yet. All callers until then wait for the same list.
    _next_sync: asyncio.Future[ListResult] | None = field(default=None, init=False)
    _list_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self.history.subscribe(self.forget)

    def forget(self) -> None:
        """Forget everything, because the store has lost data: a new list comes before the next rental."""
        self._generation += 1
        self.metering.forget()
        self._first_list_id = None
        # guard: after a loss of the store the account is seen before anything is rented
        self._has_listed = False
        # guard: what was seen is read anew after a loss of the store
        self._known = None
        self._listed_at_s = None
        self._known_at_s = None
        self._published = None
        self.latest = None

    async def begin(self) -> None:
        """Note which lists were made before this process began."""
        await self._read_last_list()

    async def has_listed(self) -> bool:
        """Return True if a believable list was made since this process began, by us or by another replica.

        Our own memory may be older than the cloud's: somebody may have put an old database back.
        """
        if not self._has_listed:
            await self._read_last_list()
        return self._has_listed

    def is_stale(self) -> bool:
        """Return True if the cloud could not be asked lately, so that what we know may be out of date."""
        if self._failed_lists >= FAILED_LISTS_STALE or self.breaker_state() != "CLOSED":
            return True
        if self._listed_at_s is None:
            # Just started is not the same as unable to ask.
            return False
        age_s = self.clock.boottime() - self._listed_at_s
        return age_s > FRESH_MIN_S and age_s > FRESH_INTERVALS * self.poll_interval.total_seconds()

    def recent_listing(self, max_age_s: float) -> tuple[Listing, float] | None:
        """Return the account as our own last list showed it, and its age; None if it is older than that."""
        if self._known is None or self.latest is None or self._known_at_s is None or self.error_code:
            return None
        age_s = self.clock.boottime() - self._known_at_s
        if age_s >= max_age_s:
            return None
        # What is known is what the list showed, machine by machine: no copy of it need be kept.
        machines = tuple(it.machine for it in self._known.values() if it.missing_since is None)
        latest = self.latest
        return Listing(machines, latest.complete, latest.started_at, latest.finished_at), age_s

    async def tick(self) -> bool:
        """List if this process leads and a list is due. Return True if a list was made."""
        await self.account.renew_report()
        # guard: only the one on duty looks
        if not self.leadership.is_leader():
            await self._follow_leader()
            await self._confirm_account()
            return False
        since_s = None if self._listed_at_s is None else self.clock.boottime() - self._listed_at_s
        due = since_s is None or since_s >= self.poll_interval.total_seconds()
        # After a loss, renting waits for lists.
        due = due or self.history.is_recent(self.settling.settle_without_witness)
        if not due and not await self.observations.any_unsettled():
            return False
        return await self.look()

    async def _confirm_account(self) -> None:
        """Check if our key belongs to the right account, while another replica makes the lists."""
        if await self.account.is_confirmed():
            return
        now_s, last_s = self.clock.boottime(), self._examined_at_s
        if last_s is not None and now_s - last_s < self.poll_interval.total_seconds():
            return
        self._examined_at_s = now_s
        with contextlib.suppress(CloudError):
            await self.account.examine(await self.cloud.list_machines())

    async def look(self) -> bool:
        """Make one list and act on it. Return True if the cloud answered and the list was recorded."""
        try:
            async with self._list_lock:
                await self._look()
        except CloudError as error:
            # An outage is not news about any machine: keep what we know, and try again.
            await self._publish_error(error.code)
            log.warning("observer.cannot_list", code=error.code, reason=error.message)
            return False
        except LeadershipLost:
            log.warning("observer.leadership_lost")
            return False
        return True

    async def sync(self) -> ListResult:
        """Make one list now and act on it; `CloudError` if there was none, and nothing has changed then.

        However many ask, at most one list waits for its turn (single-flight): they all get that one.
        """
        if self._next_sync is None:
            self._next_sync = asyncio.ensure_future(self._sync())
            # Marks an error as seen, should nobody be waiting any more.
            self._next_sync.add_done_callback(lambda it: it.cancelled() or it.exception())
        return await asyncio.shield(self._next_sync)

    async def _sync(self) -> ListResult:
        # One after the other, each with its comparison: of two lists that overlap none is the newer.
        async with self._list_lock:
            # It begins: who asks from now on wants to see what happens after that.
            self._next_sync = None
            try:
                return await self._look_until_leader()
            except CloudError as error:
                await self._publish_error(error.code)
                raise

    async def _look_until_leader(self) -> ListResult:
        for _ in range(SYNC_TRIES_MAX - 1):
            with contextlib.suppress(LeadershipLost):
                return await self._look_as_leader()
        return await self._look_as_leader()

    async def _look_as_leader(self) -> ListResult:
        async with self.leadership.acquired():
            return await self._look()

    async def _look(self) -> ListResult:
        """Make one list and write it down.

        `LeadershipLost` if another replica has begun to look meanwhile.
        """
        with self.tracer.work("look", Trace()) as span:
            look = await self._list()
            span.note("gpuherd.machines", len(look.listing.machines))
            span.note("gpuherd.changed", look.changed)
            return look

    async def _list(self) -> ListResult:
        known = await self._load_known()
        begun = self.metering.read_clocks()
        try:
            listing = await self.cloud.list_machines()
        except CloudError:
            self._failed_lists += 1
            raise
        self._failed_lists = 0
        read = self.metering.read_clocks()
        await self._publish_error("")
        listed_at_s = self.clock.boottime()
        look = await self._record_list(listing, known, begun, read)
        if self._known is known:
            # Only what is written down counts as known.
            self._listed_at_s = listed_at_s
            # Of an account that is not confirmed nothing is written down, so nobody can be shown its list.
            self._known_at_s = listed_at_s if self.account.confirmed else None
        return look

    async def _publish_error(self, error_code: str) -> None:
        """Publish to all replicas what is wrong with the cloud, if anything is."""
        self.error_code = error_code
        failing = self._failed_lists >= FAILED_LISTS_STALE
        report = error_code, failing
        if self.flags is not None and self._published != report:
            await self.flags.put(CLOUD_ERROR_FLAG, error_code or None)
            await self.flags.put(LISTS_FAILING_FLAG, error_code if failing else None)
            self._published = report

    async def _follow_leader(self) -> None:
        """Learn from the leader's lists."""
        await self._read_last_list()
        if self.flags is not None:
            self.error_code = await self.flags.get(CLOUD_ERROR_FLAG) or ""
            # How often we have heard of it says nothing: one list may fail.
            failing = await self.flags.get(LISTS_FAILING_FLAG) is not None
            self._failed_lists = FAILED_LISTS_STALE if failing else 0
            self._published = None

    async def _read_last_list(self) -> None:
        """Take note of the last list, which another replica may have made."""
        generation = self._generation
        last = await self.observations.last_list()
        if generation == self._generation:
            self._note_list(last)

    def _note_list(self, last: ListRecord | None) -> None:
        if self._first_list_id is None:
            self._first_list_id = 0 if last is None else last.id
        # By number, not by time: a clock that was set back would make an earlier process's list a new one.
        # guard: an earlier process's list is no look of ours, whatever the clock says
        if last is None or last.id <= self._first_list_id:
            return
        age_s = max(0.0, (self.clock.now() - last.finished_at).total_seconds())
        self._listed_at_s = max(self._listed_at_s or 0.0, self.clock.boottime() - age_s)
        self._has_listed = self._has_listed or last.believable

    async def _record_list(
        self, listing: Listing, known: dict[str, ObservedMachine], begun: ClockReading, read: ClockReading
    ) -> ListResult:
        """Record what a list changes in what was known, and wake the jobs that it concerns."""
        # guard: a list of an account that is not confirmed proves nothing
        is_ours = await self.account.examine(listing)
        # guard: a clock that was set while another account was shown is noticed
        record = ListRecord(
            started_at=listing.started_at,
            finished_at=listing.finished_at,
            complete=listing.complete,
            witness=await self._judge_list(listing) if is_ours else Witness.MISSING,
            machines=len(listing.machines),
            reading=read,
        )
        # What is on the account of somebody else is not written down: it would be known the next time.
        changed = diff_listing(known, listing, record, self.settling) if is_ours else []
        # guard: the brake on vanishing
        # guard: the brake on vanishing, in a storm
        if record.believable and await self.vanishing.holds(changed, known, listing):
            record = replace(record, witness=Witness.MISSING)
            changed = diff_listing(known, listing, record, self.settling)
        forgotten = self._forgettable(known, record)
        took = read.uptime - begun.uptime
        # Our own clock may have been set whatever account is shown.
        metering = await self.metering.prepare(known, listing if is_ours else None, record, changed, took)
        # guard: a term that ended and came back is another one
        if self.leadership.fencing_token != self._known_token:
            # The duty was lost and has come back: what was compared is not what is known by now.
            raise LeadershipLost("another replica has looked meanwhile")
        # guard: a look that is older than a loss of the store is not written down
        if self._known is not known:
            raise LeadershipLost("the store has lost something meanwhile")
        concerned = await self.observations.record(record, changed, forgotten, metering)
        for sighting in changed:
            known[sighting.machine.cloud_id] = sighting
        for cloud_id in forgotten:
            del known[cloud_id]
        if self._known is known:
            self.metering.note_recorded(record, changed, metering)
            self.latest = record
            self._has_listed = self._has_listed or record.believable
        if concerned:
            await self.jobs.wake_or_enqueue(
                [self.job_factory.reconcile_job(instance) for instance in concerned]
            )
        if not record.believable:
            log.warning("observer.list_not_credible", complete=record.complete, witness=record.witness.value)
        return ListResult(listing, record, len(changed))

    async def _judge_list(self, listing: Listing) -> Witness:
        """Return what a list is worth, by machines that were there for long: an honest list shows them.

        If a list contradicts these witnesses, gpuherd asks the cloud for each of them.
        """
        # Read after the list was made: a witness that we learn of later cannot be held against it.
        witnesses = await self.observations.witnesses(
            listing.started_at - self.settling.witness_age, WITNESSES_MAX
        )
        worth = judge_witness(witnesses, (machine.cloud_id for machine in listing.machines))
        if worth is Witness.MISSING and all(
            [await self._is_gone(cloud_id) for cloud_id in list(witnesses)[:WITNESS_CHECKS_MAX]]
        ):
            # They really are gone, so the list may be honest; but no machine vouches for it any more.
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

    async def _load_known(self) -> dict[str, ObservedMachine]:
        fencing_token = self.leadership.fencing_token
        if self._known is not None and self._known_token == fencing_token:
            await self._check_store(self._known)
        if self._known is None or self._known_token != fencing_token:
            generation = self._generation
            known = dict(await self.observations.all_known())
            await self.metering.load(known)
            if generation != self._generation:
                raise LeadershipLost("the store has lost something meanwhile")
            self._known, self._known_token = known, fencing_token
            self._known_since_s = self.clock.boottime()
        return self._known

    async def _check_store(self, known: dict[str, ObservedMachine]) -> None:
        """See that the store has what we wrote there: rows may vanish without a word."""
        ours = self.latest
        last = await self.observations.last_list()
        if ours is None or ours is not self.latest:
            return
        if last != ours:
            # A later one is of a replica that has taken our duty, and the fence will tell.
            if last is None or last.finished_at < ours.finished_at:
                self.history.declare_lost("the last list that was written down is gone")
            return
        if self.clock.boottime() - self._known_since_s < KNOWN_RECHECK_S:
            return
        self._known_since_s = self.clock.boottime()
        if await self.observations.all_known() != known and self._known is known:
            self.history.declare_lost("what the lists have shown is not what is written down")

    def _forgettable(self, known: Mapping[str, ObservedMachine], record: ListRecord) -> list[str]:
        oldest = record.finished_at - FORGET_AFTER
        return [
            cloud_id
            for cloud_id, it in known.items()
            # What is held back by the brake on vanishing is missing, but not believed lost.
            if it.missing_since is not None and it.missing_since < oldest and it.missing_lists >= 2
        ]


async def sync_cloud(services: Services) -> ListResult:
    """List now, out of turn. `CloudUnavailable` if the cloud cannot be asked, for whatever reason."""
    try:
        made = await services.observer.sync()
    except CloudUnavailable:
        raise
    except LeadershipLost as error:
        raise CloudUnavailable(f"{error.message}; ask again", retry_after_s=1.0) from error
    except CloudError as error:
        raise CloudUnavailable(error.message, code=error.code) from error
    services.comprehensive_cache.forget()
    return made
