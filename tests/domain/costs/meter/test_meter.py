"""The meter against lives that are known exactly: whatever lists show, the error is inside what is stated."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuherd.domain.cloud.machine import Listing, Machine, Phase, PortMapping
from gpuherd.domain.cloud.observation import (
    ListRecord,
    ObservedMachine,
    SettlingPolicy,
    Witness,
    diff_listing,
)
from gpuherd.domain.cloud.offer import DiskTariff
from gpuherd.domain.money.meter import cut_at_seam, meters_of
from gpuherd.domain.money.meter_reading import NO_METER, AgreedTerms, ListTimes, MeterReading, Tariff
from gpuherd.domain.money.span_rules import (
    GPU_PAID,
    ORDERED,
    REPLACED,
    UNCLEAR,
    read_meter,
)
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    Edge,
    PriceSource,
    Rate,
    cost_nano,
    nano_usd,
)

T0 = datetime(2026, 11, 16, tzinfo=UTC)
PRICE = Decimal("0.36")
TARIFF = Tariff({("spot", "p", "c"): PRICE}, DiskTariff(Decimal("0.48"), 60))
RATES = {
    CostKind.GPU: Rate(nano_usd(PRICE), PriceSource.CATALOGUE),
    CostKind.DISK: Rate(nano_usd(Decimal("0.02")), PriceSource.CATALOGUE),
}


def machine(phase: Phase, starts: int = 0) -> Machine:
    return Machine(
        "m",
        "m",
        phase,
        phase.value,
        product_id="p",
        cluster_id="c",
        gpu_num=1,
        disk_gb=61,
        billing_mode="spot",
        ports=(PortMapping(22, f"host:{30000 + starts}", "tcp"),),
    )


SETTLING = SettlingPolicy(timedelta(seconds=36))


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Life:
    """What a machine really did: (second, phase), the first its birth."""

    turns: Sequence[tuple[float, Phase]]

    def shown(self, second: float) -> Machine | None:
        """Return how an honest list shows it; each start, and each move, gives it other ports."""
        place = bisect_right(self.turns, second, key=lambda it: it[0])
        if not place or self.turns[place - 1][1] is Phase.ABSENT:
            return None
        starts = sum(phase in (Phase.STARTING, Phase.MIGRATING) for _, phase in self.turns[:place])
        return machine(self.turns[place - 1][1], starts)

    def paid_s(self, until: float, kind: CostKind) -> float:
        total = 0.0
        ends = [*(it[0] for it in self.turns[1:]), until]
        for (begin, phase), end in zip(self.turns, ends, strict=True):
            paid = phase in GPU_PAID if kind is CostKind.GPU else phase is not Phase.ABSENT
            total += max(0.0, min(end, until) - begin) if paid else 0.0
        return total


class Ledger:
    """What the observer would keep: the lists of one account with one machine, and its spans."""

    def __init__(self, sent_at: float | None = None, orders: Sequence[float] = ()) -> None:
        self.known: dict[str, ObservedMachine] = {}
        self.number = 0
        self.meter = NO_METER
        self.done: list[CostSpan] = []
        self.previous: ListTimes | None = None
        self.vouched_at: datetime | None = None
        self.terms = None if sent_at is None else AgreedTerms(at(sent_at), PRICE)
        # When its stops, starts and removals were asked for.
        self.orders = orders

    def look(
        self,
        begin: float,
        seconds: float,
        shown: Machine | Phase | None,
        *,
        complete: bool = True,
        vouched: bool = True,
    ) -> None:
        """Take a list in which the machine is shown so (None: not at all)."""
        times = ListTimes(at(begin), at(begin + seconds), vouched)
        shown = machine(shown) if isinstance(shown, Phase) else shown
        machines = () if shown is None else (shown,)
        listing = Listing(machines, complete, times.started_at, times.finished_at)
        record = ListRecord(times.started_at, times.finished_at, complete, Witness.SEEN)
        ordered = max((it for it in self.orders if it < begin + seconds), default=None)
        for after in diff_listing(self.known, listing, record, SETTLING):
            reading = MeterReading(
                self.known.get("m"),
                after,
                self.previous,
                times,
                TARIFF,
                created_at=after.machine.created_at,
                terms=self.terms,
                ordered_at=None if ordered is None else at(ordered),
                vouched_at=self.vouched_at,
            )
            self.keep(read_meter(self.meter, reading))
            self.known["m"] = after
        if complete:
            self.previous = times
            self.vouched_at = times.started_at if vouched else self.vouched_at

    def keep(self, spans: Sequence[CostSpan]) -> None:
        going_on = dict(self.meter.open)
        for span in spans:
            if span.ended is None:
                self.number += 1
                going_on[span.kind] = span if span.id else replace(span, id=self.number)
            else:
                self.done.append(span)
                if going_on.get(span.kind, span).id == span.id:
                    going_on.pop(span.kind, None)
        self.meter = meters_of((*self.done, *going_on.values())).get("m", NO_METER)

    def spans(self, kind: CostKind) -> list[CostSpan]:
        return [it for it in (*self.done, *self.meter.open.values()) if it.kind is kind]

    def check(self, life: Life, now: float, kind: CostKind) -> None:
        truth = cost_nano(RATES[kind].nano_usd, timedelta(seconds=life.paid_s(now, kind)))
        counted = sum(it.cost(at(now)) for it in self.spans(kind))
        stated = sum(it.uncertainty() for it in self.spans(kind))
        doubt = self.meter.open.get(kind)
        if doubt is not None and doubt.sure_until is not None:
            stated += cost_nano(doubt.rate.nano_usd, at(now) - doubt.sure_until)
        unclear = doubt is not None and doubt.began_by == UNCLEAR
        if doubt is not None and unclear:
            stated += cost_nano(RATES[kind].nano_usd, at(now) - doubt.began.lo)
        # A list that has not been made yet cannot have told us of what happened since the last one.
        unseen = at(now) - (self.previous.started_at if self.previous else T0)
        assert abs(counted - truth) <= stated + cost_nano(RATES[kind].nano_usd, unseen) + 10


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[float, Phase]]:
    """Draw a life as the cloud lives it: boot, work, perhaps stops and starts, perhaps a removal anywhere."""
    moment, turns = 10.0, [(10.0, Phase.CREATING)]

    def turn(phase: Phase) -> None:
        nonlocal moment
        moment += draw(st.floats(0.2, 150))
        turns.append((moment, phase))

    turn(Phase.PULLING)
    turn(Phase.RUNNING)
    for _ in range(draw(st.integers(0, 2))):
        turn(Phase.STOPPING)
        turn(Phase.STOPPED)
        turn(draw(st.sampled_from([Phase.STARTING, Phase.MIGRATING])))
        turn(Phase.RUNNING)
    if draw(st.booleans()):
        kept = draw(st.integers(1, len(turns)))
        del turns[kept:]
        moment = turns[-1][0]
        turn(Phase.REMOVING)
        turn(Phase.ABSENT)
    return turns


LOOKS = st.lists(
    st.tuples(
        st.floats(0.1, 60),  # after the one before
        st.floats(0.01, 3),  # how long it takes
        st.floats(0, 1),  # when in it the machine is read
        st.sampled_from(["true", "true", "true", "true", "unknown", "incomplete", "incomplete and without"]),
    ),
    min_size=3,
    max_size=60,
)


@pytest.mark.proves("L1")
@pytest.mark.parametrize("kind", [CostKind.GPU, CostKind.DISK])
@given(turns=lives(), looks=LOOKS, by_us=st.booleans(), orders=st.lists(st.floats(0, 600), max_size=6))
def test_the_error_is_always_inside_what_is_stated(kind, turns, looks, by_us, orders):
    """Whenever somebody has ordered something: the machine may have done it long before, or have not."""
    life = Life(turns)
    ledger = Ledger(sent_at=9.0 if by_us else None, orders=orders)
    ledger.look(0, 0.1, None)
    now = 0.1
    for gap, seconds, where, how in looks:
        begin = now + gap
        now = begin + seconds
        shown = life.shown(begin + seconds * where)
        if how == "unknown" and shown is not None:
            shown = replace(shown, phase=Phase.UNKNOWN)
        if how == "incomplete and without":
            shown = None
        ledger.look(begin, seconds, shown, complete=not how.startswith("incomplete"))
    # What no list has ever shown, no list can count.
    assume(ledger.known)
    ledger.check(life, now, kind)


@pytest.mark.proves("L3")
@pytest.mark.parametrize("kind", [CostKind.GPU, CostKind.DISK])
@given(turns=lives(), looks=LOOKS, orders=st.lists(st.floats(0, 600), max_size=6))
def test_no_second_is_in_two_spans(kind, turns, looks, orders):
    life, ledger, now = Life(turns), Ledger(orders=orders), 0.0
    for gap, seconds, where, _ in looks:
        begin = now + gap
        now = begin + seconds
        ledger.look(begin, seconds, life.shown(begin + seconds * where))
    spans = sorted((it for it in ledger.spans(kind) if it.began_by != ORDERED), key=lambda it: it.began)
    for one, two in pairwise(spans):
        assert one.ended is not None
        assert one.ended.mid <= two.began.mid


def test_a_machine_of_ours_is_charged_from_its_call_at_the_earliest_although_lists_show_it_late():
    ledger = Ledger(sent_at=10)
    for second in (0, 12, 14, 16):
        ledger.look(second, 0.5, None)
    ledger.look(30, 0.5, Phase.RUNNING)
    (span,) = ledger.spans(CostKind.GPU)
    assert span.began == Edge(at(10), at(30.5))


def test_an_end_that_was_ordered_is_counted_from_the_order_on_and_in_doubt_before_it():
    ledger = Ledger(orders=[58.0])
    ledger.look(0, 0, None)
    ledger.look(30, 0, Phase.RUNNING)
    ledger.look(40, 0, Phase.RUNNING)
    ledger.look(60, 0, Phase.STOPPED)
    ended, doubt = ledger.spans(CostKind.GPU)
    assert ended.ended == Edge(at(58), at(60))
    assert doubt.began == doubt.ended == Edge(at(40), at(58))
    assert doubt.cost(at(100)) == 0
    assert doubt.uncertainty() >= RATES[CostKind.GPU].nano_usd * 18 // 3600


def test_a_start_that_was_ordered_is_counted_from_the_order_on_and_in_doubt_before_it():
    ledger = Ledger(orders=[88.0])
    for second, phase in ((0, None), (30, Phase.RUNNING), (60, Phase.STOPPED), (90, Phase.STARTING)):
        ledger.look(second, 0, phase)
    *_, doubt, going_on = ledger.spans(CostKind.GPU)
    assert going_on.began == Edge(at(88), at(90))
    assert (doubt.began, doubt.ended, doubt.cost(at(100))) == (Edge(at(60), at(88)), Edge(at(60), at(88)), 0)


def test_a_machine_that_was_there_before_we_looked_is_charged_from_the_first_look():
    ledger = Ledger()
    ledger.look(100, 1, replace(machine(Phase.RUNNING), created_at=at(50)))
    (span,) = ledger.spans(CostKind.GPU)
    assert span.began == Edge(at(101), at(101))


def test_a_stamp_of_the_cloud_does_not_shorten_the_time_since_a_list_could_be_trusted():
    """Our clock is a minute behind the cloud's, and lists that nobody vouches for have left it out."""
    ledger = Ledger()
    ledger.look(0, 1, None)
    ledger.look(200, 1, None, vouched=False)
    ledger.look(300, 1, replace(machine(Phase.RUNNING), created_at=at(260)), vouched=False)
    (span,) = ledger.spans(CostKind.GPU)
    assert span.began == Edge(at(0), at(301))


@pytest.mark.proves("L5")
def test_an_unknown_word_stops_no_meter_but_widens_the_end():
    ledger = Ledger()
    ledger.look(0, 1, Phase.RUNNING)
    ledger.look(10, 1, Phase.RUNNING)
    ledger.look(20, 1, Phase.UNKNOWN)
    ledger.look(30, 1, Phase.UNKNOWN)
    assert len(ledger.meter.open) == 2
    ledger.look(40, 1, Phase.STOPPED)
    (span,) = ledger.spans(CostKind.GPU)
    assert span.ended == Edge(at(10), at(41))


@pytest.mark.proves("L5")
def test_missing_once_is_no_end_and_missing_twice_ends_with_the_first_list_without_it():
    ledger = Ledger()
    ledger.look(0, 1, Phase.RUNNING)
    ledger.look(10, 1, Phase.RUNNING)
    ledger.look(20, 1, None)
    assert CostKind.GPU in ledger.meter.open
    ledger.look(30, 1, None)
    (span,) = ledger.spans(CostKind.GPU)
    assert span.ended == Edge(at(10), at(21))
    assert not ledger.meter.open


def test_where_nobody_vouches_for_the_lists_it_ended_by_the_second_without_it():
    ledger = Ledger()
    ledger.look(0, 1, Phase.RUNNING)
    ledger.look(10, 1, Phase.RUNNING)
    ledger.look(20, 1, None, vouched=False)
    ledger.look(30, 1, None, vouched=False)
    (span,) = ledger.spans(CostKind.GPU)
    assert span.ended == Edge(at(10), at(31))


def test_another_machine_under_the_same_id_is_charged_from_its_own_call():
    ledger = Ledger(sent_at=10)
    ledger.look(0, 1, None)
    ledger.look(20, 1, Phase.RUNNING)
    ledger.look(30, 1, None)
    ledger.look(40, 1, None)
    ledger.terms = AgreedTerms(at(50), PRICE)
    ledger.look(60, 1, replace(machine(Phase.RUNNING), env_tag="another"))
    assert ledger.spans(CostKind.GPU)[-1].began == Edge(at(50), at(61))


def test_a_machine_that_takes_the_id_of_another_between_two_lists_ends_the_span_of_that():
    ledger = Ledger(sent_at=10)
    ledger.look(0, 1, None)
    ledger.look(20, 1, Phase.RUNNING)
    ledger.terms = AgreedTerms(at(25), PRICE)
    ledger.look(30, 1, replace(machine(Phase.RUNNING), env_tag="another"))
    former, latter = ledger.spans(CostKind.GPU)
    assert former.ended == Edge(at(20), at(31))
    assert latter.began == Edge(at(25), at(31))


def test_what_was_moving_when_another_took_its_id_may_have_run_until_then():
    """No list came in between (chaos capacity, seed 840912)."""
    ledger = Ledger()
    ledger.look(0, 1, Phase.RUNNING)
    ledger.look(20, 1, Phase.MIGRATING)
    ledger.terms = AgreedTerms(at(200), PRICE)
    ledger.look(220, 1, replace(machine(Phase.PULLING), env_tag="another"))
    moved, former, latter = ledger.spans(CostKind.GPU)
    assert moved.ended == Edge(at(1), at(21))
    assert former.began == former.ended == Edge(at(20), at(221))
    assert former.ended_by == REPLACED and former.rate == RATES[CostKind.GPU]
    assert latter.began == Edge(at(200), at(221))


def test_a_machine_that_takes_the_id_of_another_before_it_costs_anything_begins_after_that_one():
    """The first list took long, and none since was believable (seed 701513)."""
    ledger = Ledger()
    ledger.look(0, 20, Phase.RUNNING)
    ledger.terms = AgreedTerms(at(295), Decimal(5))
    ledger.look(300, 1, replace(machine(Phase.CREATING), env_tag="another"), complete=False)
    ledger.look(310, 1, replace(machine(Phase.PULLING), env_tag="another"), complete=False)
    former, latter = ledger.spans(CostKind.GPU)
    assert former.ended is not None
    assert former.ended.mid <= latter.began.mid
    # It was not started again, so it costs what was agreed for it.
    assert latter.rate == Rate(nano_usd(Decimal(5)), PriceSource.RENTAL)


@pytest.mark.parametrize("lists", [(None, None), (Phase.ABSENT,), (Phase.STOPPED,)])
def test_a_machine_that_gets_an_id_whose_machine_has_ended_costs_what_was_agreed_for_it(lists):
    """It is shown before it costs anything; what has ended under its id was not an earlier run of its own."""
    ledger = Ledger()
    ledger.look(0, 1, Phase.RUNNING)
    for n, shown in enumerate(lists, 1):
        ledger.look(60 * n, 1, shown)
    ledger.terms = AgreedTerms(at(295), Decimal(5))
    ledger.look(300, 1, replace(machine(Phase.CREATING), env_tag="another"))
    ledger.look(310, 1, replace(machine(Phase.PULLING), env_tag="another"))
    assert ledger.spans(CostKind.GPU)[-1].rate == Rate(nano_usd(Decimal(5)), PriceSource.RENTAL)
    # Once it is started again itself, it costs what such a machine costs today.
    ledger.look(400, 1, replace(machine(Phase.STOPPED), env_tag="another"))
    ledger.look(500, 1, replace(machine(Phase.RUNNING), env_tag="another"))
    assert ledger.spans(CostKind.GPU)[-1].rate == RATES[CostKind.GPU]


def test_a_machine_that_was_taken_for_gone_and_comes_back_is_in_doubt_for_all_that_time():
    ledger = Ledger()
    for second, phase in (
        (0, Phase.RUNNING),
        (10, Phase.RUNNING),
        (20, None),
        (30, None),
        (100, Phase.RUNNING),
    ):
        ledger.look(second, 1, phase)
    ledger.check(Life([(0.0, Phase.RUNNING)]), 101, CostKind.GPU)
    again = ledger.spans(CostKind.GPU)[-1]
    assert again.began == Edge(at(10), at(101))


def test_a_machine_first_seen_in_its_removal_may_have_run_or_not():
    ledger = Ledger(sent_at=10)
    ledger.look(0, 1, None)
    ledger.look(70, 1, Phase.REMOVING)
    (span,) = ledger.spans(CostKind.GPU)
    assert span.cost(at(100)) == 0
    assert span.uncertainty() == cost_nano(RATES[CostKind.GPU].nano_usd, timedelta(seconds=61)) + 1


@pytest.mark.proves("L7")
def test_a_stopped_machine_still_pays_for_its_disk():
    ledger = Ledger()
    for second, phase in (
        (0, Phase.RUNNING),
        (10, Phase.RUNNING),
        (20, Phase.STOPPED),
        (3620, Phase.STOPPED),
    ):
        ledger.look(second, 1, phase)
    assert list(ledger.meter.open) == [CostKind.DISK]


def test_a_disk_that_grows_is_another_span():
    ledger = Ledger()
    ledger.look(0, 1, Phase.RUNNING)
    ledger.look(10, 1, replace(machine(Phase.RUNNING), disk_gb=62))
    old, new = ledger.spans(CostKind.DISK)
    assert old.ended == new.began == Edge(at(1), at(11))
    assert new.rate.nano_usd == 2 * old.rate.nano_usd


def test_a_machine_that_was_started_anew_between_two_lists_may_have_stood_still():
    ledger = Ledger()
    ledger.look(0, 1, machine(Phase.RUNNING, 0))
    ledger.look(10, 1, machine(Phase.RUNNING, 0))
    ledger.look(20, 1, machine(Phase.RUNNING, 1))
    old, new = ledger.spans(CostKind.GPU)
    assert old.ended == new.began == Edge(at(10), at(21))


def test_a_start_costs_what_such_a_machine_costs_today():
    ledger = Ledger(sent_at=1)
    ledger.terms = AgreedTerms(at(1), Decimal(5))
    ledger.look(0, 1, None)
    ledger.look(10, 1, Phase.RUNNING)
    ledger.look(20, 1, Phase.STOPPED)
    ledger.look(30, 1, machine(Phase.RUNNING, 1))
    first, second = ledger.spans(CostKind.GPU)
    assert (first.rate.source, second.rate.source) == (PriceSource.RENTAL, PriceSource.CATALOGUE)
    assert second.rate == RATES[CostKind.GPU]


def test_a_machine_that_was_first_looked_at_in_its_removal_is_not_ours_to_charge():
    ledger = Ledger()
    ledger.look(0, 1, Phase.REMOVING)
    assert ledger.spans(CostKind.GPU) == []


@pytest.mark.proves("L6")
@pytest.mark.parametrize("step", [3600, -3600])
def test_a_step_of_the_clock_is_cut_out(step):
    span = CostSpan("m", CostKind.GPU, RATES[CostKind.GPU], Edge(at(0), at(2)), "pulling")
    old, new = cut_at_seam(span, at(100), at(100 + step), at(100))
    end = at(200 + step)
    assert old.cost(end) + new.cost(end) == pytest.approx(
        cost_nano(span.rate.nano_usd, timedelta(seconds=199)), abs=2
    )


def test_what_stood_still_before_any_list_could_be_believed_may_run_again_since_then():
    """Chaos seed 5296: pages were missing, so no list was believable, and one showed it in a move."""
    ledger = Ledger()
    ledger.look(0, 1, Phase.RUNNING)
    ledger.previous = None
    ledger.look(10, 1, Phase.MIGRATING)
    ledger.previous = None
    ledger.look(60, 1, Phase.RUNNING)
    *_, going_on = ledger.spans(CostKind.GPU)
    assert going_on.began.lo <= at(11)
    assert going_on.began.hi == at(61)
