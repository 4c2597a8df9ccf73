"""Keep the ledger of orphans, and remove surplus machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

import structlog

from gpuherd.contract.wire_models import usd
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.observation import ListRecord, is_proven_absent
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
from gpuherd.ports.event_port import AccountEvent
from gpuherd.ports.observation_port import LedgerWrite, OrphanCandidate, Orphans
from gpuherd.ports.webhook_port import OutboxEntries
from gpuherd.usecases.cloud.guard_creates import INSTALLATION_SHARED
from gpuherd.usecases.cloud.read_catalogue import PriceList, price_list
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.service_view import describe_notice

log = structlog.get_logger()


# So many new lines are written in one transaction.
NEW_LINES_BATCH = 200
# So many machines that the lists miss are asked for in one round.
ABSENCE_CHECKS_MAX = 10
COLLECTOR_BRAKED = "collector_braked"
CLOSED_LINES_RETENTION = timedelta(days=30)


@dataclass
class CollectorMemory:
    """The list that the collector acted on last: it acts once on each list."""

    handled: ListRecord | None = None


async def collect_orphans(services: Services) -> bool:
    """Act once on each list, while the cloud answers well. Return True if there was a new list to act on."""
    record, memory = services.observer.latest, services.collector_memory
    if record is None or record is memory.handled or not services.leadership.is_leader():
        return False
    memory.handled = record
    # guard: nothing is collected by a list that is not believed
    # guard: nothing is collected while the cloud is in trouble
    if not record.believable or services.breaker_state() != "CLOSED":
        return False
    lines = await _update_ledger(services, record)
    await _execute_orders(services, await _order_surplus(services, lines))
    return True


async def resume_collector(
    services: Services, actor: str, audit_record: AuditRecord | None = None
) -> tuple[Orphan, ...]:
    """Release the brake. Return what it held back: the actor now orders those removals."""
    if await services.stores.flags.get(COLLECTOR_BRAKED) is None:
        return ()
    # Whichever replica was asked: the ledger takes writes from the leader only.
    async with services.leadership.acquired():
        deletable = (
            [it for it in await services.stores.collector_orphans.open() if _is_ready_to_delete(it)]
            if services.rules.auto_delete
            else []
        )
        now = services.clock.now()
        orders = [with_order(it, OrphanOrder.DELETE, actor, now) for it in deletable]
        released = [await _write(services, it) for it in orders]
        await services.stores.flags.put(COLLECTOR_BRAKED, None, audit_record)
    return tuple(it for it in released if it is not None)


async def prune_orphans(services: Services) -> int:
    """Drop lines that ended long ago; return how many."""
    return await services.stores.collector_orphans.forget(services.clock.now() - CLOSED_LINES_RETENTION)


async def _order_surplus(services: Services, lines: Sequence[Orphan]) -> Sequence[Orphan]:
    """Order the removal of what is surplus for sure; return the lines whose orders may be carried out."""
    by_people = [it for it in lines if it.order is not None and it.ordered_by != COLLECTOR]
    deletable = [it for it in lines if _is_ready_to_delete(it)]
    if not services.rules.auto_delete or await _is_braked(services, len(deletable)):
        return by_people
    now = services.clock.now()
    fresh = [await _write(services, with_order(it, OrphanOrder.DELETE, COLLECTOR, now)) for it in deletable]
    going_on = [it for it in lines if it.order is not None and it.ordered_by == COLLECTOR]
    return [*by_people, *going_on, *(it for it in fresh if it is not None)]


async def _is_braked(services: Services, due: int) -> bool:
    """Return True if nothing may be removed by itself, pulling the brake if `due` would be too many."""
    # guard: the alarm stops the collector
    if await services.stores.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED) is not None:
        return True
    if due == 0:
        return False
    since = services.clock.now() - services.rules.settling.collection_cycle
    lately = await services.stores.collector_orphans.ordered_since(since, COLLECTOR)
    reason = brake(due, lately, await services.stores.collector_orphans.live_instances())
    if reason is None:
        return False
    await services.stores.flags.put(COLLECTOR_BRAKED, reason)
    log.error("collector.braked", reason=reason)
    return True


async def _execute_orders(services: Services, lines: Sequence[Orphan]) -> None:
    for it in lines:
        try:
            await execute_order(services, services.stores.collector_orphans, it)
        except CloudUnavailable as error:
            log.info("collector.cloud_unavailable", code=error.code, reason=error.message)
            return


def _is_ready_to_delete(it: Orphan) -> bool:
    """Return True if a line is of a surplus machine that was seen twice."""
    surplus = it.verdict is OrphanVerdict.SURPLUS and it.confirmed_at is not None
    return surplus and it.order is None and it.machine.phase not in LEAVING_PHASES


async def execute_order(services: Services, ledger: Orphans, orphan: Orphan) -> Orphan:
    """Send the stop or delete that is ordered, if it is due. Return the orphan as it is then.

    The ledger lets one request at a time go out for each machine. `CloudUnavailable`: ask again later.
    """
    now, decided_s = services.clock.now(), services.clock.boottime()
    if not is_due(orphan, now):
        return orphan
    # Written first: the ledger refuses when an instance has got the machine meanwhile.
    asked = await ledger.begin_order(replace(orphan, asked_at=now, tries=orphan.tries + 1, error=""))
    if asked is None:
        return orphan
    call = (
        services.cloud.delete_machine if orphan.order is OrphanOrder.DELETE else services.cloud.stop_machine
    )
    try:
        check_send_deadline(services.clock, decided_s)
        await call(orphan.cloud_id, decided_s + SEND_WITHIN_S)
    except CloudUnavailable as error:
        # Surely nothing happened, so the wait need not begin anew.
        await _remember(
            ledger, replace(asked, asked_at=orphan.asked_at, tries=orphan.tries, error=error.message)
        )
        raise
    except CloudError as error:
        log.warning(
            "orphan.order_not_confirmed", cloud_id=orphan.cloud_id, order=orphan.order, code=error.code
        )
        return await _remember(ledger, replace(asked, error=error.message))
    log.info(
        "orphan.asked", cloud_id=orphan.cloud_id, order=orphan.order, by=orphan.ordered_by, tries=asked.tries
    )
    return asked


async def _remember(ledger: Orphans, orphan: Orphan) -> Orphan:
    try:
        await ledger.save([LedgerWrite(orphan)])
    except StaleWrite:
        return orphan
    return replace(orphan, version=orphan.version + 1)


async def _update_ledger(services: Services, record: ListRecord) -> tuple[Orphan, ...]:
    """Bring the ledger up to date with a list, by records that are read after it.

    Return the lines that were open before and whose machine this list shows.
    """
    ledger = services.stores.collector_orphans
    # guard: the ledger goes by the records as they are now
    candidates = await ledger.candidates()
    if not candidates:
        return ()
    prices = await price_list(services.catalogue)
    await _open_lines(services, candidates, record, prices)
    known = [it for it in candidates if it.orphan is not None and it.orphan.is_open]
    await _close_lines(services, [it for it in known if not _is_listed(it)])
    judged = [_judged(services, it, record, prices) for it in known if _is_listed(it)]
    written = [it if before == it else await _write(services, it) for before, it in judged]
    return tuple(it for it in written if it is not None and it.is_open)


async def _write(services: Services, line: Orphan) -> Orphan | None:
    """Write a line; None if another process changed it first: then the next list decides."""
    try:
        await services.stores.collector_orphans.save([LedgerWrite(line)])
    except StaleWrite:
        return None
    return replace(line, version=line.version + 1)


async def _open_lines(
    services: Services, candidates: Sequence[OrphanCandidate], record: ListRecord, prices: PriceList
) -> None:
    entries = [
        await _alarmed(services, it, candidate)
        for candidate in candidates
        if (it := _new_entry(services, candidate, record, prices)) is not None
    ]
    # An event on an instance may lose against the instance's own pass, and must not take others along.
    alone = [[it] for it in entries if it.change is not None]
    together = [it for it in entries if it.change is None]
    batches = [
        together[start : start + NEW_LINES_BATCH] for start in range(0, len(together), NEW_LINES_BATCH)
    ]
    for batch in (*alone, *batches):
        try:
            await services.stores.collector_orphans.save(batch)
        except StaleWrite:
            # The next list is seconds away, and shows it again.
            continue
        for it in batch:
            _log_detected(it.orphan)


def _new_entry(
    services: Services, candidate: OrphanCandidate, record: ListRecord, prices: PriceList
) -> LedgerWrite | None:
    seen, known = candidate.sighting, candidate.orphan
    if (known is not None and known.is_open) or seen is None or seen.machine.phase in LEAVING_PHASES:
        return None
    finding = judge_machine(
        seen.machine,
        candidate.records,
        services.stores.installation,
        seen.first_seen_at,
        services.rules.settling,
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
    return _detected(services, orphan, candidate.records)


async def _alarmed(services: Services, entry: LedgerWrite, candidate: OrphanCandidate) -> LedgerWrite:
    """Raise the alarm if a new line is of a machine that a second database must have made."""
    if entry.orphan.verdict is not OrphanVerdict.UNRECORDED or candidate.orphan is not None:
        return entry
    named = candidate.records.named
    attempts = () if named is None else await services.stores.instances.attempts(named.id)
    # guard: a second user of our id raises the alarm
    if not await services.alarm.is_proof(entry.orphan.machine, attempts):
        return entry
    # Before the line is written: should we die in between, the next list raises it again.
    return _with_alarm(services, entry, await services.alarm.raise_for(entry.orphan.machine))


def _judged(
    services: Services, candidate: OrphanCandidate, record: ListRecord, prices: PriceList
) -> tuple[Orphan, Orphan]:
    """Return an open line as it was, and as this list and the records show it."""
    known = candidate.orphan
    assert known is not None, "only known lines are judged anew"
    finding = judge_machine(
        known.machine,
        candidate.records,
        services.stores.installation,
        known.first_seen_at,
        services.rules.settling,
    )
    if finding is None:
        return known, _ended(services, known, OrphanEnding.CLAIMED)
    it = replace(known, finding=finding)
    if finding.verdict is not known.verdict:
        it = replace(it, judged_at=record.finished_at, confirmed_at=None)
        # Ours was made for another verdict; a person's stands.
        it = without_order(it) if it.ordered_by == COLLECTOR else it
    elif it.confirmed_at is None and is_confirmed(it.judged_at, record.started_at, services.rules.settling):
        it = replace(it, confirmed_at=record.finished_at)
    it = replace(it, disk_usd=prices.disk.hourly_usd(it.machine.disk_gb))
    if it.gpus_usd is None:
        it = replace(it, gpus_usd=_gpus_price(candidate, prices))
    return known, without_order(it) if is_fulfilled(it) else it


async def _close_lines(services: Services, missing: Sequence[OrphanCandidate]) -> None:
    questions = 0
    for candidate in missing:
        known, seen = candidate.orphan, candidate.sighting
        assert known is not None, "only known lines are closed"
        if seen is not None and not is_proven_absent(seen, None, (), services.rules.settling):
            continue
        # What shall be removed is gone when the cloud says so, too. Of others the lists' word is enough:
        # should one show again, it is opened again.
        if seen is None or known.order is not None or known.verdict is OrphanVerdict.SURPLUS:
            questions += 1
            if questions > ABSENCE_CHECKS_MAX or not await _is_confirmed_gone(services, known.cloud_id):
                continue
        await _write(services, _ended(services, known, OrphanEnding.GONE))


async def _is_confirmed_gone(services: Services, cloud_id: str) -> bool:
    try:
        cloud = services.watch_cloud or services.cloud
        return (await cloud.get_machine(cloud_id)).phase is Phase.ABSENT
    except MachineGone:
        return True
    except CloudError:
        return False


def _ended(services: Services, it: Orphan, how: OrphanEnding) -> Orphan:
    log.info("orphan.ended", cloud_id=it.cloud_id, ending=how.value, order=it.order)
    return replace(it, gone_at=services.clock.now(), ending=how)


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


def _detected(services: Services, orphan: Orphan, records: MachineRecords) -> LedgerWrite:
    """Return a new line with the event that tells of it."""
    reason, details = orphan.finding.reason, describe_notice(orphan).model_dump(mode="json")
    instance = records.bound or records.named
    if instance is not None and orphan.finding.instance_id == instance.id:
        new_event = NewEvent(instance_event.ORPHAN_DETECTED, reason, details)
        return LedgerWrite(orphan, change=services.event_recorder.change(instance, new_event))
    told = Event(
        ACCOUNT, 0, instance_event.ORPHAN_DETECTED, services.clock.now(), reason=reason, details=details
    )
    return LedgerWrite(orphan, account=(AccountEvent(told, services.event_recorder.account_outbox_entries),))


def _with_alarm(services: Services, entry: LedgerWrite, reason: str) -> LedgerWrite:
    """Return a new line that also tells that its machine has raised the installation alarm."""
    details = {"cloudInstanceId": entry.orphan.cloud_id}
    told = Event(
        ACCOUNT, 0, instance_event.INSTALLATION_SHARED, services.clock.now(), reason=reason, details=details
    )
    return replace(entry, account=(*entry.account, AccountEvent(told, lambda _: OutboxEntries())))


def _log_detected(orphan: Orphan) -> None:
    """Log a machine that no instance has, once."""
    note = log.info if orphan.verdict is OrphanVerdict.FOREIGN else log.warning
    note(
        "orphan.detected",
        cloud_id=orphan.cloud_id,
        verdict=orphan.verdict.value,
        instance_id=orphan.finding.instance_id,
        hourly_usd=usd(orphan.hourly_usd),
    )
