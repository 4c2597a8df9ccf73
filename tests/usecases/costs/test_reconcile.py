"""The ledger beside the provider's bill: what is kept, what is told, and what is left alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.money.bill import BillCategory
from gpuherd.domain.money.usage_span import NANO, CostKind
from gpuherd.ports.event_port import EventFilter, LoggedEvent
from tests.support.fake_billing import FakeBilling, charge
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.metered import HOUR, meter

YESTERDAY = datetime(2026, 11, 10, tzinfo=UTC)
TODAY = YESTERDAY + timedelta(days=1)
DAY = YESTERDAY.date()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(TODAY + 12 * HOUR, auto=True)


@pytest.fixture
def billing(herd: Herd) -> FakeBilling:
    return FakeBilling.instead_of(herd)


async def told(herd: Herd, type: str) -> list[LoggedEvent]:
    return list(await herd.stores.events.before(None, 100, EventFilter(type=type)))


async def test_what_agrees_is_kept_and_not_told(herd: Herd, billing: FakeBilling) -> None:
    await meter(herd, "m1", YESTERDAY + HOUR, 5, instance_id="inst_1", owner="admin")
    billing.rows = [charge("m1", YESTERDAY + n * HOUR, "1") for n in range(1, 6)]
    found = await herd.reconcile_bill(DAY)
    (line,) = found.lines
    assert (line.cloud_id, line.instance_id) == ("m1", "inst_1")
    assert (line.metered, line.billed, line.drift) == (5 * NANO, 5 * NANO, 0)
    assert await told(herd, "costs.drift") == []
    again = await herd.compare_bill(DAY)
    assert again == found


async def test_cards_and_disk_of_a_machine_are_one_line(herd: Herd, billing: FakeBilling) -> None:
    await meter(herd, "m1", YESTERDAY, 2)
    await meter(herd, "m1", YESTERDAY, 2, usd="0.5", kind=CostKind.DISK)
    billing.rows = [
        charge("m1", YESTERDAY, "2"),
        charge("m1", YESTERDAY, "1", category=BillCategory.STORAGE),
    ]
    (line,) = (await herd.reconcile_bill(DAY)).lines
    assert (line.metered, line.billed) == (3 * NANO, 3 * NANO)


@pytest.mark.proves("L9")
async def test_a_drift_is_told_once_and_the_ledger_stays_as_it_is(herd: Herd, billing: FakeBilling) -> None:
    await meter(herd, "m1", YESTERDAY, 5, instance_id="inst_1", owner="admin")
    billing.rows = [charge("m1", YESTERDAY, "4"), charge("m2", YESTERDAY, "0.05")]
    for _ in range(3):
        await herd.reconcile_bill(DAY)
    (event,) = await told(herd, "costs.drift")
    assert event.event.instance_id == "account"
    details = event.event.details
    assert (details["day"], details["drift"]) == ("2026-11-10", "1")
    # The other one is not worth a word.
    assert [it["cloudInstanceId"] for it in details["rows"]] == ["m1"]
    metered = (await herd.compare_bill(DAY)).metered
    assert metered == 5 * NANO


async def test_a_drift_that_grows_is_told_again(herd: Herd, billing: FakeBilling) -> None:
    await meter(herd, "m1", YESTERDAY, 5)
    billing.rows = [charge("m1", YESTERDAY, "4")]
    await herd.reconcile_bill(DAY)
    billing.rows = [charge("m1", YESTERDAY, "3")]
    await herd.reconcile_bill(DAY)
    assert len(await told(herd, "costs.drift")) == 2


async def test_what_the_meter_is_not_sure_of_is_no_drift(herd: Herd, billing: FakeBilling) -> None:
    await meter(herd, "m1", YESTERDAY + HOUR, 5, doubt_s=1800)
    billing.rows = [charge("m1", YESTERDAY + HOUR, "4.2")]
    await herd.reconcile_bill(DAY)
    assert await told(herd, "costs.drift") == []


async def test_a_day_whose_bill_is_not_whole_yet_is_compared_and_not_told(
    herd: Herd, billing: FakeBilling
) -> None:
    await meter(herd, "m1", TODAY, 5)
    found = await herd.reconcile_bill(TODAY.date())
    assert (found.metered, found.billed) == (5 * NANO, 0)
    assert await told(herd, "costs.drift") == []


async def test_a_drift_goes_to_endpoints_and_to_no_instance(herd: Herd, billing: FakeBilling) -> None:
    await herd.launch(webhook_url="https://example.com/own")
    await herd.run_for(timedelta(minutes=3))
    await herd.add_endpoint("https://example.com/all")
    before = len(herd.receiver.got)
    await meter(herd, "m1", YESTERDAY, 5)
    await herd.reconcile_bill(DAY)
    await herd.run_for(timedelta(minutes=1))
    bodies = [json.loads(body) for _, body in herd.receiver.got[before:]]
    assert [it["type"] for it in bodies] == ["costs.drift"]
    assert bodies[0]["data"]["drift"] == "5"


async def test_a_price_that_is_billed_otherwise_is_told_once(herd: Herd, billing: FakeBilling) -> None:
    await meter(herd, "m1", YESTERDAY, 1, usd="0.5", instance_id="inst_1", owner="admin")
    await meter(herd, "m2", YESTERDAY, 1, usd="0.7")
    billing.rows = [
        charge("m1", YESTERDAY, "0.55", unit="0.55"),
        charge("m2", YESTERDAY, "0.7", unit="0.35", quantity=7200),
    ]
    await herd.reconcile_bill(DAY)
    await herd.reconcile_bill(DAY)
    (event,) = await told(herd, "costs.price_changed")
    assert event.event.details["cloudInstanceId"] == "m1"
    assert Decimal(event.event.details["billedPrice"]) == Decimal("0.55")


async def test_the_day_before_is_asked_for_until_its_bill_is_whole(
    herd: Herd, billing: FakeBilling, clock: FakeClock
) -> None:
    await herd.reconcile_yesterday()
    assert billing.calls == 1
    await herd.reconcile_yesterday()
    assert billing.calls == 1
    await clock.advance(13 * 3600)
    # An hour after midnight rows are missing still.
    await herd.reconcile_yesterday()
    await herd.reconcile_yesterday()
    assert billing.calls == 3
    await clock.advance(3 * 3600)
    await herd.reconcile_yesterday()
    await herd.reconcile_yesterday()
    assert billing.calls == 4


async def test_a_bill_that_cannot_be_had_is_no_failure_of_the_loop(herd: Herd, billing: FakeBilling) -> None:
    billing.error = CloudUnavailable("no answer")
    await herd.reconcile_yesterday()
    assert (await herd.compare_bill(DAY)).billed is None


async def test_the_simulators_own_bill_agrees_with_what_it_charged(herd: Herd, clock: FakeClock) -> None:
    """Rows of the real double of Novita, not of a fake."""
    found = await herd.reconcile_bill(DAY)
    assert (found.lines, found.billed) == ((), 0)
