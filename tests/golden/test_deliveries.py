"""Every kind of webhook as its receiver gets it, with its headers and its very bytes."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import httpx
import pytest

from gpuherd.domain.api_key import Limits
from gpuherd.domain.instance.idleness import AppAnswer
from gpuherd.domain.money.period import DAY, day_start
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.simulated_bill import Use
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.golden.receivers import Receivers
from tests.golden.recording import Recording
from tests.support.fake_billing import FakeBilling, charge
from tests.support.herd import Herd
from tests.support.metered import spend
from tests.support.unmanaged_machines import a_surplus_machine, look_for, rent_outside_gpuherd, rent_tagged

MINUTE = timedelta(minutes=1)
HOOK = "https://hooks.example.com/gpu?team=a"
PEOPLE = (
    ("slack", "https://hooks.slack.com/services/T000/B000/secret"),
    ("discord", "https://discord.com/api/webhooks/1/secret"),
    ("ntfy", "https://ntfy.example.com/secret?auth=secret"),
)
LEASE = {"seconds": 900}
CHECK = {"path": "/health", "maxWaitTimeMs": 60_000}
MINE = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "request"}


async def _rent(http: httpx.AsyncClient, **wish: object) -> str:
    reply = await http.post("/api/instances", json={**GOOD, "webhookUrl": HOOK, **wish}, headers=MINE)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


async def test_deliveries_of_a_life(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    path = f"/api/instances/{await _rent(http)}"
    await herd.run_for(3 * MINUTE)
    await http.post(f"{path}/stop", headers=MINE)
    await herd.run_for(3 * MINUTE)
    await http.post(f"{path}/start", json={"healthCheck": CHECK}, headers=MINE)
    await herd.run_for(3 * MINUTE)
    await http.delete(path, headers=MINE)
    await herd.run_for(3 * MINUTE)
    recording.compare()


async def test_deliveries_with_a_health_check(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    await _rent(http, healthCheck=CHECK, labels={"team": "ä"}, gpuNum=2)
    await herd.run_for(3 * MINUTE)
    herd.prober.is_up = lambda _: False
    await _rent(http, healthCheck=CHECK, name="never-healthy")
    await herd.run_for(10 * MINUTE)
    recording.compare()


async def test_deliveries_of_failures(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    herd.world.faults.add(Fault(FaultKind.PULL_FAILURE, count=1, message="no such image"))
    await _rent(http, name="no-image")
    await herd.run_for(5 * MINUTE)
    await _rent(http, name="no-offer", maxHourlyPrice="0.01", waitForCapacity={"seconds": 60})
    await herd.run_for(5 * MINUTE)
    herd.world.faults.add(Fault(FaultKind.SLOW_PULL, count=1))
    await _rent(http, name="too-slow", onFailure="keep")
    await herd.run_for(22 * MINUTE)
    recording.compare()


async def test_deliveries_of_a_wait(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    herd.world.faults.add(Fault(FaultKind.SOLD_OUT, count=6))
    await _rent(http, name="patient", waitForCapacity={"seconds": 3600})
    await herd.run_for(5 * MINUTE)
    recording.compare()


async def test_deliveries_of_ends(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    await _rent(http, lease={"seconds": 600})
    await _rent(http, name="silent", autoStop={"silenceSeconds": 300})
    await _rent(http, name="idle", autoStop={"idleSeconds": 300, "activity": {"port": 8888}})
    await herd.run_for(MINUTE)
    herd.applications.answer = AppAnswer(is_idle=True)
    for machine in herd.world.alive():
        herd.world.uses.set(machine.id, Use(herd.world.now(), 0.0, 0.0))
    await herd.run_for(24 * MINUTE)
    await herd.run_jobs_for(timedelta(days=6, hours=20))
    await herd.run_for(MINUTE)
    recording.compare()


async def test_deliveries_of_a_reclaim(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    await _rent(http)
    await herd.run_for(3 * MINUTE)
    (machine,) = herd.world.alive()
    herd.world.reclaim(machine.id, 300)
    await herd.run_for(MINUTE)
    # Withdrawn, and announced once more.
    machine.reclaim = None
    await herd.run_for(MINUTE)
    herd.world.reclaim(machine.id, 300)
    await herd.run_for(10 * MINUTE)
    recording.compare()


async def test_deliveries_of_a_replacement(
    http: httpx.AsyncClient,
    herd: Herd,
    receivers: Receivers,
    recording: Recording,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await _rent(http, onReclaim="replace", maxReplacements=1)
    await herd.run_for(3 * MINUTE)
    (machine,) = herd.world.alive()
    # The limits of its key have become smaller meanwhile.
    herd.limit_heirs(Limits(max_gpus=0))
    herd.world.reclaim(machine.id, 1)
    await herd.run_for(MINUTE)
    herd.limit_heirs(None)
    await herd.run_for(5 * MINUTE)
    (machine,) = herd.world.alive()
    herd.world.reclaim(machine.id, 1)
    await herd.run_for(2 * MINUTE)
    recording.compare()


async def test_deliveries_to_endpoints(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    made = await http.post("/api/webhooks/endpoints", json={"url": HOOK}, headers=MINE)
    await http.post(f"/api/webhooks/endpoints/{made.json()['id']}/rotate", headers=MINE)
    await http.post("/api/webhooks/test", json={"endpointId": made.json()["id"]}, headers=MINE)
    await http.post("/api/webhooks/test", json={"url": "https://elsewhere.example.com/"}, headers=MINE)
    rent_outside_gpuherd(herd.world, "somebody-elses")
    rent_tagged(herd, 1)
    await a_surplus_machine(herd, 2)
    await look_for(herd, 10 * MINUTE)
    await herd.run_for(MINUTE)
    recording.compare()


async def test_deliveries_to_people(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    for kind, url in PEOPLE:
        made = await http.post("/api/webhooks/endpoints", json={"kind": kind, "url": url}, headers=MINE)
        await http.post("/api/webhooks/test", json={"endpointId": made.json()["id"]}, headers=MINE)
    hostile = "<!channel> @everyone [x](https:evil.example)"
    made = await http.post("/api/instances", json={**GOOD, "name": hostile, "lease": LEASE}, headers=MINE)
    assert made.status_code == 201
    await herd.run_for(timedelta(minutes=20))
    rent_outside_gpuherd(herd.world, "somebody-elses")
    await look_for(herd, 10 * MINUTE)
    nlp = {"name": "nlp", "scope": {"all": True}, "amount": "0.01", "period": "total"}
    await http.post("/api/budgets", json={**nlp, "warnPercent": [50]}, headers=MINE)
    await herd.run_for(MINUTE)
    recording.compare()


async def test_deliveries_of_money(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    await http.post("/api/webhooks/endpoints", json={"url": HOOK}, headers=MINE)
    await spend(herd)
    billing, yesterday = FakeBilling.instead_of(herd), day_start(herd.clock.now()) - 2 * DAY
    billing.rows = [charge("m1", yesterday, "9", unit="0.25"), charge("m9", yesterday, "0.5")]
    await http.post("/api/costs/reconcile", json={"day": yesterday.date().isoformat()}, headers=MINE)
    billing.available = Decimal("1.1")
    await herd.watch_balance()
    await herd.run_for(MINUTE)
    recording.compare()


async def test_deliveries_of_budgets(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    await http.post("/api/webhooks/endpoints", json={"url": HOOK}, headers=MINE)
    await spend(herd)
    nlp = {"name": "nlp", "scope": {"label": {"team": "nlp"}}, "amount": "7", "period": "total"}
    await http.post("/api/budgets", json={**nlp, "warnPercent": [50]}, headers=MINE)
    await herd.run_for(MINUTE)
    await http.patch("/api/budgets/nlp", json={"amount": "20"}, headers=MINE)
    await herd.run_for(MINUTE)
    recording.compare()


async def test_deliveries_repeated(
    http: httpx.AsyncClient, herd: Herd, receivers: Receivers, recording: Recording
) -> None:
    receivers.answer = lambda _: 503
    receivers.retry_after = "120"
    await _rent(http)
    await herd.run_for(2 * MINUTE)
    receivers.answer = lambda _: 200
    await herd.run_for(10 * MINUTE)
    recording.compare()
