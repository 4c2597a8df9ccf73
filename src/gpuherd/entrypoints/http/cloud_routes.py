"""Routes of the account: orphans, sync, blocked creates, caches."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.service_models import (
    CachesCleaned,
    CachesCleared,
    ClearCacheBody,
    CloudTrust,
    Creates,
    EmptyBody,
    Sync,
)
from gpuherd.domain.cloud.orphan import Orphan, OrphanVerdict
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.http.json_body import read_optional_object
from gpuherd.entrypoints.http.openapi_document import takes
from gpuherd.entrypoints.http_auth import acting_caller, append_audit_record, caller_of
from gpuherd.entrypoints.list_queries import Query, choice, described
from gpuherd.entrypoints.use_case_access import Plane, json_reply, plane_of
from gpuherd.usecases.cloud import guard_creates
from gpuherd.usecases.cloud.collect_orphans import resume_collector
from gpuherd.usecases.cloud.handle_orphan import (
    adopt_orphan,
    collector_brake,
    delete_orphan,
    find_orphan,
    list_orphans,
    stop_orphan,
)
from gpuherd.usecases.cloud.observe_cloud import sync_cloud
from gpuherd.usecases.service.prune_records import clear_caches, clear_expired, read_cache_stats
from gpuherd.usecases.views.instance_view import describe
from gpuherd.usecases.views.service_view import describe_ledger, describe_orphan, describe_released

orphan_router = APIRouter(prefix="/api/orphans", tags=["orphans"])
VERDICT = choice("verdict", OrphanVerdict)


@orphan_router.get("", openapi_extra=described((VERDICT,)))
async def show_orphans(request: Request) -> Response:
    """List orphans with their price an hour. Filter: `verdict`."""
    query = Query(request)
    verdict = query(VERDICT)
    query.only((VERDICT,))
    query.done()
    plane = plane_of(request)
    orphans = await list_orphans(plane.services, verdict)
    braked = await collector_brake(plane.services)
    return json_reply(describe_ledger(orphans, braked, plane.clock.now()))


@orphan_router.post("/resume")
async def resume(request: Request) -> Response:
    """Release the brake: surplus machines are removed again, those that were held back first."""
    validate_body(EmptyBody, await read_optional_object(request))
    plane = plane_of(request)
    caller, now = acting_caller(request), plane.clock.now()
    audit_record = caller.audit_record("orphan.resume", "collector", now)
    released = await resume_collector(plane.services, caller.key_id, audit_record)
    return json_reply(describe_released(released, now))


@orphan_router.get("/{cloud_id}")
async def show(cloud_id: str, request: Request) -> Response:
    """Return one orphan."""
    plane = plane_of(request)
    found = await find_orphan(plane.services, cloud_id)
    return json_reply(describe_orphan(found.orphan, plane.clock.now()))


@orphan_router.post("/{cloud_id}/adopt", status_code=201)
async def adopt(cloud_id: str, request: Request) -> Response:
    """Adopt an orphan as an instance; its name in the cloud stays. Again: the same instance."""
    validate_body(EmptyBody, await read_optional_object(request))
    services, caller = plane_of(request).services, acting_caller(request)
    instance, is_new = await adopt_orphan(services, cloud_id, caller)
    headers = {"Location": f"/api/instances/{instance.id}"}
    return json_reply(describe(instance), status=201 if is_new else 200, headers=headers)


@orphan_router.post("/{cloud_id}/stop", status_code=202)
async def stop(cloud_id: str, request: Request) -> Response:
    """Stop an orphan; its disk stays."""
    validate_body(EmptyBody, await read_optional_object(request))
    services, caller = plane_of(request).services, acting_caller(request)
    return _ordered(request, await stop_orphan(services, cloud_id, caller))


@orphan_router.post("/{cloud_id}/delete", status_code=202)
async def delete(cloud_id: str, request: Request) -> Response:
    """Delete an orphan with all its data. Repeated until the cloud proves that it is gone."""
    validate_body(EmptyBody, await read_optional_object(request))
    services, caller = plane_of(request).services, acting_caller(request)
    return _ordered(request, await delete_orphan(services, cloud_id, caller))


def _ordered(request: Request, orphan: Orphan) -> Response:
    answer = describe_orphan(orphan, plane_of(request).clock.now())
    return json_reply(
        answer, status=202, headers={"Location": f"/api/orphans/{quote(orphan.cloud_id, safe='')}"}
    )


cloud_router = APIRouter(prefix="/api/cloud", tags=["cloud"])


@cloud_router.get("")
async def show_cloud(request: Request) -> Response:
    """Return True if the account is known to be ours, and whether too many machines are missing at once."""
    return json_reply(await _trust(plane_of(request)))


@cloud_router.post("/confirm-account")
async def confirm_account(request: Request) -> Response:
    """Say that the key is of the account on which the machines of this database are."""
    plane = plane_of(request)
    await plane.account.confirm(acting_caller(request))
    return json_reply(await _trust(plane))


@cloud_router.post("/confirm-loss")
async def confirm_loss(request: Request) -> Response:
    """Say that the machines which are missing now are gone; their owners are told with the next list."""
    plane = plane_of(request)
    await plane.vanishing.confirm(acting_caller(request))
    return json_reply(await _trust(plane))


async def _trust(plane: Plane) -> CloudTrust:
    return CloudTrust(
        account_unconfirmed=await plane.account.unconfirmed(), vanishing_held=await plane.vanishing.held()
    )


creates_router = APIRouter(prefix="/api/creates", tags=["creates"])


@creates_router.get("")
async def show_creates(request: Request) -> Response:
    """Return True if creates are blocked, and why."""
    return json_reply(Creates(blocked=await guard_creates.creates_blocked(plane_of(request).services)))


@creates_router.post("/resume")
async def resume_creates(request: Request) -> Response:
    """Allow creates again, after the reason of the block was looked at."""
    await guard_creates.resume_creates(plane_of(request).services, acting_caller(request))
    return json_reply(Creates(blocked=None))


sync_router = APIRouter(prefix="/api/sync", tags=["instances"])


@sync_router.post("")
async def sync(request: Request) -> Response:
    """Observe the cloud now, and update what is stored."""
    await append_audit_record(request, "cloud.sync", "cloud")
    look = await sync_cloud(plane_of(request).services)
    return json_reply(
        Sync(
            listed=look.record.machines,
            complete=look.record.complete,
            witness=look.record.witness.value,
            changed=look.changed,
        )
    )


cache_router = APIRouter(prefix="/api/cache", tags=["cache"])


@cache_router.get("/stats")
async def stats(request: Request) -> Response:
    """Show the size, hits and misses of each cache."""
    # The ids are those of everybody's instances.
    with_ids = caller_of(request).sees_all
    return json_reply(await read_cache_stats(plane_of(request).services, with_ids=with_ids))


@cache_router.post("/clear", openapi_extra=takes(ClearCacheBody, required=False))
async def clear(request: Request) -> Response:
    """Clear all caches, or the cache `cacheName`."""
    name = validate_body(ClearCacheBody, await read_optional_object(request)).cache_name
    await append_audit_record(request, "cache.clear", name or "all")
    return json_reply(CachesCleared(cleared=tuple(clear_caches(plane_of(request).services, name))))


@cache_router.post("/cleanup")
async def cleanup(request: Request) -> Response:
    """Remove expired entries from all caches."""
    await append_audit_record(request, "cache.cleanup", "all")
    return json_reply(CachesCleaned(removed=await clear_expired(plane_of(request).services)))
