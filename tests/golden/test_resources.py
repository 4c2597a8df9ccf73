"""Every route of the API, one story for each resource: what it answers to good requests and to bad ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from starlette.types import ASGIApp

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.usecases.service.read_service_health import ANSWER_TTL_S, ServiceHealth
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.golden.receivers import Receivers
from tests.golden.recorded_api import NOBODY, Caller, RecordedApi
from tests.golden.recording import Recording, header_lines
from tests.support.event_streams import asking
from tests.support.failing import Failing
from tests.support.herd import Herd
from tests.support.metered import spend
from tests.support.unmanaged_machines import (
    a_surplus_machine,
    look,
    look_for,
    rent_outside_gpuherd,
    rent_tagged,
)

MINUTE = timedelta(minutes=1)
HOOK = "https://hooks.example.com/gpu?team=a"
CHECK = {"path": "/health", "maxWaitTimeMs": 120_000}
FULL = {
    "name": "träin-1",
    "productName": "RTX 4090 24GB",
    "templateId": 101,
    "gpuNum": 2,
    "rootfsSize": 80,
    "regions": ["CN-HK-01", "AS-SGP-02"],
    "webhookUrl": HOOK,
    "billingMode": "onDemand",
    "maxHourlyPrice": "9.5",
    "labels": {"team": "a", "cost/center": "42"},
    "optimize": "price",
    "onFailure": "keep",
    "waitForCapacity": {"seconds": 600},
    "healthCheck": CHECK,
}


async def test_instances(api: RecordedApi, herd: Herd) -> None:
    small = await api("a create with what is needed", "POST", "/api/instances", GOOD)
    once = {"Idempotency-Key": "once"}
    full = await api("a create with all that can be said", "POST", "/api/instances", FULL, headers=once)
    await api("the same again", "POST", "/api/instances", FULL, headers=once)
    await api("another wish under the same word", "POST", "/api/instances", GOOD, headers=once)
    await api("one, before it has begun", "GET", f"/api/instances/{small['id']}")
    await api("one that is waited for in vain", "GET", f"/api/instances/{small['id']}?wait=ready&timeout=2")
    await herd.run_for(timedelta(seconds=20))
    await api("one on its way", "GET", f"/api/instances/{small['id']}")
    await herd.run_for(3 * MINUTE)
    await api("one that runs", "GET", f"/api/instances/{small['id']}")
    await api("the same, as it was kept", "GET", f"/api/instances/{small['id']}")
    await api("one with everything, by its name", "GET", "/api/instances/tr%C3%A4in-1?wait=ready&timeout=9")
    await api("what happened to it", "GET", f"/api/instances/{full['id']}/events")
    await api("the list", "GET", "/api/instances")
    first = await api("a page of the list", "GET", "/api/instances?limit=1")
    await api("the next page", "GET", f"/api/instances?limit=1&cursor={first['nextCursor']}")
    await api("by label", "GET", "/api/instances?label=team=a&status=ready")
    await api("by name, and nothing is there", "GET", "/api/instances?name=nobody")
    rent_outside_gpuherd(herd.world, "somebody-elses")
    await look(herd, 30)
    await api("with the machines of the cloud", "GET", "/api/instances/comprehensive")
    await api(
        "only ours",
        "GET",
        "/api/instances/comprehensive?includeNovitaOnly=false&syncLocalState=true",
    )
    await api("look at the cloud now", "POST", "/api/sync")
    herd.world.faults.add(Fault(FaultKind.PULL_FAILURE, count=1, message="no such image"))
    failed = await api("one that will fail", "POST", "/api/instances", {**GOOD, "name": "unlucky"})
    await herd.run_for(5 * MINUTE)
    await api("one that has failed", "GET", f"/api/instances/{failed['id']}")
    await api("a second one of this name", "POST", "/api/instances", {**GOOD, "name": "job"})
    await api("a name that two have", "GET", "/api/instances/job")
    await api("what is not there", "GET", "/api/instances/nobody")
    await api("events of what is not there", "GET", "/api/instances/inst_00000000000000000000000000/events")
    await api("a bad list", "GET", "/api/instances?limit=0&status=odd&label=x&cursor=" + "c" * 201)
    await api("a bad cursor", "GET", "/api/instances?cursor=odd")
    await api("a bad wait", "GET", f"/api/instances/{small['id']}?wait=odd&timeout=9999")
    await api("a bad flag", "GET", "/api/instances/comprehensive?includeNovitaOnly=1&odd=1")
    api.recording.compare()


async def test_replacements(api: RecordedApi, herd: Herd) -> None:
    made = await api("a create", "POST", "/api/instances", GOOD)
    path = f"/api/instances/{made['id']}"
    await api("a replacement of what is not there yet", "POST", f"{path}/replace")
    await herd.run_for(3 * MINUTE)
    once = {"Idempotency-Key": "replace-once"}
    asked = await api("a replacement", "POST", f"{path}/replace", headers=once)
    await api("the same replacement", "POST", f"{path}/replace", headers=once)
    await api("another one meanwhile", "POST", f"{path}/replace")
    await herd.run_for(5 * MINUTE)
    await api("the replacement at its end", "GET", f"/api/operations/{asked['operationId']}")
    await api("who was replaced", "GET", path)
    await api("a replacement of who was replaced", "POST", f"{path}/replace")
    api.recording.compare()


async def test_operations(api: RecordedApi, herd: Herd) -> None:
    made = await api("a create", "POST", "/api/instances", GOOD)
    path = f"/api/instances/{made['id']}"
    await api("a start of what is not there yet", "POST", f"{path}/start")
    await herd.run_for(3 * MINUTE)
    await api("a start of what runs", "POST", f"{path}/start", {})
    once = {"Idempotency-Key": "stop-once"}
    stop = await api("a stop", "POST", f"{path}/stop", headers=once)
    await api("the same stop", "POST", f"{path}/stop", headers=once)
    await api("the stop under way", "GET", f"/api/operations/{stop['operationId']}")
    await herd.run_for(3 * MINUTE)
    await api("the stop at its end", "GET", f"/api/operations/{stop['operationId']}")
    await api("what has exited", "GET", path)
    body = {"healthCheck": CHECK, "webhookUrl": HOOK}
    start = await api("a start with a health check", "POST", f"{path}/start", body)
    await herd.run_for(3 * MINUTE)
    await api("the start at its end", "GET", f"/api/operations/{start['operationId']}")
    await api("what is ready again", "GET", path)
    named = {"instanceName": "job"}
    await api("a stop by name", "POST", "/api/instances/stop", named)
    await herd.run_for(3 * MINUTE)
    await api("a start by name", "POST", "/api/instances/start", {**named, "targetPort": 8888})
    await herd.run_for(3 * MINUTE)
    herd.world.faults.add(Fault(FaultKind.SOLD_OUT, endpoints=(ApiEndpoint.START,)))
    await api("a stop before there is no stock", "POST", f"{path}/stop")
    await herd.run_for(3 * MINUTE)
    start = await api("a start without stock", "POST", f"{path}/start")
    await herd.run_for(3 * MINUTE)
    await api("the start that was refused", "GET", f"/api/operations/{start['operationId']}")
    await api("a delete by name", "POST", "/api/instances/delete", named)
    gone = await api("a delete", "DELETE", path)
    await herd.run_for(3 * MINUTE)
    await api("the delete at its end", "GET", f"/api/operations/{gone['operationId']}")
    await api("what is deleted", "GET", path)
    await api("a start of what is deleted", "POST", f"{path}/start")
    await api("a delete of what is deleted", "DELETE", path)
    await api("a stop by a name that nobody has", "POST", "/api/instances/stop", {"instanceName": "nobody"})
    bad = {"odd": 1, "healthCheck": {"path": 1}, "targetPort": 0, "webhookUrl": "ftp://x"}
    await api("a bad start", "POST", f"{path}/start", bad)
    await api("a bad start by name", "POST", "/api/instances/start", {"instanceName": ""})
    await api("a bad delete by name", "POST", "/api/instances/delete", {"force": True})
    await api("a bad stop", "POST", f"{path}/stop", {"instanceName": "job", "odd": 1})
    await api("an operation that is not there", "GET", "/api/operations/op_nothing")
    api.recording.compare()


async def test_leases(api: RecordedApi, herd: Herd) -> None:
    agreed = {"lease": {"seconds": 3600}, "autoStop": {"silenceSeconds": 86_400, "then": "delete"}}
    wish = {**GOOD, **agreed, "deleteAfterStoppedSeconds": 86_400}
    made = await api("a create with ends", "POST", "/api/instances", wish)
    path = f"/api/instances/{made['id']}"
    await herd.run_for(3 * MINUTE)
    await api("what runs", "GET", path)
    await api("a heartbeat", "POST", f"{path}/heartbeat")
    await api("a new end", "POST", f"{path}/lease", {"seconds": 1800})
    await api("another action", "POST", f"{path}/lease", {"until": "2026-01-01T02:00:00Z", "then": "delete"})
    await api("a bad lease", "POST", f"{path}/lease", {"seconds": 1, "then": "sell"})
    await api("two ends at once", "POST", f"{path}/lease", {"seconds": 60, "until": "2026-01-01T02:00:00Z"})
    await api("no lease", "DELETE", f"{path}/lease")
    await api("a lease again", "POST", f"{path}/lease", {"seconds": 600, "then": "stop"})
    await herd.run_for(15 * MINUTE)
    await api("after its end", "GET", path)
    await api("an extension after the end", "POST", f"{path}/lease", {"seconds": 600})
    await api("its events", "GET", f"{path}/events")
    await api("why it is as it is", "GET", f"{path}/attempts")
    await api("a lease of what nobody has", "POST", "/api/instances/nobody/lease", {"seconds": 600})
    api.recording.compare()


async def test_volumes(api: RecordedApi, herd: Herd) -> None:
    await api("no volumes", "GET", "/api/volumes")
    wish = {"name": "data", "region": "us-ca-6", "sizeGb": 100}
    made = await api("a volume", "POST", "/api/volumes", wish)
    await api("its name is taken", "POST", "/api/volumes", wish)
    await api("the volumes", "GET", "/api/volumes")
    await api("a bad volume", "POST", "/api/volumes", {"name": "", "region": "", "sizeGb": 1, "type": "ssd"})
    await api("where there are none", "POST", "/api/volumes", {**wish, "name": "more", "region": "AS-IN-01"})
    lost = Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(ApiEndpoint.NETWORK_STORAGE_CREATE,))
    herd.world.faults.add(lost)
    await api("a create whose answer is lost", "POST", "/api/volumes", {**wish, "name": "lost"})
    await api("a removal", "DELETE", f"/api/volumes/{made['id']}")
    await api("a removal of what nobody has", "DELETE", f"/api/volumes/{made['id']}")
    api.recording.compare()


async def test_prewarms(api: RecordedApi, herd: Herd) -> None:
    path = "/api/prewarms"
    await api("no tasks", "GET", path)
    wish = {"imageUrl": "ghcr.io/team/trainer:1", "region": "us-ca-6"}
    made = await api("a task", "POST", path, {**wish, "products": ["4090.16c62g"], "note": "for the night"})
    await api("the same again", "POST", path, {**wish, "products": ["4090.16c62g"]})
    private = {"imageUrl": "registry.example.com/team/trainer:1.4", "region": "US-CA-06"}
    await api("one that will fail", "POST", path, private)
    await herd.clock.sleep(60)
    await api("how they ended", "GET", path)
    await api("those that failed", "GET", f"{path}?state=failed&region=US-CA-06")
    bad = {"imageUrl": "", "region": "", "registryAuthId": 1, "products": "all", "note": "", "type": "x"}
    await api("a bad task", "POST", path, bad)
    await api("words that mean nothing", "POST", path, {**wish, "region": "MARS", "products": ["abacus"]})
    await api("a login that nobody has", "POST", path, {**wish, "registryAuthId": "nobody"})
    lost = Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(ApiEndpoint.PREWARM_CREATE,))
    herd.world.faults.add(lost)
    await api("a create whose answer is lost", "POST", path, {**wish, "imageUrl": "lost:1"})
    herd.world.prewarms.tasks_max = 2
    await api("one too many", "POST", path, wish)
    await api("a removal", "DELETE", f"{path}/{made['id']}")
    await api("a removal of what nobody has", "DELETE", f"{path}/{made['id']}")
    await api("a bad list", "GET", f"{path}?state=odd&colour=red")
    api.recording.compare()


async def test_images(api: RecordedApi) -> None:
    await api("the registry credentials", "GET", "/api/registry-auths")
    api.recording.compare()


async def test_logs(api: RecordedApi, herd: Herd) -> None:
    path = f"/api/instances/{(await herd.launch()).id}/logs"
    await api("a log before there is a machine", "GET", path)
    await herd.run_for(timedelta(seconds=12))
    await api("the log of a program that does not run yet", "GET", path)
    await herd.run_for(2 * MINUTE)
    await api("a log", "GET", path)
    await api("the log of the cloud", "GET", f"{path}?source=system&follow=true")
    await api("a log of another kind", "GET", f"{path}?source=kernel&tail=5")
    api.recording.compare()


async def test_restart(api: RecordedApi, herd: Herd) -> None:
    made = await api("a create", "POST", "/api/instances", GOOD)
    path = f"/api/instances/{made['id']}"
    await api("a restart of what is not there yet", "POST", f"{path}/restart")
    await herd.run_for(3 * MINUTE)
    once = {"Idempotency-Key": "restart-once"}
    restart = await api("a restart", "POST", f"{path}/restart", headers=once)
    await api("the same restart", "POST", f"{path}/restart", headers=once)
    await api("another restart", "POST", f"{path}/restart")
    await herd.run_for(3 * MINUTE)
    await api("the restart at its end", "GET", f"/api/operations/{restart['operationId']}")
    await api("what runs again", "GET", path)
    lost = Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(ApiEndpoint.RESTART,))
    herd.world.faults.add(lost)
    restart = await api("a restart whose answer is lost", "POST", f"{path}/restart")
    await herd.run_for(3 * MINUTE)
    await api("the restart of unknown outcome", "GET", f"/api/operations/{restart['operationId']}")
    await api("its events", "GET", f"{path}/events")
    await api("why it is as it is", "GET", f"{path}/attempts")
    await api("a bad restart", "POST", f"{path}/restart", {"force": True})
    await api("a restart of what nobody has", "POST", "/api/instances/nobody/restart")
    api.recording.compare()


async def test_why(api: RecordedApi, herd: Herd) -> None:
    made = await api("a create", "POST", "/api/instances", {**GOOD, "healthCheck": CHECK})
    await api("before anything was tried", "GET", f"/api/instances/{made['id']}/attempts")
    herd.prober.is_up = lambda _: False
    await herd.run_for(MINUTE)
    await api("while its health is checked", "GET", f"/api/instances/{made['id']}/attempts")
    herd.prober.is_up = lambda _: True
    await herd.run_for(3 * MINUTE)
    await api("when it is ready", "GET", f"/api/instances/{made['id']}/attempts")
    herd.world.faults.add(Fault(FaultKind.SOLD_OUT, count=2, endpoints=(ApiEndpoint.CREATE,)))
    wish = {**GOOD, "name": "second", "regions": ["CN-HK-01", "AS-SGP-02", "US-CA-06"], "optimize": "price"}
    made = await api("a create that meets empty shelves", "POST", "/api/instances", wish)
    await herd.run_for(3 * MINUTE)
    await api("what was refused to it", "GET", f"/api/instances/{made['id']}/attempts")
    patient = {**GOOD, "name": "patient", "maxHourlyPrice": "0.01", "waitForCapacity": {"seconds": 300}}
    made = await api("a create that waits for a price", "POST", "/api/instances", patient)
    await herd.run_for(MINUTE)
    await api("what it waits for", "GET", f"/api/instances/{made['id']}/attempts")
    await herd.run_for(10 * MINUTE)
    await api("why it was given up", "GET", f"/api/instances/{made['id']}/attempts")
    herd.world.faults.add(Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1))
    made = await api("a create whose reply is lost", "POST", "/api/instances", {**GOOD, "name": "lost"})
    await herd.run_for(3 * MINUTE)
    await api("how it was found again", "GET", f"/api/instances/{made['id']}/attempts")
    await api("why of what is not there", "GET", "/api/instances/nobody/attempts")
    api.recording.compare()


async def test_plans(api: RecordedApi, herd: Herd) -> None:
    wish = {"productName": "4090", "templateId": "101"}
    await api("a plan", "POST", "/api/plans", wish)
    full = {key: value for key, value in FULL.items() if key != "name"}
    await api("a plan with all that can be said", "POST", "/api/plans", full)
    await api("a plan that nothing fits", "POST", "/api/plans", {**wish, "maxHourlyPrice": "0.01"})
    await api("a plan for a GPU that nobody sells", "POST", "/api/plans", {**wish, "productName": "Abacus"})
    await api("a plan for a template that is not there", "POST", "/api/plans", {**wish, "templateId": "9"})
    await api("a plan for a region that is not there", "POST", "/api/plans", {**wish, "region": "MOON-01"})
    made = await api("a key that may only read", "POST", "/api/keys", {"scopes": ["read"]})
    await api("a plan of a reader", "POST", "/api/plans", wish, caller=Caller("reader", made["key"]))
    limits = {"maxGpus": 0, "maxHourlyUsd": "0.1"}
    made = await api("a key with limits", "POST", "/api/keys", {"scopes": ["write"], "limits": limits})
    await api("a plan beyond them", "POST", "/api/plans", wish, caller=Caller("writer", made["key"]))
    await api("a bad plan", "POST", "/api/plans", {"gpuNum": 9, "odd": 1})
    held = await api("a plan that is held", "POST", "/api/plans", {**wish, "hold": True})
    await api("what it stands for", "GET", f"/api/plans/{held['planId']}")
    await api("it beside something", "POST", "/api/instances", {"planId": held["planId"], "name": "x"})
    await api("rented", "POST", "/api/instances", {"planId": held["planId"]})
    await api("rented again", "POST", "/api/instances", {"planId": held["planId"]})
    await api("a plan that is not there", "POST", "/api/instances", {"planId": "plan_9"})
    await api("what a key knows of itself", "GET", "/api/keys/self")
    herd.world.faults.add(Fault(FaultKind.OUTAGE))
    await api("clear what is remembered", "POST", "/api/cache/clear")
    await api("a plan while the cloud is out", "POST", "/api/plans", wish)
    api.recording.compare()


async def test_jobs(api: RecordedApi, herd: Herd) -> None:
    herd.receiver.accepts = lambda _: False
    await api("statistics of nothing", "GET", "/api/jobs/stats")
    made = await api("a create", "POST", "/api/instances", {**GOOD, "webhookUrl": HOOK})
    listed = await api("the first jobs", "GET", "/api/jobs")
    job_id = listed["jobs"][0]["id"]
    await api("a job that has not failed", "POST", f"/api/jobs/{job_id}/retry")
    await herd.run_for(2 * MINUTE)
    await herd.run_jobs_for(timedelta(days=5))
    failed = await api("those that failed", "GET", "/api/jobs?status=FAILED&type=send_webhook&limit=2")
    await api("the next page", "GET", f"/api/jobs?status=FAILED&limit=2&cursor={failed['nextCursor']}")
    await api("those of an instance", "GET", f"/api/jobs?instanceId={made['id']}&status=COMPLETED")
    failed_id = failed["jobs"][0]["id"]
    await api("one that failed", "GET", f"/api/jobs/{failed_id}")
    await api("again", "POST", f"/api/jobs/{failed_id}/retry")
    await api("statistics", "GET", "/api/jobs/stats")
    await api("a job that is not there", "GET", "/api/jobs/job_nothing")
    await api("a retry of nothing", "POST", "/api/jobs/job_nothing/retry")
    await api("a bad list", "GET", "/api/jobs?status=odd&limit=101")
    api.recording.compare()


async def test_catalogue(api: RecordedApi, herd: Herd) -> None:
    await api("products", "GET", "/api/products")
    await api("one on demand", "GET", "/api/products?productName=4090&billingMode=onDemand")
    await api("none of this name", "GET", "/api/products?productName=Abacus")
    await api("templates", "GET", "/api/templates")
    await api("one template", "GET", "/api/templates/101")
    await api("regions", "GET", "/api/regions")
    await api("a template that is not there", "GET", "/api/templates/9")
    await api("a bad filter", "GET", "/api/products?billingMode=barter&productName=")
    await api("what is remembered", "GET", "/api/cache/stats")
    await api("forget what is not fresh", "POST", "/api/cache/cleanup")
    await api("forget one", "POST", "/api/cache/clear", {"cacheName": "offers"})
    await api("forget all", "POST", "/api/cache/clear")
    await api("forget what is not there", "POST", "/api/cache/clear", {"cacheName": "odd"})
    await api("forget badly", "POST", "/api/cache/clear", {"cacheName": 1, "odd": 1})
    herd.world.faults.add(Fault(FaultKind.OUTAGE))
    await api("products while the cloud is out", "GET", "/api/products")
    await api("a sync while the cloud is out", "POST", "/api/sync")
    api.recording.compare()


async def test_health(api: RecordedApi, plane: Plane, herd: Herd) -> None:
    await api("alive", "GET", "/livez", caller=NOBODY)
    await api("ready", "GET", "/readyz", caller=NOBODY)
    await api("healthy", "GET", "/health", caller=NOBODY)
    await api("what of the cloud is not believed", "GET", "/api/cloud")
    await api("say that the account is right", "POST", "/api/cloud/confirm-account")
    await api("say that what is missing is gone", "POST", "/api/cloud/confirm-loss")
    await api("creates", "GET", "/api/creates")
    await herd.flags.put("creates_blocked", "the tag was lost")
    await api("creates that are blocked", "GET", "/api/creates")
    # An answer serves everybody for a second.
    await herd.clock.sleep(ANSWER_TTL_S)
    await api("health while they are", "GET", "/health", caller=NOBODY)
    await api("health while they are, with a key", "GET", "/health")
    await api("resume them", "POST", "/api/creates/resume")
    await api("resume them again", "POST", "/api/creates/resume")
    refusal = Fault(FaultKind.REFUSE, status=401, reason="UNAUTHORIZED", for_s=300)
    herd.world.faults.add(refusal)
    await herd.run_for(2 * MINUTE)
    await api("health while the cloud refuses our key", "GET", "/health", caller=NOBODY)
    away = Failing(StoreUnavailable("the database does not answer"))
    stores = replace(plane.services.stores, observations=away, flags=away)
    not_asked = Cache[str, ServiceHealth | None](herd.clock, ANSWER_TTL_S, 1, "health")
    services = replace(plane.services, stores=stores, health_cache=not_asked)
    async with api.of(replace(plane, services=services)) as without_database:
        await without_database("not ready", "GET", "/readyz", caller=NOBODY)
        await without_database("unhealthy", "GET", "/health", caller=NOBODY)
        await without_database("what needs the database", "GET", "/api/creates")
    api.recording.compare()


async def test_orphans(api: RecordedApi, herd: Herd) -> None:
    await api("none", "GET", "/api/orphans")
    stranger = rent_outside_gpuherd(herd.world, "somebody-elses")
    lost = rent_tagged(herd, 1)
    surplus = await a_surplus_machine(herd, 2)
    herd.auto_delete = False
    await look(herd, 600)
    await look(herd, 3000)
    await api("all", "GET", "/api/orphans")
    await api("those of one verdict", "GET", "/api/orphans?verdict=unrecorded")
    await api("one", "GET", f"/api/orphans/{surplus}")
    await api("adopt one", "POST", f"/api/orphans/{stranger}/adopt")
    await api("adopt it again", "POST", f"/api/orphans/{stranger}/adopt", {})
    await api("stop what is adopted", "POST", f"/api/orphans/{stranger}/stop")
    await api("stop one", "POST", f"/api/orphans/{lost}/stop")
    await look_for(herd, 3 * MINUTE)
    await api("one that is stopped", "GET", f"/api/orphans/{lost}")
    await api("delete one", "POST", f"/api/orphans/{lost}/delete")
    await api("adopt what is being deleted", "POST", f"/api/orphans/{lost}/adopt")
    await look_for(herd, 5 * MINUTE)
    await api("what is left", "GET", "/api/orphans")
    await api("what is gone", "GET", f"/api/orphans/{lost}")
    await api("resume where nothing is held back", "POST", "/api/orphans/resume")
    await api("what was never there", "POST", "/api/orphans/nobody/delete")
    await api("a bad filter", "GET", "/api/orphans?verdict=odd&vredict=surplus")
    await api("a field too many", "POST", f"/api/orphans/{surplus}/delete", {"force": True, "odd": 1})
    api.recording.compare()


async def test_orphans_braked(api: RecordedApi, herd: Herd) -> None:
    for n in range(3):
        await a_surplus_machine(herd, n)
    await herd.run_for(timedelta(seconds=70))
    await api("a brake", "GET", "/api/orphans")
    await api("health under a brake", "GET", "/health")
    await api("resume", "POST", "/api/orphans/resume")
    await api("after it", "GET", "/api/orphans")
    api.recording.compare()


async def test_webhooks(api: RecordedApi, herd: Herd, receivers: Receivers) -> None:
    base = "/api/webhooks"
    await api("no endpoints", "GET", f"{base}/endpoints")
    wish = {"url": HOOK, "events": ["instance.ready", "instance.created"], "label": "ours"}
    one = await api("an endpoint", "POST", f"{base}/endpoints", wish)
    once = {"Idempotency-Key": "endpoint"}
    two = {"url": "http://other.example.com/"}
    other = await api("another endpoint", "POST", f"{base}/endpoints", two, headers=once)
    await api("the same again, without its secret", "POST", f"{base}/endpoints", two, headers=once)
    path, gone = f"{base}/endpoints/{one['id']}", f"{base}/endpoints/{other['id']}"
    await api("a test of an endpoint", "POST", f"{base}/test", {"endpointId": one["id"]})
    await api("a test of an address", "POST", f"{base}/test", {"url": "https://elsewhere.example.com/"})
    await api("a new secret", "POST", f"{path}/rotate")
    await api("the endpoint", "GET", path)
    receivers.answer = lambda url: 503 if "other" in url else 200
    made = await api("a create", "POST", "/api/instances", {**GOOD, "webhookUrl": "https://own.example.com/"})
    await herd.run_for(2 * MINUTE)
    await api("endpoints", "GET", f"{base}/endpoints")
    listed = await api("deliveries", "GET", f"{base}/deliveries")
    first = await api("a page of them", "GET", f"{base}/deliveries?limit=1&endpointId={one['id']}")
    await api("the next", "GET", f"{base}/deliveries?limit=1&cursor={first['nextCursor']}")
    await api("those of a type", "GET", f"{base}/deliveries?type=instance.ready&instanceId={made['id']}")
    sent = next(it for it in listed["deliveries"] if it.get("endpointId") == one["id"])
    failing = next(it for it in listed["deliveries"] if it.get("endpointId") == other["id"])
    await api("one that arrived", "GET", f"{base}/deliveries/{sent['id']}")
    await api("one that did not", "GET", f"{base}/deliveries/{failing['id']}")
    await api("send it again", "POST", f"{base}/deliveries/{sent['id']}/replay")
    receivers.answer = lambda url: 410 if "other" in url else 200
    await api("all that failed", "POST", f"{base}/replay", {"since": "2026-01-01T00:00:00Z"})
    await herd.run_for(5 * MINUTE)
    await api("an endpoint that is gone", "GET", gone)
    await api("those that were given up", "GET", f"{base}/deliveries?state=dead")
    await api("enable it", "POST", f"{gone}/enable")
    receivers.answer = lambda url: 0
    await api("a test that nobody answers", "POST", f"{base}/test", {"endpointId": other["id"]})
    again = {"since": "2026-01-01T00:00:00+00:00", "state": "dead", "endpointId": other["id"]}
    await api("those of one endpoint", "POST", f"{base}/replay", again)
    await api("remove it", "DELETE", gone)
    await api("remove it again", "DELETE", gone)
    await api("an endpoint that is not there", "GET", f"{base}/endpoints/ep_nothing")
    await api("a secret for nobody", "POST", f"{base}/endpoints/ep_nothing/rotate")
    await api("enable nobody", "POST", f"{base}/endpoints/ep_nothing/enable")
    await api("a delivery that is not there", "GET", f"{base}/deliveries/msg_nothing")
    await api("a replay of nothing", "POST", f"{base}/deliveries/msg_nothing/replay")
    bad = {"url": "http://10.0.0.1/", "events": ["odd"], "label": "\u0007", "odd": 1}
    await api("a bad endpoint", "POST", f"{base}/endpoints", bad)
    await api("a bad replay", "POST", f"{base}/replay", {"since": "yesterday", "state": "odd"})
    await api("a bad test", "POST", f"{base}/test", {"url": "http://x.example.com/", "endpointId": "ep_1"})
    await api("a bad list", "GET", f"{base}/deliveries?state=odd&limit=x&odd=1")
    api.recording.compare()


async def test_notifications(api: RecordedApi, herd: Herd, receivers: Receivers) -> None:
    base = "/api/webhooks"
    slack = {"kind": "slack", "url": "https://hooks.slack.com/services/T/B/canary", "label": "#gpus"}
    some = {
        "kind": "discord",
        "url": "https://discord.com/api/webhooks/1/canary",
        "events": ["instance.ready"],
    }
    one = await api(
        "people in Slack", "POST", f"{base}/endpoints", slack, headers={"Idempotency-Key": "slack"}
    )
    await api("the same again", "POST", f"{base}/endpoints", slack, headers={"Idempotency-Key": "slack"})
    await api("people in Discord", "POST", f"{base}/endpoints", some)
    ntfy = {"kind": "ntfy", "url": "https://ntfy.sh/canary"}
    phone = await api("a phone", "POST", f"{base}/endpoints", ntfy)
    await api("a mailbox", "POST", f"{base}/endpoints", {"kind": "email", "url": "ops@example.com"})
    await api("a test", "POST", f"{base}/test", {"endpointId": one["id"]})
    await api("no secret to rotate", "POST", f"{base}/endpoints/{one['id']}/rotate")
    receivers.answer = lambda url: 410 if "ntfy" in url else 200
    await api("a create", "POST", "/api/instances", GOOD)
    await herd.run_for(2 * MINUTE)
    await api("endpoints", "GET", f"{base}/endpoints")
    listed = await api("deliveries", "GET", f"{base}/deliveries?endpointId={phone['id']}")
    await api("one of them", "GET", f"{base}/deliveries/{listed['deliveries'][0]['id']}")
    herd.notifier.sends_mail = False
    await api("no mail server", "POST", f"{base}/endpoints", {"kind": "email", "url": "mailto:a@example.com"})
    for kind, url in (
        ("slack", "http://10.0.0.1/x"),
        ("ntfy", "https://ntfy.sh/"),
        ("email", "a@[10.0.0.1]"),
    ):
        await api(f"a bad address for {kind}", "POST", f"{base}/endpoints", {"kind": kind, "url": url})
    await api("a bad kind", "POST", f"{base}/endpoints", {"kind": "pager", "url": "ops@example.com"})
    api.recording.compare()


async def test_keys(api: RecordedApi, herd: Herd) -> None:
    await api("none", "GET", "/api/keys")
    once = {"Idempotency-Key": "key"}
    wish = {"scopes": ["read"], "label": "for Ada"}
    reader = await api("a key that may read", "POST", "/api/keys", wish, headers=once)
    await api("the same again, without the key", "POST", "/api/keys", wish, headers=once)
    limits = {"requestsPerMinute": 3, "maxGpus": 1, "maxHourlyUsd": "1.50"}
    full = {"scopes": ["write", "read"], "expiresAt": "2026-01-02T00:00:00Z", "limits": limits}
    writer = await api("a key with limits", "POST", "/api/keys", full)
    ada, bob = Caller("Ada", reader["key"]), Caller("Bob", writer["key"])
    await api("she may not write", "POST", "/api/instances", GOOD, caller=ada)
    await api("she may not see keys", "GET", "/api/keys", caller=ada)
    await api("he may write", "POST", "/api/instances", GOOD, caller=bob)
    await api("but not so much", "POST", "/api/instances", {**GOOD, "name": "more"}, caller=bob)
    await api("his are his", "GET", "/api/instances/job", caller=ada)
    await api("he sees them", "GET", "/api/instances", caller=bob)
    await api("he asks too often", "GET", "/api/instances", caller=bob)
    await api("one key", "GET", f"/api/keys/{reader['id']}")
    other = await api("another key that may write", "POST", "/api/keys", {"scopes": ["write"]})
    cleo, own = Caller("Cleo", other["key"]), "/api/keys/me/webhook-secret"
    await api("what signs her webhooks", "GET", own, caller=cleo)
    await api("rotate that", "POST", f"{own}/rotate", headers={"Idempotency-Key": "r"}, caller=cleo)
    await api("the same again", "POST", f"{own}/rotate", headers={"Idempotency-Key": "r"}, caller=cleo)
    await api("admins do not see it", "GET", f"/api/keys/{other['id']}/webhook-secret")
    await api("his is no business of hers", "GET", f"/api/keys/{writer['id']}/webhook-secret", caller=cleo)
    await api("what signs the admin's", "GET", own)
    await api("that is not rotated so", "POST", f"{own}/rotate")
    await api("her secret", "PUT", "/api/secrets/hf", {"value": "canary"}, caller=cleo)
    await api("one for all", "PUT", "/api/secrets/team", {"value": "canary", "shared": True})
    await api("she may not", "PUT", "/api/secrets/x", {"value": "canary", "shared": True}, caller=cleo)
    await api("what she may use", "GET", "/api/secrets", caller=cleo)
    await api("one of them", "GET", "/api/secrets/team", caller=cleo)
    await api("hers is no business of an admin", "GET", "/api/secrets/hf")
    await api("a bad secret", "PUT", "/api/secrets/x", {"value": "", "shared": 1}, caller=cleo)
    await api("a bad name", "PUT", "/api/secrets/-x", {"value": "canary"}, caller=cleo)
    await api("seal them again", "POST", "/api/secrets/rotate")
    await api("remove it", "DELETE", "/api/secrets/hf", caller=cleo)
    await api("it is gone", "DELETE", "/api/secrets/hf", caller=cleo)
    await api("revoke it", "DELETE", f"/api/keys/{reader['id']}")
    await api("revoke it again", "DELETE", f"/api/keys/{reader['id']}")
    await api("it opens nothing any more", "GET", "/api/instances", caller=ada)
    await herd.clock.sleep(timedelta(days=2).total_seconds())
    await api("an expired key opens nothing", "GET", "/api/instances", caller=bob)
    await api("all keys", "GET", "/api/keys")
    await api("a key that is not there", "GET", "/api/keys/nothing1")
    await api("revoke what is not there", "DELETE", "/api/keys/nothing1")
    bad = {"scopes": ["king"], "label": 1, "expiresAt": "2025-01-01", "limits": {"maxGpus": -1, "odd": 1}}
    await api("a bad key", "POST", "/api/keys", bad)
    listed = await api("who did what", "GET", "/api/audit?limit=3")
    await api("before that", "GET", f"/api/audit?cursor={listed['nextCursor']}")
    await api("from the beginning", "GET", "/api/audit?order=asc&limit=2")
    await api("a bad list", "GET", "/api/audit?order=odd&cursor=x&odd=1")
    api.recording.compare()


async def test_costs(api: RecordedApi, herd: Herd) -> None:
    await api("nothing was spent yet", "GET", "/api/costs")
    await api("nothing costs money", "GET", "/api/leftovers")
    await api("nothing goes on", "GET", "/api/balance")
    await spend(herd)
    await api("the last thirty days", "GET", "/api/costs")
    await api("by label", "GET", "/api/costs?from=2025-12-01&to=2026-02-01&groupBy=label:team")
    await api("by day", "GET", "/api/costs?from=2025-12-30T12:00:00Z&to=2026-01-01&groupBy=day")
    await api("what still costs money", "GET", "/api/leftovers")
    await api("what is left", "GET", "/api/balance")
    await api("a day before it was compared", "GET", "/api/costs/bill?day=2025-12-30")
    await api("compare it with the bill", "POST", "/api/costs/reconcile", {"day": "2025-12-30"})
    await api("the day as it was compared", "GET", "/api/costs/bill?day=2025-12-30")
    await api("beside the bill", "GET", "/api/costs?from=2025-12-29&groupBy=day")
    await api("what was told", "GET", "/api/events/history?type=costs.drift")
    reader = await api("a key that may read", "POST", "/api/keys", {"scopes": ["read"]})
    ada = Caller("Ada", reader["key"])
    await api("of all that nothing is hers", "GET", "/api/costs?from=2025-12-01", caller=ada)
    await api("nor what still costs", "GET", "/api/leftovers", caller=ada)
    await api("the balance is not for her", "GET", "/api/balance", caller=ada)
    await api("nor is the bill", "GET", "/api/costs/bill", caller=ada)
    await api("a bad report", "GET", "/api/costs?from=then&to=2001-01-01&groupBy=odd&odd=1")
    await api("a bad day", "GET", "/api/costs/bill?day=2026-01-32")
    await api("a day to come", "POST", "/api/costs/reconcile", {"day": "2026-01-02"})
    await api("no day", "POST", "/api/costs/reconcile", {"odd": 1})
    api.recording.compare()


async def test_budgets(api: RecordedApi, herd: Herd) -> None:
    await api("there are none", "GET", "/api/budgets")
    await spend(herd)
    nlp = {"name": "nlp", "scope": {"label": {"team": "nlp"}}, "amount": "20", "period": "total"}
    made = await api("make one", "POST", "/api/budgets", {**nlp, "atLimit": "stop", "warnPercent": [30]})
    await api("its name is taken", "POST", "/api/budgets", nlp)
    await api("one for everything", "POST", "/api/budgets", {**nlp, "name": "all", "scope": {"all": True}})
    await api("all of them", "GET", "/api/budgets")
    await api("one by its name", "GET", "/api/budgets/nlp")
    await herd.review_budgets()
    await api("what was told", "GET", "/api/events/history?type=budget.warning")
    wish = {**GOOD, "labels": {"team": "nlp"}}
    await api("lower it", "PATCH", f"/api/budgets/{made['id']}", {"amount": "7"})
    await api("a create that it does not hold", "POST", "/api/instances", wish)
    await herd.review_budgets()
    await api("a create when it is used up", "POST", "/api/instances", wish)
    await api("raise it and be strict", "PATCH", "/api/budgets/nlp", {"amount": 50, "strict": True})
    await api("a create without an end", "POST", "/api/instances", wish)
    await api("remove it", "DELETE", "/api/budgets/nlp")
    await api("it is gone", "GET", "/api/budgets/nlp")
    bad = {"name": "", "scope": {"key": "nobody"}, "amount": -1, "period": "year", "atLimit": "odd", "odd": 1}
    await api("a bad budget", "POST", "/api/budgets", bad)
    await api("a key that is not there", "POST", "/api/budgets", {**nlp, "scope": {"key": "nobody"}})
    api.recording.compare()


async def test_events(api: RecordedApi, app: ASGIApp, herd: Herd, recording: Recording) -> None:
    await api("nothing has happened", "GET", "/api/events/history")
    mine = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "stream-1"}
    async with asking(app, "/api/events", mine) as live:
        await herd.clock.settle()
        made = await api("a create", "POST", "/api/instances", {**GOOD, "healthCheck": CHECK})
        await herd.run_for(2 * MINUTE)
        await api("a stop", "POST", f"/api/instances/{made['id']}/stop")
        await herd.run_for(2 * MINUTE)
        rent_outside_gpuherd(herd.world, "somebody-elses")
        await look_for(herd, MINUTE)
    _record_stream(recording, "the stream of all that, live", "/api/events", live)
    resumed = {**mine, "Last-Event-ID": "3", "X-Request-Id": "stream-2"}
    async with asking(app, "/api/events", resumed, "type=instance.exited") as late:
        await herd.clock.sleep(20)
    _record_stream(recording, "from the third on, of one type", "/api/events?type=instance.exited", late)
    await api("the history", "GET", "/api/events/history")
    page = await api("a page of it", "GET", "/api/events/history?limit=2")
    await api("the page before it", "GET", f"/api/events/history?limit=2&cursor={page['nextCursor']}")
    await api("since an event", "GET", "/api/events/history?lastEventId=2&limit=2")
    await api("of one instance", "GET", "/api/events/history?instance=job&type=instance.created")
    await api("of none", "GET", "/api/events/history?instance=account")
    await api("a bad history", "GET", "/api/events/history?limit=0&cursor=x&odd=1")
    await api("forwards and backwards", "GET", "/api/events/history?cursor=1&lastEventId=1")
    await api("a stream from nowhere", "GET", "/api/events", headers={"Last-Event-ID": "x"})
    await api("a stream of nobody", "GET", "/api/events?instance=nobody")
    await api("a stream without a key", "GET", "/api/events", caller=NOBODY)
    recording.compare()


def _record_stream(recording: Recording, title: str, path: str, reply: object) -> None:
    recording.heading(title)
    status, headers, body = (getattr(reply, name) for name in ("status", "headers", "body"))
    recording.add(f"GET {path}", f"< {status}", *header_lines("<", headers))
    recording.add_body(body)
