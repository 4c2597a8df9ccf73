"""What a report has, and who sees what of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from gpuherd.domain.api_key import ADMIN, Caller, Scope
from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import NANO
from gpuherd.ports.costs_port import GroupBy
from tests.support.fake_billing import FakeBilling, charge
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.metered import HOUR, meter

START = datetime(2026, 11, 10, tzinfo=UTC)
DAY = timedelta(days=1)
TEN_DAYS = Period(START, START + 10 * DAY)
ADA = Caller("key-ada", Scope.READ)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START + 3 * DAY, auto=True)


@pytest.fixture
def billing(herd: Herd) -> FakeBilling:
    return FakeBilling.instead_of(herd)


async def spend(herd: Herd) -> None:
    await meter(herd, "m-ada", START + HOUR, 2, instance_id="inst_ada", owner="key-ada")
    await meter(herd, "m-bob", START + DAY, 3, instance_id="inst_bob", owner="key-bob")
    await meter(herd, "m-other", START + DAY, 4)


async def test_an_admin_sees_the_whole_account_and_what_was_nobodys(herd: Herd) -> None:
    await spend(herd)
    found = await herd.costs(TEN_DAYS, GroupBy.KEY, "", ADMIN)
    assert found.report.amount == 9 * NANO
    assert found.report.waste.unbound == 4 * NANO
    assert {it.value: it.amount for it in found.report.groups} == {
        "key-ada": 2 * NANO,
        "key-bob": 3 * NANO,
        None: 4 * NANO,
    }


@pytest.mark.proves("L10")
async def test_any_other_key_sees_its_own_money_and_no_more(herd: Herd, billing: FakeBilling) -> None:
    await spend(herd)
    billing.rows = [charge("m-bob", START + DAY, "3"), charge("m-ada", START + HOUR, "2")]
    await herd.reconcile_bill((START + DAY).date())
    for by in (GroupBy.INSTANCE, GroupBy.KEY, GroupBy.DAY, GroupBy.PRODUCT, GroupBy.REGION):
        found = await herd.costs(TEN_DAYS, by, "", ADA)
        assert found.report.amount == 2 * NANO, by
        assert found.report.waste.unbound == 0
        assert sum(it.amount for it in found.report.groups) == 2 * NANO
        assert found.billed is None
    assert (await herd.costs(TEN_DAYS, GroupBy.KEY, "", ADMIN)).billed is not None


async def test_the_bill_stands_beside_what_was_metered_on_the_days_that_were_compared(
    herd: Herd, billing: FakeBilling
) -> None:
    await spend(herd)
    assert (await herd.costs(TEN_DAYS, GroupBy.DAY, "", ADMIN)).billed is None
    billing.rows = [charge("m-bob", START + DAY, "3.5"), charge("m-other", START + DAY, "4")]
    await herd.reconcile_bill((START + DAY).date())
    billed = (await herd.costs(TEN_DAYS, GroupBy.DAY, "", ADMIN)).billed
    assert billed is not None
    assert (billed.through, billed.billed, billed.metered) == (date(2026, 11, 11), 7.5 * NANO, 7 * NANO)


async def test_a_day_of_which_a_part_is_asked_for_is_not_compared(herd: Herd, billing: FakeBilling) -> None:
    await spend(herd)
    billing.rows = [charge("m-bob", START + DAY, "3.5")]
    await herd.reconcile_bill((START + DAY).date())
    part = Period(START + DAY + HOUR, START + 2 * DAY)
    assert (await herd.costs(part, GroupBy.DAY, "", ADMIN)).billed is None


async def test_a_day_on_which_nothing_was_billed_counts_as_compared(herd: Herd, billing: FakeBilling) -> None:
    await spend(herd)
    await herd.reconcile_bill(START.date())
    billed = (await herd.costs(TEN_DAYS, GroupBy.DAY, "", ADMIN)).billed
    assert billed is not None
    assert (billed.through, billed.billed, billed.metered) == (START.date(), 0, 2 * NANO)


async def test_what_goes_on_is_counted_up_to_now(herd: Herd) -> None:
    await meter(herd, "m-ada", START + DAY, instance_id="inst_ada", owner="key-ada")
    found = await herd.costs(TEN_DAYS, GroupBy.INSTANCE, "", ADA)
    assert found.report.amount == 48 * NANO
    assert found.report.hourly_now == NANO
