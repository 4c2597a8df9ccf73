"""The ends of instances: set one anew, take it away, say that it is in use."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.instance.instance import Instance
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.endings import LeaseBody
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.usecases.describe.instance import describe_lease_change

router = APIRouter(prefix="/api/instances/{id_or_name}", tags=["leases"])


@router.post("/lease", openapi_extra=takes(LeaseBody))
async def set_lease(id_or_name: str, request: Request) -> Response:
    """Set the end of an instance anew: `seconds` from now, or `until` a moment; `then` stop or delete."""
    order = LeaseBody.parse(await read_object(request)).to_order()
    return _changed(
        request, await plane_of(request).change_lease.set(id_or_name, order, acting_caller(request))
    )


@router.delete("/lease")
async def remove_lease(id_or_name: str, request: Request) -> Response:
    """Take the lease of an instance away."""
    return _changed(request, await plane_of(request).change_lease.remove(id_or_name, acting_caller(request)))


@router.post("/heartbeat", status_code=204)
async def heartbeat(id_or_name: str, request: Request) -> Response:
    """Say that an instance is in use, so that silence does not end it."""
    await plane_of(request).note_use(id_or_name, acting_caller(request))
    return Response(status_code=204)


def _changed(request: Request, it: Instance) -> Response:
    return json_reply(describe_lease_change(it, plane_of(request).clock.now()))
