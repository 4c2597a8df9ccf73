"""`/api/prewarms`: images that are pulled into a region before a machine needs them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.cloud.prewarm import PrewarmState
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.parsed import parsed
from gpuherd.entrypoints.query import Query, choice, described, text
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.entrypoints.schemas.workload import PrewarmBody
from gpuherd.usecases.describe.catalogue import describe_prewarm, describe_prewarms

router = APIRouter(prefix="/api/prewarms", tags=["prewarms"])

STATE, REGION = choice("state", PrewarmState), text("region")


@router.get("", openapi_extra=described((STATE, REGION)))
async def list_prewarms(request: Request) -> Response:
    """List the account's prewarm tasks, newest first, with the quota. Filters: `state`, `region`."""
    query = Query(request)
    state, region = query(STATE), query(REGION)
    query.only((STATE, REGION))
    query.done()
    found = await plane_of(request).prewarms.list_all(state, region)
    return json_reply(describe_prewarms(found.tasks, found.quota))


@router.post("", status_code=201, openapi_extra=takes(PrewarmBody))
async def create(request: Request) -> Response:
    """Pull an image into a region ahead of time. Machines there, and with these products, start sooner."""
    plane, caller = plane_of(request), acting_caller(request)
    wanted = (await parsed(PrewarmBody, await read_object(request), plane, caller)).to_wish()
    made = await plane.prewarms.create(wanted, caller)
    return json_reply(describe_prewarm(made), status=201)


@router.delete("/{prewarm_id}")
async def delete(prewarm_id: str, request: Request) -> Response:
    """Delete a prewarm task, which makes room for another; machines that run are not touched."""
    return json_reply(await plane_of(request).prewarms.delete(prewarm_id, acting_caller(request)))
