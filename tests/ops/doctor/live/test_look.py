"""The free checks: all pass on the documented Novita, and each difference is told for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuherd.ops import live_assumptions
from gpuherd.ops.doctor_results import Agreement, CannotLook, LiveFinding
from gpuherd.ops.live_checks import look
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.ops.doctor.live.support import LiveWorld
from tests.simulator.builders import a_request

HOUR_S = 3600
LIMIT = 300


async def findings(live: LiveWorld) -> dict[str, LiveFinding]:
    """Look at an account with two machines that have run for an hour."""
    for number in range(2):
        live.world.create(a_request(name=f"private-{number}"))
    await live.clock.sleep(2 * HOUR_S)
    found = await look(live.calls, live.clock.now(), LIMIT)
    return {it.check: it for it in found.findings}


async def test_on_the_documented_novita_everything_is_as_assumed() -> None:
    live = LiveWorld()
    found = await findings(live)
    assert set(found) == {it.check for it in live_assumptions.FREE}
    verdicts = {check: it.verdict for check, it in found.items()}
    # Nothing was throttled, and nothing was done to be.
    assert verdicts.pop("limits.retry-after") is Agreement.NOT_SEEN
    assert {check for check, it in verdicts.items() if it is not Agreement.AS_ASSUMED} == set()


@pytest.mark.parametrize(
    ("scenario", "check"),
    [
        ("page-no", "list.page-parameter"),
        ("short-pages", "list.page-size"),
        ("other-not-found", "get.unknown"),
        ("prices-in-usd", "products.prices"),
        ("other-labels", "clusters.labels"),
        ("bill-rounded-up", "billing.rows"),
        ("limits-told", "limits.headers"),
        ("throttled-once", "limits.retry-after"),
    ],
)
async def test_each_difference_is_told(scenario: str, check: str) -> None:
    found = await findings(LiveWorld(scenario))
    assert found[check].verdict is Agreement.DIFFERS, found[check]
    assert found[check].changes


async def test_the_settings_that_follow_are_named() -> None:
    found = await findings(LiveWorld("limits-told"))
    assert found["limits.headers"].settings == ("NOVITA_RATE_LIMIT=60",)


async def test_the_parameter_that_does_turn_pages_is_named() -> None:
    found = await findings(LiveWorld("page-no"))
    assert "`pageNo` has" in found["list.page-parameter"].seen


async def test_it_only_reads_and_leaves_the_service_its_share_of_the_calls() -> None:
    live = LiveWorld()
    began_s = live.clock.monotonic()
    await look(live.calls, live.clock.now(), LIMIT)
    assert {method for method, _ in live.asked} == {"GET"}
    assert live.calls.made <= 25
    assert live.clock.monotonic() - began_s >= 0.79 * (live.calls.made - 1)


async def test_nothing_of_the_accounts_machines_is_told() -> None:
    live = LiveWorld()
    told = repr(await findings(live))
    assert "private-" not in told
    assert not [it for it in live.world.machines if it in told]


async def test_on_an_empty_account_pages_are_turned_on_templates() -> None:
    live = LiveWorld()
    found = {it.check: it for it in (await look(live.calls, live.clock.now(), LIMIT)).findings}
    assert "on templates" in found["list.page-parameter"].seen
    assert found["metrics.form"].verdict is Agreement.NOT_SEEN


async def test_one_bad_moment_is_no_finding() -> None:
    live = LiveWorld()
    live.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.BALANCE,), count=1))
    found = {it.check: it for it in (await look(live.calls, live.clock.now(), LIMIT)).findings}
    assert found["billing.balance"].verdict is Agreement.AS_ASSUMED


async def test_a_key_that_is_refused_ends_it() -> None:
    with pytest.raises(CannotLook, match="NOVITA_API_KEY"):
        await look(LiveWorld("key-revoked").calls, LiveWorld().clock.now(), LIMIT)


def test_the_page_about_novita_names_every_check() -> None:
    page = Path("docs/novita.md").read_text()
    assert [
        it.check for it in (*live_assumptions.FREE, *live_assumptions.PAID) if f"`{it.check}`" not in page
    ] == []
