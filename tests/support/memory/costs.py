"""The ledger of costs, in memory: no sums are kept, all is computed from spans."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from gpuherd.domain.clock_reading import ClockReading, by_present_clock
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Instance
from gpuherd.domain.instance.rent_attempt import machine_tag
from gpuherd.domain.money.meter import (
    Metering,
    cut_all,
    meters_of,
    read_meters,
)
from gpuherd.domain.money.meter_reading import (
    MachineRecord,
    record_of,
    subject_of,
    subject_of_instance,
    unseen_spans,
)
from gpuherd.domain.money.period import (
    DAY,
    NO_SHARE,
    LineageMember,
    Period,
    Share,
    cost_within,
    day_start,
    overlap_within,
    taken_over_at,
)
from gpuherd.domain.money.span_rules import REPLACED
from gpuherd.domain.money.usage_span import CostKind, CostSpan, CostSubject, settle
from gpuherd.ports.costs_port import (
    LABEL_KEYS_MAX,
    BilledDay,
    CostGroup,
    CostQuery,
    CostReport,
    GroupBy,
    MeteredMachine,
    OpenSpan,
    Waste,
)
from tests.support.memory.tables import SpanRow, Tables


def write_spans(
    tables: Tables, spans: Sequence[CostSpan], subjects: Mapping[str, CostSubject], now: datetime
) -> list[str]:
    """Write spans that were opened, changed or ended, in this order, with the subject of each machine."""
    owners: dict[str | None, None] = {}
    for it in spans:
        number = it.id or tables.number()
        whose = tables.spans[number].subject if it.id and it.ended_by == REPLACED else subjects[it.cloud_id]
        owners[whose.instance_id] = None
        tables.put(tables.spans, number, SpanRow(replace(it, id=number), whose))
        open_key = (it.cloud_id, it.kind)
        if it.ended is None:
            if not it.id:
                tables.insert(tables.open_spans, open_key, number)
        elif it.id and tables.open_spans.get(open_key) == it.id:
            tables.drop(tables.open_spans, open_key)
    charged = sorted(it for it in owners if it is not None)
    for instance_id in charged:
        if (known := tables.instances.get(instance_id)) is not None:
            its = [row.span for row in tables.spans.values() if row.subject.instance_id == instance_id]
            settled = replace(known.instance, cost=settle(its, now))
            tables.put(tables.instances, instance_id, replace(known, instance=settled))
    return charged


class MemoryCosts:
    """The port `Costs`."""

    def __init__(self, tables: Tables):
        self._tables = tables

    async def report(self, query: CostQuery, now: datetime) -> CostReport:
        groups: dict[str | None, Share] = defaultdict(lambda: NO_SHARE)
        hourly: Counter[str | None] = Counter()
        kinds = dict.fromkeys(CostKind, 0)
        instances: dict[str | None, set[str]] = defaultdict(set)
        names: dict[str | None, str] = {}
        unbound = failed = 0
        for row in self._rows(query.owner):
            for value, part in self._parts(row, query, now):
                share = self._share(row, part, now)
                groups[value] += share
                kinds[row.span.kind] += share.amount
                is_machine = row.span.kind is not CostKind.VOLUME
                unbound += share.amount if row.subject.owner is None and is_machine else 0
                failed += share.amount if self._failed(row.subject) else 0
                if query.by is GroupBy.INSTANCE and value is not None:
                    names[value] = row.subject.name
                goes_on = row.span.ended is None and part.goes_on_at(now)
                if row.subject.instance_id is not None and (share != NO_SHARE or goes_on):
                    instances[value].add(row.subject.instance_id)
            if row.span.ended is None:
                today = now.astimezone(UTC).date().isoformat()
                value = today if query.by is GroupBy.DAY else _value(row.subject, query)
                hourly[value] += row.span.rate.nano_usd
        found = [
            CostGroup(
                it,
                groups[it].amount,
                groups[it].doubt,
                hourly[it],
                len(instances[it]),
                names.get(it, ""),
            )
            for it in {*groups, *hourly}
            if groups[it] != NO_SHARE or (query.period.goes_on_at(now) and hourly[it])
        ]
        by_day = query.by is GroupBy.DAY
        found.sort(key=lambda it: (0 if by_day else -it.amount, it.value is None, it.value or ""))
        shown = query.groups_max if query.by in (GroupBy.INSTANCE, GroupBy.LINEAGE) else len(found)
        return CostReport(
            amount=sum(it.amount for it in groups.values()),
            doubt=sum(it.doubt for it in groups.values()),
            hourly_now=sum(hourly.values()),
            by_kind=kinds,
            waste=Waste(
                unbound, failed, sum(it.after_end for it in groups.values()), self._overlap(query, now)
            ),
            groups=tuple(found[:shown]),
            groups_left_out=max(0, len(found) - shown),
        )

    async def label_keys(self, period: Period, now: datetime, owner: str | None = None) -> Sequence[str]:
        there = {
            row.subject.instance_id: row.subject.labels
            for row in self._rows(owner)
            if row.subject.instance_id is not None
            and row.span.began.lo < period.end
            and (row.span.ended.hi > period.begin if row.span.ended else period.begin <= now)
        }
        counted = Counter(key for labels in there.values() for key in labels)
        return sorted(counted, key=lambda it: (-counted[it], it))[:LABEL_KEYS_MAX]

    async def open_spans(
        self, owner: str | None = None, *, kind: CostKind | None = None
    ) -> Sequence[OpenSpan]:
        rows = [it for it in self._rows(owner) if it.span.ended is None and kind in (None, it.span.kind)]
        rows.sort(key=lambda it: (it.span.cloud_id, it.span.kind))
        return [OpenSpan(it.span, it.subject) for it in rows]

    async def hourly_now(self, owner: str | None = None) -> int:
        return sum(it.span.rate.nano_usd for it in self._rows(owner) if it.span.ended is None)

    async def earlier(self, owner: str | None = None) -> Mapping[str, int]:
        rows = self._rows(owner)
        going_on = {_subject_key(it.subject) for it in rows if it.span.ended is None}
        ended: Counter[str] = Counter()
        for it in rows:
            if it.span.ended is not None and _subject_key(it.subject) in going_on:
                ended[_subject_key(it.subject)] += it.span.cost(it.span.ended.hi)
        return ended

    async def spans_of(self, instance_id: str) -> Sequence[CostSpan]:
        rows = [it for it in self._tables.spans.values() if it.subject.instance_id == instance_id]
        return sorted((it.span for it in rows), key=lambda it: it.id)

    async def metered(self, period: Period, now: datetime) -> Sequence[MeteredMachine]:
        sums: dict[tuple[str, CostKind], Share] = defaultdict(lambda: NO_SHARE)
        owners: dict[str, str | None] = {}
        rates: dict[tuple[str, CostKind], list[int]] = defaultdict(list)
        for row in self._rows(None):
            end = now if row.span.ended is None else row.span.ended.hi
            if end > period.begin and row.span.began.lo < period.end:
                rates[row.span.cloud_id, row.span.kind].append(row.span.rate.nano_usd)
            sums[row.span.cloud_id, row.span.kind] += self._share(row, period, now)
            owners[row.span.cloud_id] = row.subject.instance_id
        return [
            MeteredMachine(cloud_id, owners[cloud_id], kind, it.amount, it.doubt, min(its), max(its))
            for (cloud_id, kind), it in sorted(sums.items())
            for its in (rates[cloud_id, kind],)
            if it.amount or it.doubt
        ]

    async def write(
        self, spans: Sequence[CostSpan], subjects: Mapping[str, CostSubject], now: datetime
    ) -> None:
        with self._tables as tables:
            write_spans(tables, spans, subjects, now)

    async def save_bill(self, day: date, rows: Sequence[BilledDay]) -> None:
        with self._tables as tables:
            for key in [it for it in tables.bill if it[0] == day]:
                tables.drop(tables.bill, key)
            for it in rows:
                tables.insert(tables.bill, (it.day, it.cloud_id, it.category), it)

    async def bill(self, first: date, last: date) -> Sequence[BilledDay]:
        return [it for key, it in sorted(self._tables.bill.items()) if first <= key[0] <= last]

    def _rows(self, owner: str | None) -> list[SpanRow]:
        rows = self._tables.spans.values()
        return [it for it in rows if owner is None or it.subject.owner == owner]

    def _share(self, row: SpanRow, period: Period, now: datetime) -> Share:
        looks = [it for it in self._tables.lists.values() if it.complete]
        seen_at = max(looks, key=lambda it: it.id).started_at if looks else now
        subject = row.subject
        known = self._tables.instances.get(subject.instance_id or "")
        if row.span.ended is None and known is not None:
            subject = subject_of_instance(known.instance)
        return cost_within(row.span, period, now, seen_at, subject.end_wanted_at(row.span.kind))

    def _overlap(self, query: CostQuery, now: datetime) -> int:
        subjects = {it.subject.instance_id: it.subject for it in self._rows(None)}
        heirs_at = taken_over_at(
            LineageMember(key, it.lineage or key, it.usable_at or self._ready_at(key))
            for key, it in subjects.items()
            if key is not None
        )
        return sum(
            overlap_within(row.span, heirs_at[row.subject.instance_id], query.period, now)
            for row in self._rows(query.owner)
            if row.subject.instance_id in heirs_at
        )

    def _ready_at(self, instance_id: str) -> datetime | None:
        row = self._tables.instances.get(instance_id)
        return None if row is None else row.instance.ready_at

    def _failed(self, subject: CostSubject) -> bool:
        if subject.instance_id is None or subject.usable_at is not None:
            return False
        row = self._tables.instances.get(subject.instance_id)
        return row is None or (row.instance.status in TERMINAL_STATUSES and row.instance.ready_at is None)

    def _parts(self, row: SpanRow, query: CostQuery, now: datetime) -> Iterator[tuple[str | None, Period]]:
        """Yield what a span is counted under, and for which part of the period."""
        period = query.period
        if query.by is not GroupBy.DAY:
            yield _value(row.subject, query), period
            return
        begin = day_start(max(period.begin, row.span.began.lo))
        while begin < min(period.end, max(now, row.span.began.hi)):
            yield (
                begin.date().isoformat(),
                Period(max(begin, period.begin), min(begin + DAY, period.end)),
            )
            begin += DAY


def _subject_key(subject: CostSubject) -> str:
    return subject.instance_id or subject.cloud_id


def _value(subject: CostSubject, query: CostQuery) -> str | None:
    if subject.owner is None:
        return None
    match query.by:
        case GroupBy.PRODUCT:
            return subject.product_name
        case GroupBy.REGION:
            return subject.region
        case GroupBy.LABEL:
            return subject.labels.get(query.label)
        case GroupBy.INSTANCE:
            return subject.instance_id
        case GroupBy.LINEAGE:
            return subject.lineage or subject.instance_id
        case _:
            return subject.owner


def keep_meters(tables: Tables, metering: Metering, changed: Sequence[ObservedMachine]) -> list[str]:
    """Open and close what a list says; return the instances whose cost has changed by it."""
    charged: list[str] = []
    now = metering.this.finished_at
    if metering.seam is not None:
        going_on = [tables.spans[number].span for number in tables.open_spans.values()]
        known = {it.cloud_id: metering.before[it.cloud_id] for it in going_on}
        subjects = {
            cloud_id: subject_of(it.machine, it.first_seen_at, machine_record(tables, it.machine))
            for cloud_id, it in known.items()
        }
        tables.put(tables.meters, "seams", metering.all_seams)
        charged += write_spans(tables, cut_all(going_on, metering.seam, metering.previous), subjects, now)
    seen = [*changed, *metering.also]
    records = {it.machine.cloud_id: machine_record(tables, it.machine) for it in seen}
    made = {it.machine.cloud_id: records[it.machine.cloud_id].terms_of(it.machine) for it in seen}
    terms = {cloud_id: it for cloud_id, it in made.items() if it is not None}
    spans = [row.span for row in tables.spans.values() if row.span.cloud_id in records]
    spans.sort(key=lambda it: it.id)
    orders = {cloud_id: at for cloud_id, it in records.items() if (at := it.ordered_at) is not None}
    written = read_meters(metering, seen, meters_of(spans), terms, orders)
    subjects = {
        it.machine.cloud_id: subject_of(it.machine, it.first_seen_at, records[it.machine.cloud_id])
        for it in seen
    }
    return charged + write_spans(tables, written, subjects, now)


def machine_record(tables: Tables, machine: Machine) -> MachineRecord:
    """Return what is on record about a machine: the instance, and the create call that made it."""
    by_id = next((it for it in tables.attempts.values() if it.cloud_id == machine.cloud_id), None)
    key = tables.tags.get(machine_tag(machine) or "")
    bound = tables.instances.get(tables.bound.get(machine.cloud_id, ""))
    by_tag = None if key is None else tables.attempts[key]
    found = record_of(machine, None if bound is None else bound.instance, by_tag, by_id)
    if found.open_call is None:
        return found
    return replace(found, instance=tables.instances[found.open_call.instance_id].instance)


def claim_spans(tables: Tables, it: Instance) -> None:
    """Let an instance have the spans of its machine that were opened before it had the machine."""
    for number, row in list(tables.spans.items()):
        if row.span.cloud_id == it.cloud_id and row.subject.instance_id is None:
            tables.put(tables.spans, number, SpanRow(row.span, subject_of_instance(it)))


def note_unseen(tables: Tables, it: Instance, reading: ClockReading | None, now: datetime) -> None:
    """Where no list has ever shown the machine of an instance that has ended: it has cost something."""
    cloud_id = it.last_cloud_id
    if cloud_id is None or any(
        (row.span.cloud_id, row.subject.instance_id) == (cloud_id, it.id) for row in tables.spans.values()
    ):
        return
    for call in tables.attempts.values():
        if (call.instance_id, call.cloud_id) == (it.id, cloud_id):
            seams = tables.meters.get("seams", ())
            sent_at = by_present_clock(call.sent_at, call.sent_reading, reading, seams, now)
            write_spans(tables, unseen_spans(it, sent_at, now), {cloud_id: subject_of_instance(it)}, now)
            return
