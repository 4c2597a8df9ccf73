"""The meter: what a list of the cloud's machines opens and closes in the spans of one machine.

Everything here is decided from lists: each shows a machine at some moment between its start and its finish,
and only a believable one shows that something was not there. The cloud's own stamps narrow nothing: how far
its clock is from ours nobody knows. Nor do our own orders: a machine may have ended before we asked for it.
But most likely it did then, so that is counted, and whatever may have been otherwise is stated as doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.cloud.tag import machine_tag
from gpuherd.domain.costs.meter.tariff import NO_RATE, AgreedTerms, Tariff
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge, PriceSource, Rate
from gpuherd.domain.fast_replace import replace

GPU_PAID = frozenset({Phase.PULLING, Phase.STARTING, Phase.RUNNING, Phase.STOPPING})
# Not paid for, but soon: from here a machine may have run and ended before the next list.
ON_ITS_WAY = frozenset({Phase.CREATING, Phase.MIGRATING})
ENDING = frozenset({Phase.REMOVING, Phase.ABSENT})
# Absence needs as many lists as it does everywhere else.
MISSING_LISTS_NEEDED = 2
# Of a span that costs nothing yet: it only remembers since when nobody can say whether the GPUs are paid for.
UNCLEAR = "unclear"
# Of a span that counts nothing: it only states a doubt about the time before an order.
ORDERED = "ordered"
# How a span ends whose machine is gone, since its id is another one's: it is not that one's span.
REPLACED = "replaced"


@dataclass(frozen=True)
class ListTimes:
    """When a list was made."""

    started_at: datetime
    finished_at: datetime
    # Whether a machine that surely exists was in it. If not, it may be true, but nobody vouches for it.
    is_vouched: bool = True


@dataclass(frozen=True)
class MachineMeter:
    """The spans of one machine that go on, and where the last ones of each kind ended."""

    open: Mapping[CostKind, CostSpan] = field(default_factory=dict)
    last_ended: Mapping[CostKind, Edge] = field(default_factory=dict)
    # Those that ended before anybody knew a price.
    unpriced: tuple[CostSpan, ...] = ()


NO_METER = MachineMeter()


@dataclass(frozen=True)
class MeterReading:
    """What one list says about one machine, with all that its cost depends on."""

    # How the machine was known before this list (None: not at all), and how it is known now.
    before: ObservedMachine | None
    after: ObservedMachine
    # The last believable list before this one (None: we have only begun to look), and this one.
    previous: ListTimes | None
    this: ListTimes
    tariff: Tariff
    # When the cloud says that it was made, by the clock as it is now.
    created_at: datetime | None = None
    # Of a machine that a create call of ours has made.
    terms: AgreedTerms | None = None
    # When its stop, start or removal was last asked of us, if ever.
    ordered_at: datetime | None = None
    # The start of the last list before this one that something vouched for.
    vouched_at: datetime | None = None

    @property
    def is_new(self) -> bool:
        """Whether nobody has seen this machine before: the cloud may use an id again."""
        if self.before is None or self.before.first_seen_at != self.after.first_seen_at:
            return True
        return not self.is_missed and machine_tag(self.before.machine) != machine_tag(self.after.machine)

    @property
    def is_missed(self) -> bool:
        return self.after.missing_since is not None

    @property
    def missed_at(self) -> datetime | None:
        """When it was surely not there any more, where it is missed and the list can be trusted that far."""
        return self.this.finished_at if self.is_missed and self.this.is_vouched else None

    @property
    def is_gone(self) -> bool:
        """Whether it is proven to be gone, so that nothing of it is paid for any more."""
        it = self.after
        return it.machine.phase is Phase.ABSENT or it.missing_lists >= MISSING_LISTS_NEEDED

    @property
    def was_gone(self) -> bool:
        it = self.before
        return it is not None and (
            it.machine.phase is Phase.ABSENT or it.missing_lists >= MISSING_LISTS_NEEDED
        )

    @property
    def was_started_anew(self) -> bool:
        """Whether it was started since it was last seen: each start gives it other ports."""
        if self.before is None or self.is_new:
            return False
        before, after = self.before.machine.ports, self.after.machine.ports
        return bool(before and after) and before != after

    @property
    def last_seen_at(self) -> datetime | None:
        """When it surely was as it is known before this list."""
        return None if self.previous is None else self.previous.started_at

    def rate(self, kind: CostKind, *, again: bool) -> Rate:
        machine = self.after.machine
        if kind is CostKind.DISK:
            return self.tariff.disk_rate(machine)
        agreed = None if self.terms is None else self.terms.gpu_hourly_usd
        if not again:
            return self.tariff.gpu_rate(machine, agreed)
        # A start is a new agreement: it costs what such a machine costs today.
        today = self.tariff.gpu_rate(machine, None)
        return today if today is not NO_RATE else self.tariff.gpu_rate(machine, agreed)


def read_meter(meter: MachineMeter, reading: MeterReading) -> list[CostSpan]:
    """Return the spans that a list opens, closes or puts in doubt, in the order in which to write them."""
    return [*_price(meter, reading), *_read_gpu(meter, reading), *_read_disk(meter, reading)]


def cut_at_seam(span: CostSpan, before: datetime, after: datetime, seen_at: datetime) -> list[CostSpan]:
    """Cut a span where the wall clock was set: `before` and `after` are one moment by the two clocks.

    By the first of them the machine was last seen at `seen_at`.
    """
    if span.began_by == UNCLEAR:
        began = span.began.lo + (after - before)
        missed_at = None if span.missed_at is None else span.missed_at + (after - before)
        return [replace(span, began=Edge(began, began), missed_at=missed_at)]
    # What was not sure stays so: up to the seam, and from there on.
    sure_until = max(span.began.lo, seen_at) if span.sure_until is None else span.sure_until
    lo = min(sure_until, before)
    old = replace(span, ended=Edge(lo, before), ended_by="clock", sure_until=None, missed_at=None)
    new = replace(span, id=0, began=Edge(after, after), began_by="clock")
    if span.sure_until is not None:
        new = replace(new, sure_until=after)
    if span.missed_at is not None:
        new = replace(new, missed_at=max(after, span.missed_at + (after - before)))
    return [old, new]


def _price(meter: MachineMeter, it: MeterReading) -> Iterator[CostSpan]:
    """Give spans that have ended the price that nobody knew then."""
    for span in meter.unpriced:
        rate = it.rate(CostKind.GPU, again=False)
        if rate is not NO_RATE:
            yield replace(span, rate=rate)


def _read_gpu(meter: MachineMeter, it: MeterReading) -> Iterator[CostSpan]:
    span, phase = meter.open.get(CostKind.GPU), it.after.machine.phase
    if it.is_new and span is not None:
        former = _end_former(it, span)
        yield former
        meter, span = _without_former(meter, former), None
    is_shown_free = phase not in GPU_PAID and phase is not Phase.UNKNOWN
    if it.is_new and is_shown_free and (it.previous is None or phase is Phase.CREATING):
        # It was there before we began to look, and what it has cost until then is not ours to say; or it has
        # not come to cost anything.
        return
    if it.is_gone:
        yield from _end_gpu(meter, it, span, "removed")
    elif it.is_missed or phase is Phase.UNKNOWN:
        yield from _doubt_gpu(meter, it, span)
    elif phase not in GPU_PAID:
        yield from _end_gpu(meter, it, span, phase.value)
    elif span is None:
        begin, again = _begin(meter, it, CostKind.GPU), _again(meter, it)
        yield from _opened_by_order(it, _opened(it, CostKind.GPU, begin, phase.value, again=again))
    elif span.began_by == UNCLEAR:
        rate = it.rate(CostKind.GPU, again=_again(meter, it))
        began = Edge(span.began.lo, it.this.finished_at)
        yield replace(span, rate=rate, began=began, began_by=phase.value, sure_until=None, missed_at=None)
    else:
        yield from _carry_on_gpu(it, span)


def _end_former(it: MeterReading, span: CostSpan) -> CostSpan:
    """Return the span of a machine whose id the cloud has given to another one, ended."""
    if span.began_by == UNCLEAR and it.before is not None:
        edge = Edge(span.began.lo, max(span.began.lo, it.this.finished_at))
        rate = it.tariff.gpu_rate(it.before.machine, None)
        return replace(span, rate=rate, began=edge, began_by="unseen", ended=edge, ended_by=REPLACED)
    return replace(span, ended=_edge_to_now(span, it), ended_by=REPLACED, sure_until=None, missed_at=None)


def _without_former(meter: MachineMeter, former: CostSpan) -> MachineMeter:
    assert former.ended is not None
    return replace(meter, last_ended={**meter.last_ended, former.kind: former.ended})


def _again(meter: MachineMeter, it: MeterReading) -> bool:
    """Tell whether a machine has run before, so that it must have been started for another time."""
    return CostKind.GPU in meter.last_ended and not it.was_gone and not it.is_new


def _end_gpu(meter: MachineMeter, it: MeterReading, span: CostSpan | None, by: str) -> Iterator[CostSpan]:
    """Close what goes on; where nothing does, say so if it may have run without our seeing it."""
    if span is not None and span.began_by != UNCLEAR:
        if is_unpriced(span):
            span = replace(span, rate=it.rate(CostKind.GPU, again=False))
        yield from _ended(it, span, by)
        return
    if span is not None:
        somewhere = Edge(span.began.lo, max(span.began.lo, span.missed_at or it.this.finished_at))
        yield _maybe_ran(it, somewhere, by, _again(meter, it), span.id)
        return
    if it.was_gone and not it.is_new and (it.is_gone or CostKind.GPU not in meter.last_ended):
        return
    if it.is_new or it.was_gone or _may_have_run(it):
        somewhere = Edge(_begin(meter, it, CostKind.GPU), it.this.finished_at)
        yield _maybe_ran(it, somewhere, by, _again(meter, it))


def _may_have_run(it: MeterReading) -> bool:
    """Tell whether a machine that was not paid for, and is not now, may have been in between."""
    assert it.before is not None
    was, now = it.before.machine.phase, it.after.machine.phase
    return it.was_started_anew or (was in ON_ITS_WAY and now not in ON_ITS_WAY)


def _maybe_ran(it: MeterReading, edge: Edge, by: str, again: bool, number: int = 0) -> CostSpan:
    """Return a span of no length that may be as long as the time in which nobody looked."""
    rate = it.rate(CostKind.GPU, again=again)
    cloud_id = it.after.machine.cloud_id
    return CostSpan(cloud_id, CostKind.GPU, rate, edge, "unseen", edge, by, id=number)


def _doubt_gpu(meter: MachineMeter, it: MeterReading, span: CostSpan | None) -> Iterator[CostSpan]:
    """Not listed once, or an unknown word: no proof of anything. Note since when nobody can say."""
    missed_at = it.missed_at
    if span is not None:
        if span.sure_until is None and span.began_by != UNCLEAR:
            span = replace(span, sure_until=_edge_to_now(span, it).lo)
        yield replace(span, missed_at=(span.missed_at or missed_at) if it.is_missed else None)
        return
    before = None if it.is_new else it.before
    if before is not None and (before.machine.phase in ENDING or (it.was_gone and it.is_missed)):
        # What is being removed does not run again.
        return
    lo = _begin(meter, it, CostKind.GPU)
    cloud_id = it.after.machine.cloud_id
    yield CostSpan(cloud_id, CostKind.GPU, NO_RATE, Edge(lo, lo), UNCLEAR, missed_at=missed_at)


def _carry_on_gpu(it: MeterReading, span: CostSpan) -> Iterator[CostSpan]:
    was_unclear = it.before is not None and it.before.machine.phase is Phase.UNKNOWN
    if it.was_started_anew or (was_unclear and span.sure_until is not None):
        # It may have stood still for any part of the time since it was last seen to run.
        seam = _edge_to_now(span, it)
        if is_unpriced(span):
            span = replace(span, rate=it.rate(CostKind.GPU, again=False))
        yield replace(span, ended=seam, ended_by="restarted", sure_until=None, missed_at=None)
        rate = it.rate(CostKind.GPU, again=True) if it.was_started_anew else span.rate
        yield CostSpan(span.cloud_id, span.kind, rate, seam, "restarted")
    elif span.rate.source is PriceSource.UNKNOWN:
        known = it.rate(CostKind.GPU, again=False)
        yield from _sure_again(replace(span, rate=known), changed=known != span.rate)
    else:
        yield from _sure_again(span, changed=False)


def _sure_again(span: CostSpan, *, changed: bool) -> Iterator[CostSpan]:
    if changed or span.sure_until is not None or span.missed_at is not None:
        yield replace(span, sure_until=None, missed_at=None)


def _read_disk(meter: MachineMeter, it: MeterReading) -> Iterator[CostSpan]:
    span, rate = meter.open.get(CostKind.DISK), it.rate(CostKind.DISK, again=False)
    if it.is_new and span is not None:
        former = _end_former(it, span)
        yield former
        meter, span = _without_former(meter, former), None
    if it.is_gone:
        if span is not None:
            yield from _ended(it, span, "removed")
        elif rate.nano_usd and it.is_new and it.previous is not None:
            # Created, and removed before anybody looked.
            somewhere = Edge(_begin(meter, it, CostKind.DISK), it.this.finished_at)
            cloud_id = it.after.machine.cloud_id
            yield CostSpan(cloud_id, CostKind.DISK, rate, somewhere, "unseen", somewhere, "removed")
    elif it.is_missed:
        if span is not None and (span.sure_until is None or span.missed_at is None):
            sure = _edge_to_now(span, it).lo
            yield replace(span, sure_until=sure, missed_at=span.missed_at or it.missed_at)
    elif span is None:
        if rate.nano_usd:
            begin = _begin(meter, it, CostKind.DISK)
            yield _opened(it, CostKind.DISK, begin, "listed", again=False)
    elif rate.nano_usd != span.rate.nano_usd:
        seam = _edge_to_now(span, it)
        yield replace(span, ended=seam, ended_by="rate", sure_until=None, missed_at=None)
        if rate.nano_usd:
            yield CostSpan(span.cloud_id, span.kind, rate, seam, "rate")
    else:
        yield from _sure_again(span, changed=False)


def _opened(it: MeterReading, kind: CostKind, lo: datetime, by: str, *, again: bool) -> CostSpan:
    rate = it.rate(kind, again=again)
    hi = it.this.finished_at
    return CostSpan(it.after.machine.cloud_id, kind, rate, Edge(min(lo, hi), hi), by)


def _opened_by_order(it: MeterReading, span: CostSpan) -> Iterator[CostSpan]:
    """Begin a span where its start was ordered, if that lies in the edge; before it is in doubt."""
    asked = _order_within(it, span.began)
    # One that came while the list was made may have come after the machine was seen.
    if asked is not None and asked <= it.this.started_at:
        yield _only_doubt(span, Edge(span.began.lo, asked), span.began_by)
        span = replace(span, began=Edge(asked, span.began.hi))
    yield span


def _ended(it: MeterReading, span: CostSpan, by: str) -> Iterator[CostSpan]:
    """End a span where its end was ordered, if that lies in the edge; before it is in doubt."""
    edge = _edge_to_now(span, it)
    asked = _order_within(it, edge)
    ended = edge if asked is None else Edge(asked, edge.hi)
    yield replace(span, ended=ended, ended_by=by, sure_until=None, missed_at=None)
    if asked is not None:
        yield _only_doubt(span, Edge(edge.lo, asked), by)


def _order_within(it: MeterReading, edge: Edge) -> datetime | None:
    asked = it.ordered_at
    return asked if asked is not None and edge.lo < asked < edge.hi else None


def _only_doubt(span: CostSpan, edge: Edge, by: str) -> CostSpan:
    """Return a span of no length: nothing is counted, and it may have been as long as its edge."""
    return CostSpan(span.cloud_id, span.kind, span.rate, edge, ORDERED, edge, by)


def _begin(meter: MachineMeter, it: MeterReading, kind: CostKind) -> datetime:
    """Return the earliest moment at which it can have begun."""
    now = it.this.finished_at
    if it.is_new and (former := meter.last_ended.get(kind)) is not None:
        # The id was another machine's until then.
        return min(now, max(former.lo, _first_begin(it, now)))
    if it.is_new:
        return _first_begin(it, now)
    ended = meter.last_ended.get(kind)
    if it.was_gone and ended is not None:
        # We took it for gone, and it was not: it may have been paid for all along.
        return min(ended.lo, now)
    if it.previous is None:
        # No list was believable yet, but one has shown that it stood still, and since when nobody can say.
        return now if ended is None else min(ended.lo, now)
    return min(it.previous.started_at, now)


def _first_begin(it: MeterReading, now: datetime) -> datetime:
    """Return the earliest moment at which a machine that nobody has seen before can have begun."""
    if it.previous is None:
        return now
    if it.terms is not None:
        # A list may show a new machine late; the call cannot have gone out later than it did.
        return min(it.terms.sent_at, now)
    begin = it.previous.started_at if it.previous.is_vouched else now
    # Else the clocks disagree, so the stamp says nothing; nor does a list that nobody vouches for.
    if it.created_at is not None and it.created_at <= now:
        begin = min(it.created_at, it.previous.started_at)
    # How far the cloud's clock is from ours nobody knows; it was not there when a list could be trusted.
    return begin if it.previous.is_vouched else min(begin, it.vouched_at or begin)


def _edge_to_now(span: CostSpan, it: MeterReading) -> Edge:
    """Return the interval in which what was true of a span has ceased to be."""
    if span.sure_until is not None:
        lo = span.sure_until
    else:
        lo = span.began.lo if it.previous is None else max(span.began.lo, it.previous.started_at)
    # Where it is missing, the first list without it was the last moment it can have been there.
    hi = it.this.finished_at
    if it.is_missed and span.missed_at is not None:
        hi = min(hi, span.missed_at)
    return Edge(min(lo, hi), hi)


def is_unpriced(span: CostSpan) -> bool:
    """Tell whether a span is of a machine whose price nobody knows yet."""
    return span.rate.source is PriceSource.UNKNOWN and span.began_by != UNCLEAR
