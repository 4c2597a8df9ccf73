"""What a list costs is written with the list, in memory, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from gpuherd.adapters.sql.database import PARAMETERS_MAX
from gpuherd.domain.clock_reading import ClockReading, ClockSeam
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.money.meter import Metering
from gpuherd.domain.money.meter_reading import ListTimes, Tariff
from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import Edge, PriceSource, nano_usd
from gpuherd.ports.costs_port import CostQuery, GroupBy
from gpuherd.ports.instance_port import Change
from tests.support.builders import (
    a_list,
    a_machine,
    a_running_instance,
    a_sighting,
    a_tagged_machine,
    an_attempt,
    an_event,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import START

MINUTE = timedelta(minutes=1)
PRICES = Tariff({("spot", "p", "c"): Decimal(1)})
_ALL = Period(START - MINUTE, START + 60 * MINUTE)
PRICED: Any = {"product_id": "p", "cluster_id": "c", "billing_mode": "spot", "gpu_num": 1}


def at(minutes: int) -> ListTimes:
    return ListTimes(START + minutes * MINUTE, START + minutes * MINUTE)


async def see(
    store, minutes, *seen, known=(), previous=None, tariff=PRICES, seam=None, also=(), reading=None
) -> None:
    """Write down a list with what it costs."""
    metering = Metering(
        before={it.machine.cloud_id: it for it in known},
        previous=at(minutes - 1) if previous is None else previous,
        this=at(minutes),
        tariff=tariff,
        seam=seam,
        also=also,
        reading=reading,
    )
    await store.observations.record(a_list(minutes * MINUTE), seen, [], metering)


async def spans_of_all(store):
    return [it.span for it in await store.costs.open_spans()]


@pytest.mark.proves("L7")
async def test_a_machine_of_nobody_is_metered_by_the_catalogue(store):
    await store.observations.record(a_list(MINUTE / 2), [a_sighting(a_machine(1, **PRICED))], [])
    assert set(await store.observations.unmetered()) == {"machine-1"}
    await see(store, 1, a_sighting(a_machine(1, **PRICED)))
    (found,) = await store.costs.open_spans()
    assert found.span.began == Edge(START, START + MINUTE)
    assert found.span.rate.nano_usd == nano_usd(Decimal(1))
    assert found.span.rate.source is PriceSource.CATALOGUE
    assert found.subject.instance_id is None
    assert not await store.observations.unmetered()


async def test_more_machines_than_are_read_at_once_all_have_their_spans(store):
    await store.instances.add(Change(a_running_instance(1)))
    many = [a_sighting(a_machine(n, **PRICED)) for n in range(1, PARAMETERS_MAX + 3)]
    await see(store, 1, *many)
    found = await store.costs.open_spans()
    assert sorted(it.span.cloud_id for it in found) == sorted(it.machine.cloud_id for it in many)
    # The clock is set back: each of them ends there, and goes on behind it.
    seam = ClockSeam(START + 2 * MINUTE, START, START)
    await see(store, 3, known=many, seam=seam)
    cut = await spans_of_all(store)
    assert len(cut) == len(many)
    assert {it.began.lo for it in cut} == {seam.after}


async def test_a_machine_that_is_found_by_its_tag_costs_what_its_attempt_agreed(store):
    sent = an_attempt(1, state=AttemptState.UNKNOWN, sent_at=START - MINUTE, product_id="p")
    await store.instances.add(Change(an_instance(1), attempt=sent))
    await see(store, 1, a_sighting(a_tagged_machine(1, **PRICED)))
    (found,) = await store.costs.open_spans()
    assert found.span.began == Edge(START - MINUTE, START + MINUTE)
    assert found.span.rate.nano_usd == nano_usd(sent.gpu_hourly_usd)
    assert found.subject.instance_id == instance_id(1)


@pytest.mark.proves("L4")
async def test_a_stop_ends_it_and_a_crash_repeats_both_or_neither(store):
    running = a_sighting(a_machine(1, **PRICED))
    await see(store, 1, running)
    stopped = a_sighting(a_machine(1, phase=Phase.STOPPED, **PRICED))
    with pytest.raises(IntegrityError):
        # The second of them is refused, and with it all of the list.
        await see(store, 2, stopped, stopped, known=[running])
    assert len(await spans_of_all(store)) == 1
    await see(store, 2, stopped, known=[running])
    assert await spans_of_all(store) == []


async def test_an_instance_that_gets_its_machine_later_gets_its_spans_too(store):
    running = a_sighting(a_machine(1, **PRICED))
    await see(store, 1, running)
    stopped = a_sighting(a_machine(1, phase=Phase.STOPPED, **PRICED))
    await see(store, 2, stopped, known=[running])
    await see(store, 3, running, known=[stopped])
    adopted = replace(a_running_instance(1), cloud_id="machine-1")
    event = an_event(1, type=instance_event.ADOPTED)
    await store.instances.add(Change(adopted, events=(event,)))
    assert len(await store.costs.spans_of(instance_id(1))) == 2
    (found,) = await store.costs.open_spans()
    assert (found.subject.instance_id, found.subject.owner) == (instance_id(1), adopted.owner)


@pytest.mark.proves("L6")
async def test_a_call_is_placed_by_the_time_since_although_the_clock_was_set_twice_unnoticed(store):
    """Set ahead by ten minutes before the call, and back after it, between two lists that both miss it."""
    sent = ClockReading(START + 11 * MINUTE, MINUTE, "boot")
    for n in (1, 2):
        call = an_attempt(n, sent_at=sent.at, sent_reading=sent, product_id="p")
        await store.instances.add(Change(an_instance(n), attempt=call))
    reading = ClockReading(START + 20 * MINUTE, 20 * MINUTE, "boot")
    await see(store, 20, a_sighting(a_tagged_machine(1, **PRICED)), reading=reading)
    (span,) = await spans_of_all(store)
    assert span.began == (START + MINUTE, START + 20 * MINUTE)
    # Of another boot nothing can be told by the time since.
    reading = replace(reading, at=START + 21 * MINUTE, boot_id="another")
    await see(store, 21, a_sighting(a_tagged_machine(2, **PRICED)), reading=reading)
    assert {it.began.lo for it in await spans_of_all(store)} == {START + MINUTE, sent.at}


@pytest.mark.proves("F60")
async def test_what_a_machine_cost_stays_with_its_instance_when_its_id_is_given_to_another(store):
    """By a cloud that uses ids again, the second one paid for the first, and the first for nothing."""
    bound = an_attempt(1, state=AttemptState.BOUND, cloud_id="machine-1", sent_at=START, product_id="p")
    await store.instances.add(Change(a_running_instance(1), attempt=bound))
    first = a_sighting(a_tagged_machine(1, **PRICED))
    await see(store, 1, first)
    sent = an_attempt(2, state=AttemptState.UNKNOWN, sent_at=START + 3 * MINUTE, product_id="p")
    await store.instances.add(Change(an_instance(2), attempt=sent))
    second = replace(a_tagged_machine(2, **PRICED), cloud_id="machine-1")
    await see(store, 5, a_sighting(second), known=[first])
    (ended,) = await store.costs.spans_of(instance_id(1))
    (going_on,) = await store.costs.spans_of(instance_id(2))
    assert ended.ended_by == "replaced"
    assert going_on.ended is None
    query = CostQuery(_ALL, by=GroupBy.INSTANCE)
    report = await store.costs.report(query, START + 5 * MINUTE)
    amounts = {it.value: it.amount for it in report.groups}
    assert amounts[instance_id(1)] == ended.cost(START) > 0
    settled = (await store.instances.get(instance_id(1))).cost
    assert (settled.amount, settled.rate) == (ended.cost(START), 0)
    # That a list has shown it is on record, so nothing is stated for it a second time.
    known = await store.instances.get(instance_id(1))
    deleted = an_event(1, sequence=known.sequence + 1, type=instance_event.DELETED)
    await store.instances.update(Change(replace(known, status=Status.DELETED), events=(deleted,)))
    assert len(await store.costs.spans_of(instance_id(1))) == 1


async def test_what_no_list_has_shown_of_a_machine_that_is_gone_is_in_doubt(store):
    bound = an_attempt(1, state=AttemptState.BOUND, cloud_id="machine-1", sent_at=START - MINUTE)
    gone = replace(a_running_instance(1), cloud_id="machine-1", status=Status.DELETED)
    await store.instances.add(Change(a_running_instance(1, cloud_id="machine-1"), attempt=bound))
    known = await store.instances.get(instance_id(1))
    deleted = an_event(1, sequence=known.sequence + 1, type=instance_event.DELETED)
    await store.instances.update(Change(replace(gone, version=known.version), events=(deleted,)))
    (span,) = await store.costs.spans_of(instance_id(1))
    assert span.began == span.ended == Edge(START - MINUTE, START)


async def test_what_no_list_has_shown_is_in_doubt_since_its_call_although_the_clock_was_set_back_unnoticed(
    store,
):
    """By the wall clock alone its call went out after its end (seed 801187)."""
    sent = ClockReading(START + MINUTE, timedelta(0), "boot")
    call = an_attempt(1, state=AttemptState.BOUND, cloud_id="machine-1", sent_at=sent.at, sent_reading=sent)
    await store.instances.add(Change(a_running_instance(1, cloud_id="machine-1"), attempt=call))
    known = await store.instances.get(instance_id(1))
    deleted = an_event(1, sequence=known.sequence + 1, type=instance_event.DELETED)
    reading = ClockReading(START, timedelta(seconds=10), "boot")
    gone = replace(known, status=Status.DELETED)
    await store.instances.update(Change(gone, events=(deleted,), reading=reading))
    (span,) = await store.costs.spans_of(instance_id(1))
    assert span.began == span.ended == Edge(START - timedelta(seconds=10), START)


async def test_a_machine_that_no_list_has_shown_is_in_doubt_until_its_removal_is_proven(store, store_clock):
    bound = an_attempt(1, state=AttemptState.BOUND, cloud_id="machine-1", sent_at=START - MINUTE)
    await store.instances.add(Change(a_running_instance(1, cloud_id="machine-1"), attempt=bound))
    known = await store.instances.get(instance_id(1))
    failed = replace(known, status=Status.FAILED, on_failure=OnFailure.DELETE, ready_at=None, releasing=True)
    event = an_event(1, sequence=known.sequence + 1, type=instance_event.FAILED)
    await store.instances.update(Change(failed, events=(event,)))
    # It is still there, and costs.
    assert await store.costs.spans_of(instance_id(1)) == []
    await store_clock.advance(60.0)
    released = await store.instances.get(instance_id(1))
    await store.instances.update(Change(replace(released, releasing=False)))
    (span,) = await store.costs.spans_of(instance_id(1))
    assert span.began == span.ended == Edge(START - MINUTE, START + MINUTE)


async def test_a_step_of_the_clock_cuts_everything_that_goes_on(store):
    running = a_sighting(a_machine(1, **PRICED))
    await see(store, 1, running)
    hour = 60 * MINUTE
    seam = ClockSeam(START + MINUTE, START + MINUTE + hour, START + 2 * MINUTE)
    before = ListTimes(START + MINUTE + hour, START + MINUTE + hour)
    await see(store, 62, known=[running], previous=before, seam=seam)
    (span,) = await spans_of_all(store)
    assert span.began == Edge(START + MINUTE + hour, START + MINUTE + hour)
    assert (await store.observations.meter_state()).seams == (seam,)


async def test_a_price_that_becomes_known_counts_from_the_begin(store):
    running = a_sighting(a_machine(1, **PRICED))
    await see(store, 1, running, tariff=Tariff())
    assert (await store.observations.meter_state()).unpriced == {"machine-1"}
    stopped = a_sighting(a_machine(1, phase=Phase.STOPPED, **PRICED))
    await see(store, 2, stopped, known=[running], tariff=Tariff())
    await see(store, 3, known=[stopped], also=(stopped,))
    assert (await store.observations.meter_state()).unpriced == frozenset()
    (metered,) = await store.costs.metered(_ALL, START + 3 * MINUTE)
    assert metered.amount == nano_usd(Decimal(1)) // 60


async def test_the_clocks_are_read_back_as_they_were_written(store):
    reading = ClockReading(START, timedelta(seconds=12.345678), "boot")
    await store.observations.record(a_list(reading=reading), [], [])
    last = await store.observations.last_list()
    assert last is not None and last.reading == reading


async def test_an_instance_says_what_it_has_cost_and_a_turn_does_not_lose_its_save_by_that(store):
    await store.instances.add(Change(a_running_instance(1)))
    before = await store.instances.get(instance_id(1))
    running = a_sighting(a_machine(1, **PRICED))
    await see(store, 1, running)
    known = await store.instances.get(instance_id(1))
    assert known.cost.rate == nano_usd(Decimal(1))
    assert (known.cost.amount, known.cost.at) == (nano_usd(Decimal(1)) // 120, START + MINUTE)
    assert known.cost.doubt == nano_usd(Decimal(1)) // 120 + 2
    settled = replace(known, version=known.version, settled=before.settled)
    await store.instances.update(Change(replace(settled, reason="saved")))
    assert (await store.instances.get(instance_id(1))).cost == known.cost
    await see(store, 61, a_sighting(a_machine(1, phase=Phase.STOPPED, **PRICED)), known=[running])
    ended = (await store.instances.get(instance_id(1))).cost
    assert (ended.rate, ended.amount) == (0, nano_usd(Decimal(1)))
