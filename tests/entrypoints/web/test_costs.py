"""The page about money: what it shows, and to whom."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import date
from decimal import Decimal

from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.money.budget import BudgetScope, ScopeKind
from gpuherd.domain.money.period import BudgetPeriod
from gpuherd.domain.money.usage_span import CostKind
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.entrypoints.web.money_pages import day_chart
from gpuherd.entrypoints.web.page_rendering import signed
from gpuherd.ports.costs_port import CostGroup, CostReport, Waste
from gpuherd.usecases.money.manage_budgets import BudgetRequest
from tests.entrypoints.web.conftest import Browser
from tests.support.budgets import USD
from tests.support.fake_billing import FakeBilling, charge
from tests.support.herd import Herd
from tests.support.metered import HOUR, meter, spend

NUMBER = re.compile(r"<dt>([^<]+)</dt><dd>([^<]*)")


def numbers(page: str) -> dict[str, str]:
    return dict(NUMBER.findall(page))


async def test_without_a_cent_spent_the_page_is_calm(admin: Browser) -> None:
    page = await admin.text("/money")
    assert numbers(page)["This month"] == "$0.00"
    assert "Nothing was spent in this time." in page
    assert "No day was compared yet." in page


async def test_everything_of_the_month_is_on_one_page(admin: Browser, herd: Herd) -> None:
    now = herd.clock.now()
    await herd.clock.sleep(6 * 3600)
    mine = {"instance_id": "inst_1", "owner": "admin", "labels": {"team": "nlp"}, "name": "<b>trainer</b>"}
    await meter(herd, "m1", now, usd="0.5", **mine)  # type: ignore[arg-type]
    await meter(herd, "m2", now, 2, usd="1")
    page = await admin.text("/money")
    shown = numbers(page)
    assert (shown["Today"], shown["This month"], shown["Goes on"]) == ("$5.00", "$5.00", "$0.50/h")
    # Half a dollar an hour for the rest of January.
    assert shown["By its end"] == "$374.00"
    assert shown["Lasts"] == "833"
    assert "&lt;b&gt;trainer" in page
    assert "Machines that no instance has" in page
    assert "40.0 %" in page
    assert re.search(r'role="img" aria-label="What each day has cost[^"]+dearest \$5\.00', page)
    assert "<title>2026-01-01: $5.00</title>" in page


async def test_the_overview_tells_the_same_that_goes_on_as_money(
    admin: Browser, signed_in: Callable[[str], Awaitable[Browser]], herd: Herd
) -> None:
    now = herd.clock.now()
    await meter(herd, "m1", now, usd="0.5", instance_id="inst_1", owner="admin")
    await meter(herd, "m2", now, usd="0.2", name="somebody-elses")
    await meter(herd, "vol-1", now, usd="0.05", kind=CostKind.VOLUME)
    assert numbers(await admin.text("/money"))["Goes on"] == "$0.75/h"
    page = await admin.text("/")
    assert numbers(page)["Costs now"] == "$0.75/h"
    assert "volumes and machines of nobody included" in page
    others = await (await signed_in("read")).text("/")
    assert numbers(others)["Costs now"] == "$0.00/h"
    assert "machines of nobody" not in others


async def test_a_label_is_there_as_long_as_its_month_although_its_last_instance_has_ended(
    admin: Browser, herd: Herd
) -> None:
    now = herd.clock.now()
    await herd.clock.sleep(6 * 3600)
    mine = {"instance_id": "inst_1", "owner": "admin", "labels": {"team": "nlp"}, "name": "trainer"}
    await meter(herd, "m1", now, 2, usd="0.5", **mine)  # type: ignore[arg-type]
    page = await admin.text("/money")
    assert '<th scope="col">team</th>' in page
    assert '<td class="name">nlp</td><td class="num">$1.00</td>' in page


async def test_the_bill_stands_beside_the_meter(admin: Browser, herd: Herd) -> None:
    await spend(herd)
    billing = FakeBilling.instead_of(herd)
    billing.rows = [charge("m1", herd.clock.now() - 47 * HOUR, "4.6")]
    await herd.reconcile_bill(date(2025, 12, 30))
    page = await admin.text("/money")
    assert "look at it" in page
    assert "+$3.145" in page


async def test_a_day_whose_bill_cannot_be_whole_yet_is_not_judged(admin: Browser, herd: Herd) -> None:
    await spend(herd)
    billing = FakeBilling.instead_of(herd)
    billing.rows = [charge("m1", herd.clock.now() - 20 * HOUR, "4.6")]
    await herd.reconcile_bill(date(2025, 12, 31))
    page = await admin.text("/money")
    assert "not whole yet" in page
    assert "look at it" not in page
    await herd.clock.sleep(3 * 3600)
    await herd.reconcile_bill(date(2025, 12, 31))
    page = await admin.text("/money")
    assert "not whole yet" not in page
    assert "look at it" in page


async def test_a_provider_that_does_not_answer_leaves_a_gap_and_no_error(admin: Browser, herd: Herd) -> None:
    billing = FakeBilling.instead_of(herd)
    billing.error = CloudUnavailable("no answer")
    assert "the provider does not say what is left" in await admin.text("/money")


async def test_a_key_that_is_not_admin_sees_its_own_money(
    signed_in: Callable[[str], Awaitable[Browser]], herd: Herd, plane: Plane
) -> None:
    await spend(herd)
    browser = await signed_in("read")
    page = await browser.text("/money")
    assert "Lasts" not in numbers(page)
    assert numbers(page)["This month"] == "$0.00"
    for hidden in ("By key", "bill</h2>", "Machines that no instance has", "somebody-elses", "trainer"):
        assert hidden not in page, hidden


def test_a_difference_has_a_sign_unless_it_is_none() -> None:
    shown = [signed(Decimal(it)) for it in ("1.5", "-1.5", "0", "-0.00001")]
    assert shown == ["+$1.50", "−$1.50", "$0.00", "$0.00"]


def test_the_dearest_day_fills_the_chart_and_no_bar_leaves_it() -> None:
    groups = tuple(CostGroup(f"2026-11-{n:02}", n * 10**9, 0, 0, 1) for n in range(1, 31))
    report = CostReport(0, 0, 0, {}, Waste(), groups)
    chart = day_chart(report, date(2026, 11, 1), date(2026, 11, 30))
    assert len(chart.bars) == 30
    assert chart.bars[-1].y == chart.top_y
    assert all(it.y + it.height == chart.axis_y for it in chart.bars)
    assert all(it.x_percent >= 0 and it.x_percent + it.width_percent <= 100 for it in chart.bars)
    assert [it.tick for it in chart.bars if it.tick][-1] == "30."


async def test_budgets_are_bars_that_admins_see(admin: Browser, herd: Herd) -> None:
    assert "gpuherd budgets add" in await admin.text("/money")
    red = BudgetScope(ScopeKind.LABEL, "team", "<b>red")
    wanted = BudgetRequest("nlp", red, 10 * USD, BudgetPeriod.TOTAL)
    await herd.add_budget(wanted, ADMIN)
    mine = {"instance_id": "inst_1", "owner": "admin", "labels": {"team": "<b>red"}, "name": "trainer"}
    await meter(herd, "m1", herd.clock.now(), 6, usd="1", **mine)  # type: ignore[arg-type]
    page = await admin.text("/money")
    assert 'aria-label="60 % spent"' in page
    assert "team=&lt;b&gt;red" in page
    assert re.search(r"warned</span> 60 %", page)
