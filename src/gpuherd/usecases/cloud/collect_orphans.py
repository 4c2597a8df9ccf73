"""Keep the ledger of orphans, and remove surplus machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal

import structlog

from gpuherd.contract.wire_models import usd
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.observation import ListRecord, SettlingPolicy, is_proven_absent
from gpuherd.domain.cloud.orphan import (
    COLLECTOR,
    LEAVING_PHASES,
    MachineRecords,
    Orphan,
    OrphanEnding,
    OrphanOrder,
    OrphanVerdict,
    brake,
    is_confirmed,
    is_due,
    is_fulfilled,
    judge_machine,
    with_order,
    without_order,
)
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    MachineGone,
    StaleWrite,
)
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance_event import ACCOUNT, Event
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.event_port import AccountEvent
from gpuherd.ports.instance_port import Instances
from gpuherd.ports.observation_port import LedgerWrite, OrphanCandidate, Orphans
from gpuherd.ports.replica_port import Flags
from gpuherd.ports.webhook_port import OutboxEntries
from gpuherd.usecases.cloud.guard_creates import INSTALLATION_SHARED, InstallationAlarm
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, PriceList, price_list
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline
from gpuherd.usecases.service.leader_election import AlwaysLeader, Leadership
from gpuherd.usecases.views.service_view import describe_notice

log = structlog.get_logger()


# So many new lines are written in one transaction.
NEW_LINES_BATCH = 200


# So many machines that the lists miss are asked for at one look.
ABSENCE_CHECKS_MAX = 10


@dataclass(frozen=True, kw_only=True)
class UpdateOrphanLedger:
    """Brings the ledger up to date with a list; the records are read after it."""

    orphans: Orphans
    instances: Instances
    cloud: Cloud
    catalogue: CatalogueCache
    orphan_events: OrphanEvents
    alarm: InstallationAlarm
    clock: Clock
    settling: SettlingPolicy
    installation: str

    async def __call__(self, record: ListRecord) -> tuple[Orphan, ...]:
        """Return the lines that were open before and whose machine this list shows."""
        # guard: the ledger goes by the records as they are now
        candidates = await self.orphans.candidates()
        if not candidates:
            return ()
        prices = await price_list(self.catalogue)
        await self._open(candidates, record, prices)
        known = [it for it in candidates if it.orphan is not None and it.orphan.is_open]
        await self._close([it for it in known if not _is_listed(it)])
        judged = [self._judged(it, record, prices) for it in known if _is_listed(it)]
        written = [it if before == it else await self.write(it) for before, it in judged]
        return tuple(it for it in written if it is not None and it.is_open)

    async def write(self, it: Orphan) -> Orphan | None:
        """Write a line; None if somebody else changed it first: then the next list decides anew."""
        try:
            await self.orphans.save([LedgerWrite(it)])
        except StaleWrite:
            return None
        return replace(it, version=it.version + 1)

    async def _open(
        self, candidates: Sequence[OrphanCandidate], record: ListRecord, prices: PriceList
    ) -> None:
        entries = [
            await self._alarmed(it, candidate)
            for candidate in candidates
            if (it := self._new_entry(candidate, record, prices)) is not None
        ]
        # An event on an instance may lose against the instance's own pass, and must not take others along.
        alone = [[it] for it in entries if it.change is not None]
        together = [it for it in entries if it.change is None]
        batches = [
            together[start : start + NEW_LINES_BATCH] for start in range(0, len(together), NEW_LINES_BATCH)
        ]
        for batch in (*alone, *batches):
            try:
                await self.orphans.save(batch)
            except StaleWrite:
                # The next list is seconds away, and shows it again.
                continue
            for it in batch:
                self.orphan_events.log(it.orphan)

    def _new_entry(
        self, candidate: OrphanCandidate, record: ListRecord, prices: PriceList
    ) -> LedgerWrite | None:
        seen, known = candidate.sighting, candidate.orphan
        if (known is not None and known.is_open) or seen is None or seen.machine.phase in LEAVING_PHASES:
            return None
        finding = judge_machine(
            seen.machine, candidate.records, self.installation, seen.first_seen_at, self.settling
        )
        if finding is None:
            return None
        orphan = Orphan(
            machine=seen.machine,
            finding=finding,
            first_seen_at=record.finished_at,
            judged_at=record.finished_at,
            gpus_usd=_gpus_price(candidate, prices),
            disk_usd=prices.disk.hourly_usd(seen.machine.disk_gb),
            changed_at=seen.changed_at,
            version=known.version if known else 0,
        )
        return self.orphan_events.detected(orphan, candidate.records)

    async def _alarmed(self, entry: LedgerWrite, candidate: OrphanCandidate) -> LedgerWrite:
        """Raise the alarm if a new line is of a machine that a second database must have made."""
        if entry.orphan.verdict is not OrphanVerdict.UNRECORDED or candidate.orphan is not None:
            return entry
        named = candidate.records.named
        attempts = () if named is None else await self.instances.attempts(named.id)
        # guard: a second user of our id raises the alarm
        if not await self.alarm.is_proof(entry.orphan.machine, attempts):
            return entry
        # Before the line is written: should we die in between, the next list raises it again.
        return self.orphan_events.with_alarm(entry, await self.alarm.raise_for(entry.orphan.machine))

    def _judged(
        self, candidate: OrphanCandidate, record: ListRecord, prices: PriceList
    ) -> tuple[Orphan, Orphan]:
        """Return an open line as it was, and as this list and the records show it."""
        known = candidate.orphan
        assert known is not None, "only known lines are judged anew"
        finding = judge_machine(
            known.machine, candidate.records, self.installation, known.first_seen_at, self.settling
        )
        if finding is None:
            return known, self._ended(known, OrphanEnding.CLAIMED)
        it = replace(known, finding=finding)
        if finding.verdict is not known.verdict:
            it = replace(it, judged_at=record.finished_at, confirmed_at=None)
            # Ours was made for another verdict; a person's stands.
            it = without_order(it) if it.ordered_by == COLLECTOR else it
        elif it.confirmed_at is None and is_confirmed(it.judged_at, record.started_at, self.settling):
            it = replace(it, confirmed_at=record.finished_at)
        it = replace(it, disk_usd=prices.disk.hourly_usd(it.machine.disk_gb))
        if it.gpus_usd is None:
            it = replace(it, gpus_usd=_gpus_price(candidate, prices))
        return known, without_order(it) if is_fulfilled(it) else it

    async def _close(self, missing: Sequence[OrphanCandidate]) -> None:
        questions = 0
        for candidate in missing:
            known, seen = candidate.orphan, candidate.sighting
            assert known is not None, "only known lines are closed"
            if seen is not None and not is_proven_absent(seen, None, (), self.settling):
                continue
            # What shall be removed is gone when the cloud says so, too. Of others the lists' word is enough:
            # should one show again, it is opened again.
            if seen is None or known.order is not None or known.verdict is OrphanVerdict.SURPLUS:
                questions += 1
                if questions > ABSENCE_CHECKS_MAX or not await self._is_confirmed_gone(known.cloud_id):
                    continue
            await self.write(self._ended(known, OrphanEnding.GONE))

    async def _is_confirmed_gone(self, cloud_id: str) -> bool:
        try:
            return (await self.cloud.get_machine(cloud_id)).phase is Phase.ABSENT
        except MachineGone:
            return True
        except CloudError:
            return False

    def _ended(self, it: Orphan, how: OrphanEnding) -> Orphan:
        log.info("orphan.ended", cloud_id=it.cloud_id, ending=how.value, order=it.order)
        return replace(it, gone_at=self.clock.now(), ending=how)


def _is_listed(candidate: OrphanCandidate) -> bool:
    seen = candidate.sighting
    return seen is not None and seen.missing_since is None and seen.machine.phase is not Phase.ABSENT


def _gpus_price(candidate: OrphanCandidate, prices: PriceList) -> Decimal | None:
    """Return what its GPUs cost while it runs: what we agreed to pay, or else today's price."""
    attempt, seen = candidate.records.attempt, candidate.sighting
    if seen is None:
        return None
    if attempt is not None:
        return attempt.gpu_hourly_usd * max(seen.machine.gpu_num, 1)
    return prices.gpus_hourly_usd(seen.machine)


COLLECTOR_BRAKED = "collector_braked"
CLOSED_LINES_RETENTION = timedelta(days=30)


@dataclass(kw_only=True)
class CollectOrphans:
    """Runs every few seconds; acts once on each list, and only while the cloud answers well."""

    orphans: Orphans
    update_ledger: UpdateOrphanLedger
    execute_order: ExecuteOrphanOrder
    flags: Flags
    clock: Clock
    settling: SettlingPolicy
    latest_list: Callable[[], ListRecord | None]
    breaker_state: Callable[[], str]
    # False: surplus machines are reported like all others, and wait for an order.
    auto_delete: bool = True
    leadership: Leadership = field(default_factory=AlwaysLeader)
    _handled: ListRecord | None = field(default=None, init=False)

    async def tick(self) -> bool:
        """Collect if there is a new list to go by; tell whether that was so."""
        record = self.latest_list()
        if record is None or record is self._handled or not self.leadership.is_leader():
            return False
        self._handled = record
        # guard: nothing is collected by a list that is not believed
        # guard: nothing is collected while the cloud is in trouble
        if not record.believable or self.breaker_state() != "CLOSED":
            return False
        lines = await self.update_ledger(record)
        await self._execute_orders(await self._order_surplus(lines))
        return True

    async def resume(self, actor: str, audit_record: AuditRecord | None = None) -> tuple[Orphan, ...]:
        """Release the brake; what it held back is now ordered by whoever looked at it, and returned."""
        if await self.flags.get(COLLECTOR_BRAKED) is None:
            return ()
        # Whichever replica was asked: the ledger takes no word from one that is not on duty.
        async with self.leadership.acquired():
            deletable = (
                [it for it in await self.orphans.open() if _is_ready_to_delete(it)]
                if self.auto_delete
                else []
            )
            now = self.clock.now()
            orders = [with_order(it, OrphanOrder.DELETE, actor, now) for it in deletable]
            released = [await self.update_ledger.write(it) for it in orders]
            await self.flags.put(COLLECTOR_BRAKED, None, audit_record)
        return tuple(it for it in released if it is not None)

    async def forget(self) -> int:
        """Drop lines that ended long ago; return how many."""
        return await self.orphans.forget(self.clock.now() - CLOSED_LINES_RETENTION)

    async def _order_surplus(self, lines: Sequence[Orphan]) -> Sequence[Orphan]:
        """Order the removal of what is surplus for sure; return the lines whose orders may be carried out."""
        by_people = [it for it in lines if it.order is not None and it.ordered_by != COLLECTOR]
        deletable = [it for it in lines if _is_ready_to_delete(it)]
        if not self.auto_delete or await self._is_braked(len(deletable)):
            return by_people
        now = self.clock.now()
        fresh = [
            await self.update_ledger.write(with_order(it, OrphanOrder.DELETE, COLLECTOR, now))
            for it in deletable
        ]
        going_on = [it for it in lines if it.order is not None and it.ordered_by == COLLECTOR]
        return [*by_people, *going_on, *(it for it in fresh if it is not None)]

    async def _is_braked(self, due: int) -> bool:
        """Return True if nothing may be removed by itself, pulling the brake if `due` would be too many."""
        # guard: the alarm stops the collector
        if await self.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED) is not None:
            return True
        if due == 0:
            return False
        since = self.clock.now() - self.settling.collection_cycle
        lately = await self.orphans.ordered_since(since, COLLECTOR)
        reason = brake(due, lately, await self.orphans.live_instances())
        if reason is None:
            return False
        await self.flags.put(COLLECTOR_BRAKED, reason)
        log.error("collector.braked", reason=reason)
        return True

    async def _execute_orders(self, lines: Sequence[Orphan]) -> None:
        for it in lines:
            try:
                await self.execute_order(it)
            except CloudUnavailable as error:
                log.info("collector.cloud_unavailable", code=error.code, reason=error.message)
                return


def _is_ready_to_delete(it: Orphan) -> bool:
    """Return True if a line is of a surplus machine that was seen twice."""
    surplus = it.verdict is OrphanVerdict.SURPLUS and it.confirmed_at is not None
    return surplus and it.order is None and it.machine.phase not in LEAVING_PHASES


@dataclass(frozen=True)
class ExecuteOrphanOrder:
    """One request at a time for each machine, whoever else has the same in mind."""

    orphans: Orphans
    cloud: Cloud
    clock: Clock

    async def __call__(self, it: Orphan) -> Orphan:
        """Ask if it is time to, and return the orphan as it is then; `CloudUnavailable`: ask again later."""
        now, decided_s = self.clock.now(), self.clock.boottime()
        if not is_due(it, now):
            return it
        # Written first: the ledger refuses when an instance has got the machine meanwhile.
        asked = await self.orphans.begin_order(replace(it, asked_at=now, tries=it.tries + 1, error=""))
        if asked is None:
            return it
        call = self.cloud.delete_machine if it.order is OrphanOrder.DELETE else self.cloud.stop_machine
        try:
            check_send_deadline(self.clock, decided_s)
            await call(it.cloud_id, decided_s + SEND_WITHIN_S)
        except CloudUnavailable as error:
            # Surely nothing happened, so the wait need not begin anew.
            await self._remember(replace(asked, asked_at=it.asked_at, tries=it.tries, error=error.message))
            raise
        except CloudError as error:
            log.warning("orphan.order_not_confirmed", cloud_id=it.cloud_id, order=it.order, code=error.code)
            return await self._remember(replace(asked, error=error.message))
        log.info("orphan.asked", cloud_id=it.cloud_id, order=it.order, by=it.ordered_by, tries=asked.tries)
        return asked

    async def _remember(self, it: Orphan) -> Orphan:
        try:
            await self.orphans.save([LedgerWrite(it)])
        except StaleWrite:
            return it
        return replace(it, version=it.version + 1)


@dataclass(frozen=True)
class OrphanEvents:
    """Makes the entries of new lines."""

    event_recorder: EventRecorder
    clock: Clock

    def detected(self, orphan: Orphan, records: MachineRecords) -> LedgerWrite:
        """Return a new line with the event that tells of it."""
        reason, details = orphan.finding.reason, describe_notice(orphan).model_dump(mode="json")
        instance = records.bound or records.named
        if instance is not None and orphan.finding.instance_id == instance.id:
            new_event = NewEvent(instance_event.ORPHAN_DETECTED, reason, details)
            return LedgerWrite(orphan, change=self.event_recorder.change(instance, new_event))
        told = Event(
            ACCOUNT, 0, instance_event.ORPHAN_DETECTED, self.clock.now(), reason=reason, details=details
        )
        return LedgerWrite(orphan, account=(self._account_event(told),))

    def with_alarm(self, entry: LedgerWrite, reason: str) -> LedgerWrite:
        """Return a new line that also tells that its machine has raised the installation alarm."""
        details = {"cloudInstanceId": entry.orphan.cloud_id}
        told = Event(
            ACCOUNT, 0, instance_event.INSTALLATION_SHARED, self.clock.now(), reason=reason, details=details
        )
        return replace(entry, account=(*entry.account, AccountEvent(told, lambda _: OutboxEntries())))

    def _account_event(self, told: Event) -> AccountEvent:
        return AccountEvent(told, self.event_recorder.account_outbox_entries)

    def log(self, orphan: Orphan) -> None:
        """Say once that a machine was found that nobody asked for."""
        note = log.info if orphan.verdict is OrphanVerdict.FOREIGN else log.warning
        note(
            "orphan.detected",
            cloud_id=orphan.cloud_id,
            verdict=orphan.verdict.value,
            instance_id=orphan.finding.instance_id,
            hourly_usd=usd(orphan.hourly_usd),
        )
