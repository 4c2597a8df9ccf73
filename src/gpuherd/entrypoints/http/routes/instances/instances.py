"""`/api/instances`: rent, list, look."""

from __future__ import annotations

import json

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.event import EventHistory
from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.logs import LogSource
from gpuherd.domain.errors import FieldProblem, InvalidRequest, NotFound
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.domain.plans.held_plan import HeldPlan
from gpuherd.entrypoints.auth.authorization import acting_caller, caller_of, require_scope
from gpuherd.entrypoints.auth.recheck import may_go_on
from gpuherd.entrypoints.http.idempotency_key import REPLAYED_HEADER, claim_of
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.http.long_poll import CLIENT_CLOSED_REQUEST, until_disconnect
from gpuherd.entrypoints.lists import INSTANCE_LIST, instance_query
from gpuherd.entrypoints.log_reply import LogReply
from gpuherd.entrypoints.parsed import parsed
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.query import Query, choice, described, flag, number
from gpuherd.entrypoints.replies import bytes_reply, json_reply, plane_of
from gpuherd.entrypoints.schemas.launch import CreateBody, LaunchBody, RentPlanBody
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.usecases.describe.event import describe_event
from gpuherd.usecases.describe.instance import describe
from gpuherd.usecases.instances.read import WAIT_MAX_S
from gpuherd.usecases.instances.read_log import LogReader

router = APIRouter(prefix="/api/instances", tags=["instances"])

INCLUDE_NOVITA_ONLY = flag("includeNovitaOnly", default=True)
SYNC_LOCAL_STATE = flag("syncLocalState", default=False)
COMPREHENSIVE = (INCLUDE_NOVITA_ONLY, SYNC_LOCAL_STATE)
FOLLOW, SOURCE = flag("follow", default=False), choice("source", LogSource)
WAIT, TIMEOUT = choice("wait", WaitFor), number("timeout", 0, WAIT_MAX_S, default=30)


@router.post("", status_code=201, openapi_extra=takes(CreateBody))
async def launch(request: Request) -> Response:
    """Create an instance; its machine is rented in the background. Follow `Location` or a `webhookUrl`.

    `{"planId": "…"}` alone rents a plan that is held: once, and never for more.
    """
    plane = plane_of(request)
    body = await read_object(request)
    claim, caller = claim_of(request.scope, body, plane.keys.claim_request), acting_caller(request)
    plan = None
    if "planId" in body:
        plan = await _held_plan(plane, RentPlanBody.parse(body).plan_id, caller)
        body = json.loads(plan.body)
    wanted = await parsed(LaunchBody, body, plane, caller)
    launched = await plane.launch_instance(wanted.to_request(claim=claim, caller=caller, plan=plan))
    headers = {"Location": f"/api/instances/{launched.instance.id}"}
    if launched.replayed:
        headers[REPLAYED_HEADER] = "true"
    return json_reply(describe(launched.instance), status=201, headers=headers)


async def _held_plan(plane: Plane, plan_id: str, caller: Caller) -> HeldPlan:
    """Return the plan that a body names; one that is not there is a wrong value, as in other fields."""
    try:
        return await plane.plans.find(plan_id, caller)
    except NotFound as missing:
        problem = FieldProblem("planId", "INVALID_PLAN_ID", f"planId: {missing.message}")
        raise InvalidRequest([problem]) from missing


@router.get("", openapi_extra=described(INSTANCE_LIST))
async def list_instances(request: Request) -> Response:
    """List instances, newest first. Filters: `status`, `name`, `label=key=value`."""
    query = Query(request)
    wanted = instance_query(query, caller_of(request).owner)
    query.done()
    return bytes_reply(await plane_of(request).list_instances(wanted))


# Before `/{id_or_name}`, or it would be taken for a name.
@router.get("/comprehensive", openapi_extra=described(COMPREHENSIVE))
async def comprehensive(request: Request) -> Response:
    """List our instances merged with the cloud's machines. `includeNovitaOnly`, `syncLocalState`."""
    query = Query(request)
    include_novita_only = query(INCLUDE_NOVITA_ONLY)
    sync_local_state = query(SYNC_LOCAL_STATE)
    query.only(COMPREHENSIVE)
    query.done()
    if sync_local_state:
        # It changes what we remember, although it asks like a reader.
        require_scope(request, Scope.WRITE)
    return bytes_reply(
        await plane_of(request).list_comprehensive(
            include_novita_only=include_novita_only,
            sync_local_state=sync_local_state,
            caller=caller_of(request),
        )
    )


@router.get("/{id_or_name}", openapi_extra=described((WAIT, TIMEOUT)))
async def show(id_or_name: str, request: Request) -> Response:
    """Return one instance; with `wait=ready|exited|deleted` a long poll of up to `timeout` seconds."""
    reader, caller = plane_of(request).read_instance, caller_of(request)
    query = Query(request)
    what = query(WAIT)
    timeout_s = query(TIMEOUT)
    query.done()
    if what is None:
        return bytes_reply(await reader.details(id_or_name, caller))
    waited = await until_disconnect(request, reader.wait_for(id_or_name, what, timeout_s, caller))
    if waited is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    details, timed_out = waited
    return bytes_reply(details, headers={"X-Wait-Timed-Out": "true"} if timed_out else None)


@router.get("/{id_or_name}/events")
async def events(id_or_name: str, request: Request) -> Response:
    """List the events of an instance, oldest first."""
    found = await plane_of(request).read_history.events(id_or_name, caller_of(request))
    return json_reply(EventHistory(events=tuple(map(describe_event, found))))


@router.get("/{id_or_name}/logs", openapi_extra=described((FOLLOW, SOURCE)))
async def logs(id_or_name: str, request: Request) -> Response:
    """Stream a log as text: what there is now, or with `follow=true` also what comes.

    `source` is `instance`, its program, or `system`, what the cloud does for it: the pull of the image.
    """
    query = Query(request)
    follow, source = query(FOLLOW), query(SOURCE) or LogSource.INSTANCE
    query.only((FOLLOW, SOURCE))
    query.done()
    reader = LogReader(id_or_name, source, follow, caller_of(request), may_go_on(request))
    return LogReply(plane_of(request).read_log, reader)


@router.get("/{id_or_name}/attempts")
async def attempts(id_or_name: str, request: Request) -> Response:
    """Explain an instance: offers ranked and refused, create calls, what it waits for, and its history."""
    plane = plane_of(request)
    instance = await plane.find_instance(id_or_name, caller_of(request))
    return json_reply(await plane.explain_instance(instance))
