"""`/api/orphans`: machines on the account that no instance has, what they cost, and what to do about them."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.orphans.orphan import Orphan, OrphanVerdict
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.http.json_body import read_optional_object
from gpuherd.entrypoints.query import Query, choice, described
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.others import EmptyBody
from gpuherd.usecases.describe.instance import describe
from gpuherd.usecases.describe.orphan import describe_ledger, describe_orphan, describe_released

router = APIRouter(prefix="/api/orphans", tags=["orphans"])

VERDICT = choice("verdict", OrphanVerdict)


@router.get("", openapi_extra=described((VERDICT,)))
async def list_orphans(request: Request) -> Response:
    """List orphans with their price an hour. Filter: `verdict`."""
    query = Query(request)
    verdict = query(VERDICT)
    query.only((VERDICT,))
    query.done()
    plane = plane_of(request)
    orphans = await plane.orphans.list_open(verdict)
    braked = await plane.orphans.list_open.braked()
    return json_reply(describe_ledger(orphans, braked, plane.clock.now()))


@router.post("/resume")
async def resume(request: Request) -> Response:
    """Release the brake: surplus machines are removed again, those that were held back first."""
    EmptyBody.parse(await read_optional_object(request))
    plane = plane_of(request)
    caller, now = acting_caller(request), plane.clock.now()
    audit_record = caller.audit_record("orphan.resume", "collector", now)
    released = await plane.orphans.collect.resume(caller.key_id, audit_record)
    return json_reply(describe_released(released, now))


@router.get("/{cloud_id}")
async def show(cloud_id: str, request: Request) -> Response:
    """Return one orphan."""
    plane = plane_of(request)
    found = await plane.orphans.find(cloud_id)
    return json_reply(describe_orphan(found.orphan, plane.clock.now()))


@router.post("/{cloud_id}/adopt", status_code=201)
async def adopt(cloud_id: str, request: Request) -> Response:
    """Adopt an orphan as an instance; its name in the cloud stays. Again: the same instance."""
    EmptyBody.parse(await read_optional_object(request))
    instance, is_new = await plane_of(request).orphans.adopt(cloud_id, caller=acting_caller(request))
    headers = {"Location": f"/api/instances/{instance.id}"}
    return json_reply(describe(instance), status=201 if is_new else 200, headers=headers)


@router.post("/{cloud_id}/stop", status_code=202)
async def stop(cloud_id: str, request: Request) -> Response:
    """Stop an orphan; its disk stays."""
    EmptyBody.parse(await read_optional_object(request))
    return _ordered(
        request, await plane_of(request).orphans.order.stop(cloud_id, caller=acting_caller(request))
    )


@router.post("/{cloud_id}/delete", status_code=202)
async def delete(cloud_id: str, request: Request) -> Response:
    """Delete an orphan with all its data. Repeated until the cloud proves that it is gone."""
    EmptyBody.parse(await read_optional_object(request))
    return _ordered(
        request, await plane_of(request).orphans.order.delete(cloud_id, caller=acting_caller(request))
    )


def _ordered(request: Request, orphan: Orphan) -> Response:
    answer = describe_orphan(orphan, plane_of(request).clock.now())
    return json_reply(
        answer, status=202, headers={"Location": f"/api/orphans/{quote(orphan.cloud_id, safe='')}"}
    )
