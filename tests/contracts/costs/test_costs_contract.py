"""What the ledger of costs promises, in memory, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy.exc import IntegrityError

from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    CostSubject,
    Edge,
    PriceSource,
    Rate,
    nano_usd,
)
from gpuherd.ports.costs_port import (
    BilledDay,
    CostGroup,
    CostQuery,
    CostReport,
    GroupBy,
)

HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
MONTH = Period(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
ONE_USD = Rate(nano_usd(Decimal(1)), PriceSource.RENTAL)
USD = nano_usd(Decimal(1))

ADAS = CostSubject(
    "m-ada",
    "inst_ada",
    "key-ada",
    NOON,
    name="ada",
    product_name="RTX 4090",
    region="EU-1",
    billing_mode="spot",
    labels={"team": "red"},
    usable_at=NOON,
)
BOBS = CostSubject(
    "m-bob",
    "inst_bob",
    "key-bob",
    NOON,
    name="bob",
    product_name="H100",
    region="US-1",
    billing_mode="onDemand",
    labels={"team": "blue", "tier": "x"},
    usable_at=NOON,
)
NOBODYS = CostSubject("m-other", None, None, NOON, name="stranger", product_name="RTX 4090", region="EU-1")
SUBJECTS: Mapping[str, CostSubject] = {it.cloud_id: it for it in (ADAS, BOBS, NOBODYS)}


def exactly(moment: datetime) -> Edge:
    return Edge(moment, moment)


def span(
    cloud_id: str = "m-ada",
    begin: datetime = NOON,
    hours: float | None = None,
    kind: CostKind = CostKind.GPU,
    rate: Rate = ONE_USD,
) -> CostSpan:
    ended = None if hours is None else exactly(begin + hours * HOUR)
    return CostSpan(
        cloud_id, kind, rate, exactly(begin), "pulling", ended, "" if hours is None else "stopped"
    )


async def report(store, by=GroupBy.KEY, period=MONTH, now=NOON + 5 * HOUR, **more) -> CostReport:
    return await store.costs.report(CostQuery(period, by, **more), now)


async def test_nothing_costs_nothing(store):
    found = await report(store)
    assert (found.amount, found.doubt, found.hourly_now, found.groups) == (0, 0, 0, ())
    assert found.by_kind == {CostKind.GPU: 0, CostKind.DISK: 0, CostKind.VOLUME: 0}


async def test_what_has_ended_and_what_goes_on_add_up(store):
    await store.write_spans([span(hours=2), span("m-bob"), span("m-bob", kind=CostKind.DISK)], SUBJECTS)
    found = await report(store)
    assert found.amount == (2 + 5 + 5) * USD
    assert found.by_kind == {CostKind.GPU: 7 * USD, CostKind.DISK: 5 * USD, CostKind.VOLUME: 0}
    assert found.hourly_now == 2 * USD
    assert found.groups == (
        CostGroup("key-bob", 10 * USD, 0, 2 * USD, 1),
        CostGroup("key-ada", 2 * USD, 0, 0, 1),
    )


@pytest.mark.parametrize("by", [GroupBy.INSTANCE, GroupBy.LINEAGE])
async def test_of_very_many_only_the_dearest_are_told_apart_and_all_are_in_the_sums(store, by):
    many = [span(hours=1), span("m-bob", hours=2), span("m-bob", NOON + 3 * HOUR), span("m-other", hours=3)]
    await store.write_spans(many, SUBJECTS)
    found = await report(store, by, groups_max=1)
    name = "bob" if by is GroupBy.INSTANCE else ""
    assert found.groups == (CostGroup("inst_bob", 4 * USD, 0, USD, 1, name),)
    assert found.groups_left_out == 2
    assert (found.amount, found.hourly_now) == (8 * USD, USD)
    assert found.by_kind[CostKind.GPU] == 8 * USD
    assert found.waste.unbound == 3 * USD
    everything = await report(store, by)
    assert (everything.groups_left_out, len(everything.groups)) == (0, 3)


@pytest.mark.parametrize("by", [GroupBy.KEY, GroupBy.INSTANCE])
async def test_an_old_machine_beside_its_heir_is_overlap(store, by):
    ada = SUBJECTS["m-ada"]
    heir = replace(
        ada, cloud_id="m-heir", instance_id="inst_heir", lineage="inst_ada", usable_at=NOON + 2 * HOUR
    )
    subjects = {**SUBJECTS, "m-ada": replace(ada, usable_at=NOON), "m-heir": heir}
    await store.write_spans([span(hours=3), span("m-heir", NOON + HOUR), span("m-bob")], subjects)
    found = await report(store, by)
    assert found.waste.overlap == USD, "the last of its three hours"
    half = Period(NOON, NOON + 2.5 * HOUR)
    assert (await report(store, by, half)).waste.overlap == USD // 2
    assert (await report(store, by, owner="key-ada")).waste.overlap == USD
    assert (await report(store, by, owner="key-bob")).waste.overlap == 0


@pytest.mark.parametrize("by", [GroupBy.INSTANCE, GroupBy.LINEAGE])
async def test_of_a_span_at_the_border_of_a_period_only_its_part_counts(store, by):
    wide = replace(span(hours=4), began=Edge(NOON, NOON + HOUR), ended=Edge(NOON + 4 * HOUR, NOON + 5 * HOUR))
    await store.write_spans([wide, span("m-bob", hours=1)], SUBJECTS)
    found = await report(store, by, Period(NOON + 2 * HOUR, NOON + 6 * HOUR))
    assert [it.value for it in found.groups] == ["inst_ada"]
    assert found.amount == 5 * USD // 2
    assert found.doubt - USD // 2 in (0, 1)
    assert (await report(store, by, Period(NOON, NOON + 6 * HOUR))).doubt == USD


@pytest.mark.parametrize(
    ("by", "label", "values"),
    [
        (GroupBy.INSTANCE, "", {"inst_ada", "inst_bob", None}),
        (GroupBy.PRODUCT, "", {"RTX 4090", "H100", None}),
        (GroupBy.REGION, "", {"EU-1", "US-1", None}),
        (GroupBy.KEY, "", {"key-ada", "key-bob", None}),
        # Without an heir it is a line of one.
        (GroupBy.LINEAGE, "", {"inst_ada", "inst_bob", None}),
        (GroupBy.LABEL, "team", {"red", "blue", None}),
        (GroupBy.LABEL, "tier", {"x", None}),
        (GroupBy.DAY, "", {"2026-11-16"}),
    ],
)
async def test_a_report_is_divided_by_what_is_asked_for(store, by, label, values):
    await store.write_spans([span(hours=1), span("m-bob", hours=1), span("m-other", hours=1)], SUBJECTS)
    found = await report(store, by, label=label)
    assert {it.value for it in found.groups} == values
    assert sum(it.amount for it in found.groups) == found.amount == 3 * USD
    assert found.waste.unbound == USD
    named = sum(it.instances for it in found.groups)
    assert named == 2


async def test_the_label_keys_of_a_period_are_those_of_all_who_cost_something_in_it(store):
    third = replace(ADAS, cloud_id="m-third", instance_id="inst_third", labels={"tier": "y", "alone": "1"})
    spans = [span(hours=1), span("m-bob", NOON - 24 * HOUR), span("m-other"), span("m-third", hours=2)]
    await store.write_spans(spans, {**SUBJECTS, "m-third": third})

    async def keys(period: Period, owner: str | None = None) -> list[str]:
        return list(await store.costs.label_keys(period, NOON + 5 * HOUR, owner))

    assert await keys(MONTH) == ["team", "tier", "alone"], "the most used first"
    assert await keys(MONTH, "key-ada") == ["alone", "team", "tier"]
    assert await keys(Period(NOON - 12 * HOUR, NOON)) == ["team", "tier"], "what has begun later is not there"
    assert await keys(Period(NOON + 3 * HOUR, NOON + 4 * HOUR)) == ["team", "tier"], "nor what has ended"
    assert await keys(Period(NOON - 48 * HOUR, NOON - 30 * HOUR)) == []
    assert await keys(Period(NOON + 48 * HOUR, NOON + 96 * HOUR)) == []


async def test_an_owner_sees_only_what_that_key_pays_for(store):
    await store.write_spans([span(hours=1), span("m-bob"), span("m-other")], SUBJECTS)
    found = await report(store, owner="key-ada")
    assert found.amount == USD
    assert (found.hourly_now, found.waste.unbound) == (0, 0)
    assert [it.value for it in found.groups] == ["key-ada"]
    assert [it.span.cloud_id for it in await store.costs.open_spans("key-bob")] == ["m-bob"]


async def test_a_period_cuts_what_has_ended_and_what_goes_on(store):
    yesterday = NOON - 24 * HOUR
    await store.write_spans([span(begin=yesterday, hours=20), span("m-bob", yesterday)], SUBJECTS)
    begin = datetime(2026, 11, 15, 20, tzinfo=UTC)
    for by in (GroupBy.KEY, GroupBy.INSTANCE, GroupBy.DAY):
        found = await report(store, by, Period(begin, begin + 6 * HOUR), NOON)
        assert found.amount == 12 * USD, by
    found = await report(store, GroupBy.DAY, MONTH, NOON)
    assert [(it.value, it.amount) for it in found.groups] == [
        ("2026-11-15", (12 + 12) * USD),
        ("2026-11-16", (8 + 12) * USD),
    ]
    assert [it.instances for it in found.groups] == [2, 2]


async def test_a_period_ahead_costs_nothing_yet(store):
    await store.write_spans([span()], SUBJECTS)
    ahead = Period(NOON + 48 * HOUR, NOON + 96 * HOUR)
    for by in GroupBy:
        found = await report(store, by, ahead)
        assert (found.amount, found.doubt, found.groups) == (0, 0, ())
        assert found.hourly_now == USD


async def test_in_a_period_that_is_over_is_only_what_cost_something_then(store):
    await store.write_spans([span(), span("m-bob", NOON - 24 * HOUR), span("m-other")], SUBJECTS)
    before = Period(NOON - 48 * HOUR, NOON - 12 * HOUR)
    for by in GroupBy:
        found = await report(store, by, before, label="team")
        assert [(it.amount, it.instances) for it in found.groups] == [(12 * USD, 1)], by
        assert found.hourly_now == 3 * USD
        assert (await report(store, by, Period(NOON - 96 * HOUR, before.begin), label="team")).groups == ()


async def test_what_has_only_just_begun_is_in_a_period_up_to_now(store):
    await store.write_spans([span()], SUBJECTS)
    (found,) = (await report(store, GroupBy.INSTANCE, Period(NOON - HOUR, NOON), now=NOON)).groups
    assert (found.value, found.amount, found.hourly_now, found.instances) == ("inst_ada", 0, USD, 1)


async def test_what_is_not_known_to_the_second_is_stated(store):
    wide = replace(
        span(hours=2),
        began=Edge(NOON, NOON + timedelta(seconds=20)),
        ended=Edge(NOON + HOUR, NOON + HOUR + timedelta(seconds=10)),
    )
    await store.write_spans([wide], SUBJECTS)
    for by in GroupBy:
        found = await report(store, by)
        assert found.amount == USD * 3595 // 3600
        assert 0 <= found.doubt - USD * 15 // 3600 <= 2


async def test_what_goes_on_may_have_ended_since_it_ceased_to_be_sure(store):
    await store.write_spans([replace(span(), sure_until=NOON + 4 * HOUR)], SUBJECTS)
    for by in GroupBy:
        found = await report(store, by)
        assert found.amount == 5 * USD
        assert 0 <= found.doubt - USD <= 1, by


async def test_an_edge_across_midnight_is_in_doubt_in_both_days(store):
    midnight = datetime(2026, 11, 16, tzinfo=UTC)
    wide = replace(
        span(), began=Edge(midnight - HOUR / 2, midnight + HOUR), ended=exactly(NOON), ended_by="stopped"
    )
    await store.write_spans([wide], SUBJECTS)
    found = await report(store, GroupBy.DAY)
    assert [(it.value, it.amount, it.doubt) for it in found.groups] == [
        ("2026-11-15", 0, USD // 2),
        ("2026-11-16", 11 * USD + USD * 3 // 4, USD),
    ]


async def test_a_span_is_opened_put_in_doubt_and_ended_under_one_number(store):
    await store.write_spans([span()], SUBJECTS)
    (first,) = await store.costs.spans_of("inst_ada")
    await store.write_spans([replace(first, sure_until=NOON + HOUR, missed_at=NOON + 2 * HOUR)], SUBJECTS)
    (doubtful,) = await store.costs.spans_of("inst_ada")
    assert doubtful == replace(first, sure_until=NOON + HOUR, missed_at=NOON + 2 * HOUR)
    ended = replace(first, ended=exactly(NOON + HOUR), ended_by="removed")
    await store.write_spans([ended], SUBJECTS)
    assert await store.costs.spans_of("inst_ada") == [ended]
    assert await store.costs.open_spans() == []
    assert (await report(store)).amount == USD


@pytest.mark.proves("L3")
async def test_there_is_one_open_span_of_a_machine_and_kind(store):
    await store.write_spans([span(), span(kind=CostKind.DISK)], SUBJECTS)
    with pytest.raises(IntegrityError):
        await store.write_spans([span(hours=1), span()], SUBJECTS)
    assert len(await store.costs.spans_of("inst_ada")) == 2


async def test_another_rate_goes_on_where_the_first_ended(store):
    await store.write_spans([span()], SUBJECTS)
    (old,) = await store.costs.spans_of("inst_ada")
    seam = exactly(NOON + HOUR)
    dearer = Rate(2 * USD, PriceSource.BILL)
    new = replace(old, id=0, rate=dearer, began=seam, began_by="rate")
    await store.write_spans([replace(old, ended=seam, ended_by="rate"), new], SUBJECTS)
    found = await report(store)
    assert (found.amount, found.hourly_now) == ((1 + 4 * 2) * USD, 2 * USD)


async def test_open_spans_say_whose_they_are(store):
    await store.write_spans([span("m-other"), span()], SUBJECTS)
    ours, other = await store.costs.open_spans()
    assert (ours.subject.instance_id, ours.subject.owner, ours.subject.labels) == (
        "inst_ada",
        "key-ada",
        {"team": "red"},
    )
    assert (other.subject.instance_id, other.subject.owner, other.subject.name) == (None, None, "stranger")
    assert ours.subject.product_name == "RTX 4090"


async def test_open_spans_of_one_kind_and_the_sum_of_all(store):
    assert await store.costs.hourly_now() == 0
    many = [span(hours=1), span("m-bob"), span("m-bob", kind=CostKind.DISK), span("m-other")]
    await store.write_spans(many, SUBJECTS)
    (disk,) = await store.costs.open_spans(kind=CostKind.DISK)
    assert (disk.span.cloud_id, disk.span.kind) == ("m-bob", CostKind.DISK)
    assert await store.costs.open_spans("key-ada", kind=CostKind.DISK) == []
    assert await store.costs.hourly_now() == 3 * USD
    assert [await store.costs.hourly_now(f"key-{it}") for it in ("ada", "bob")] == [0, 2 * USD]


async def test_an_instance_that_was_never_usable_is_waste_once_it_is_over(store):
    failed = replace(ADAS, usable_at=None)
    await store.write_spans([span(hours=1), span("m-bob", hours=1)], {**SUBJECTS, "m-ada": failed})
    assert (await report(store)).waste.failed_boots == USD


async def test_what_came_after_its_end_was_wanted_is_waste(store):
    unwanted = replace(ADAS, stop_wanted_at=NOON + HOUR)
    both = [span(hours=3), span(hours=3, kind=CostKind.DISK)]
    await store.write_spans(both, {**SUBJECTS, "m-ada": unwanted})
    for by in (GroupBy.KEY, GroupBy.INSTANCE, GroupBy.DAY):
        assert (await report(store, by)).waste.after_end == 2 * USD, by


async def test_each_machine_is_metered_apart_to_be_compared_with_the_bill(store):
    await store.write_spans([span(hours=1), span("m-other"), span(kind=CostKind.DISK, hours=2)], SUBJECTS)
    found = await store.costs.metered(MONTH, NOON + 2 * HOUR)
    assert [(it.cloud_id, it.instance_id, it.kind.value, it.amount) for it in found] == [
        ("m-ada", "inst_ada", "disk", 2 * USD),
        ("m-ada", "inst_ada", "gpu", USD),
        ("m-other", None, "gpu", 2 * USD),
    ]


async def test_a_metered_machine_tells_the_rates_that_it_had_in_the_period(store):
    half = Rate(USD // 2, PriceSource.RENTAL)
    before = span(begin=MONTH.begin - 9 * HOUR, hours=1, rate=Rate(9 * USD, PriceSource.RENTAL))
    await store.write_spans([before, span(hours=1), span(begin=NOON + HOUR, rate=half)], SUBJECTS)
    (found,) = await store.costs.metered(MONTH, NOON + 2 * HOUR)
    assert (found.rate_min, found.rate_max) == (USD // 2, USD)


async def test_what_has_ended_is_told_of_those_who_have_something_that_goes_on(store):
    spans = [
        span(hours=1),
        span(begin=NOON + 2 * HOUR, hours=1),
        span(begin=NOON + 4 * HOUR),
        span("m-bob", hours=3),
        span("m-other", hours=2),
        span("m-other", NOON + 3 * HOUR, kind=CostKind.DISK),
    ]
    await store.write_spans(spans, SUBJECTS)
    assert dict(await store.costs.earlier()) == {"inst_ada": 2 * USD, "m-other": 2 * USD}
    assert dict(await store.costs.earlier("key-ada")) == {"inst_ada": 2 * USD}
    assert dict(await store.costs.earlier("key-bob")) == {}


async def test_a_volume_is_no_machine_of_nobody(store):
    volume = replace(NOBODYS, cloud_id="vol-1", name="data")
    await store.write_spans([span("vol-1", hours=2, kind=CostKind.VOLUME)], {"vol-1": volume})
    for by in (GroupBy.KEY, GroupBy.INSTANCE, GroupBy.DAY):
        found = await report(store, by)
        assert (found.amount, found.by_kind[CostKind.VOLUME], found.waste.unbound) == (2 * USD, 2 * USD, 0)


async def test_the_bill_of_a_day_takes_the_place_of_the_one_before(store):
    day = date(2026, 11, 15)
    row = BilledDay(day, "m-ada", "gpu", 3600, USD, USD, 0, NOON)
    other = replace(row, day=day + timedelta(days=1))
    await store.costs.save_bill(day, [row, replace(row, category="cloud_storage")])
    await store.costs.save_bill(other.day, [other])
    dearer = replace(row, amount_nusd=2 * USD, fetched_at=NOON + HOUR)
    await store.costs.save_bill(day, [dearer])
    assert await store.costs.bill(day, other.day) == [dearer, other]
    assert await store.costs.bill(day, day) == [dearer]
