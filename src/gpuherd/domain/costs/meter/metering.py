"""The meters of all machines that a list has shown in a new light, read together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.clock_reading import ClockReading, ClockSeam, by_present_clock, earliest
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.costs.meter.clock_seam import cut_at_seam
from gpuherd.domain.costs.meter.edges import ORDERED, is_unpriced
from gpuherd.domain.costs.meter.meter import read_meter
from gpuherd.domain.costs.meter.reading import NO_METER, ListTimes, MachineMeter, MeterReading
from gpuherd.domain.costs.meter.tariff import AgreedTerms, Tariff
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge

# So many steps of the clock are kept: what was stamped before them has long ended.
SEAMS_KEPT_MAX = 20
# So late a list shows a new machine at the worst; by then it was made after a step of the clock.
LISTED_LATE_MAX = timedelta(minutes=10)


@dataclass(frozen=True)
class Metering:
    """What the meters need to know about a list, beside the machines that it changes."""

    # How each of them was known before; those that are not in here were not.
    before: Mapping[str, ObservedMachine]
    # The last believable list before this one (None: we have only begun to look), and this one, all by the
    # clock as it is now.
    previous: ListTimes | None
    this: ListTimes
    tariff: Tariff
    # Where the wall clock was set since the last list, and all such places before, oldest first.
    seam: ClockSeam | None = None
    seams: tuple[ClockSeam, ...] = ()
    # Machines whose meter is to be read although nothing of what is known about them has changed.
    also: tuple[ObservedMachine, ...] = ()
    # Of these we have only begun to look.
    first_look: frozenset[str] = frozenset()
    # The start of the last list that something vouched for, by the clock as it is now.
    vouched_at: datetime | None = None
    # What the clocks showed when the list was finished.
    reading: ClockReading | None = None

    @property
    def all_seams(self) -> tuple[ClockSeam, ...]:
        return (self.seams if self.seam is None else (*self.seams, self.seam))[-SEAMS_KEPT_MAX:]


@dataclass(frozen=True)
class MeterState:
    """What the store knows about the meters as a whole."""

    seams: tuple[ClockSeam, ...] = ()
    # Machines whose price nobody knew.
    unpriced: frozenset[str] = frozenset()
    # Machines that the lists have left unclear, or missed once.
    unclear: frozenset[str] = frozenset()


def meters_of(spans: Iterable[CostSpan]) -> dict[str, MachineMeter]:
    """Return the meter of each machine from its spans, oldest first."""
    going_on: dict[str, dict[CostKind, CostSpan]] = defaultdict(dict)
    ended: dict[str, dict[CostKind, Edge]] = defaultdict(dict)
    unpriced: dict[str, list[CostSpan]] = defaultdict(list)
    for it in spans:
        if it.ended is None:
            going_on[it.cloud_id][it.kind] = it
        else:
            if it.began_by != ORDERED:
                ended[it.cloud_id][it.kind] = it.ended
            if is_unpriced(it):
                unpriced[it.cloud_id].append(it)
    return {it: MachineMeter(going_on[it], ended[it], tuple(unpriced[it])) for it in {*going_on, *ended}}


def cut_all(spans: Iterable[CostSpan], seam: ClockSeam, previous: ListTimes | None) -> list[CostSpan]:
    """Cut all spans that go on where the wall clock was set, since the last believable list or after it."""
    # Without one, nothing is sure but how each of them began.
    # guard: before a step of the clock only a believable list makes sure
    seen_at = None if previous is None else previous.started_at - seam.step
    return [part for span in spans for part in cut_at_seam(span, seam.before, seam.after, seen_at)]


def read_meters(
    metering: Metering,
    seen: Sequence[ObservedMachine],
    meters: Mapping[str, MachineMeter],
    terms: Mapping[str, AgreedTerms],
    orders: Mapping[str, datetime],
) -> list[CostSpan]:
    """Return all spans of machines that a list opens, closes or puts in doubt, in the order to write them."""
    spans: list[CostSpan] = []
    now = metering.this.finished_at
    for after in seen:
        cloud_id = after.machine.cloud_id
        is_first_look = cloud_id in metering.first_look
        agreed = terms.get(cloud_id)
        if agreed is not None:
            sent_at = by_present_clock(
                agreed.sent_at, agreed.sent_reading, metering.reading, metering.all_seams, now
            )
            agreed = replace(agreed, sent_at=sent_at)
        reading = MeterReading(
            before=None if is_first_look else metering.before.get(cloud_id),
            after=after,
            previous=None if is_first_look else metering.previous,
            this=metering.this,
            tariff=metering.tariff,
            created_at=_created_at(after.machine, metering.all_seams, now),
            terms=agreed,
            ordered_at=orders.get(cloud_id),
            vouched_at=metering.vouched_at,
        )
        meter = meters.get(cloud_id, NO_METER)
        if metering.all_seams and meter.last_ended:
            last = {kind: _widened(edge, metering.all_seams, now) for kind, edge in meter.last_ended.items()}
            meter = replace(meter, last_ended=last)
        spans += read_meter(meter, reading)
    return spans


def _widened(edge: Edge, seams: Sequence[ClockSeam], now: datetime) -> Edge:
    """Return an edge that begins no later, by the clock as it is now, than it was written down.

    Both its ends are by the clock of one list. That list may have reckoned the first one back, to a time that
    the clock has shown only later; the last one is a time that it showed itself.
    """
    moved = earliest(edge.hi, seams, now) - edge.hi
    # guard: both ends of an edge are by the clock of one list
    return Edge(min(earliest(edge.lo, seams, now), edge.lo + moved), edge.hi)


def _created_at(machine: Machine, seams: Sequence[ClockSeam], now: datetime) -> datetime | None:
    """Return when the cloud made a machine at the earliest: by its clock, or by ours before it was set.

    Its clock may agree with ours as that was before one of the last steps: a time that lies ahead of us now
    is that, and one that does not may be.
    """
    stamp = machine.created_at
    if stamp is None:
        return None
    found, shift = [stamp, earliest(stamp, seams, now)], timedelta(0)
    for seam in reversed(seams):
        shift += seam.step
        if now - (seam.noticed_at + shift) > LISTED_LATE_MAX:
            break
        # guard: the cloud's stamp may be of a clock that was not set with ours
        found.append(stamp + shift)
    return min(found)
