"""Routes of instances: create, list, read, operations, leases, plans."""

from __future__ import annotations

import json
from typing import Any, TypedDict

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.lease_models import LeaseBody
from gpuherd.contract.webhook_models import EventHistory
from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.cloud.machine import LogSource
from gpuherd.domain.errors import FieldProblem, InvalidRequest, NotFound
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import WaitFor
from gpuherd.domain.instance.plan import HeldPlan
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.http.idempotent_route import REPLAYED_HEADER, claim_of
from gpuherd.entrypoints.http.json_body import read_object, read_optional_object
from gpuherd.entrypoints.http.openapi_document import takes
from gpuherd.entrypoints.http_auth import (
    acting_caller,
    caller_of,
    may_go_on,
    require_scope,
)
from gpuherd.entrypoints.list_queries import (
    INSTANCE_LIST,
    Query,
    choice,
    described,
    flag,
    instance_query,
    number,
)
from gpuherd.entrypoints.problem_response import parsed
from gpuherd.entrypoints.schemas.goals import (
    GoalBody,
    GoalByNameBody,
    StartBody,
    StartByNameBody,
)
from gpuherd.entrypoints.schemas.launch import (
    CreateBody,
    LaunchBody,
    PlanBody,
    RentPlanBody,
)
from gpuherd.entrypoints.streamed_replies import CLIENT_CLOSED_REQUEST, LogReply, until_disconnect
from gpuherd.entrypoints.use_case_access import (
    Plane,
    bytes_reply,
    json_reply,
    plane_of,
)
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.usecases.instances.change_goal import AcceptedGoal
from gpuherd.usecases.instances.launch_spec_from_body import lease_order_of
from gpuherd.usecases.instances.read_instance import WAIT_MAX_S
from gpuherd.usecases.instances.read_log import LogReader
from gpuherd.usecases.views.instance_view import (
    describe,
    describe_accepted,
    describe_held_plan,
    describe_lease_change,
    describe_operation,
    describe_plan,
)
from gpuherd.usecases.views.service_view import describe_event

instance_router = APIRouter(prefix="/api/instances", tags=["instances"])
INCLUDE_NOVITA_ONLY = flag("includeNovitaOnly", default=True)
SYNC_LOCAL_STATE = flag("syncLocalState", default=False)
COMPREHENSIVE = (INCLUDE_NOVITA_ONLY, SYNC_LOCAL_STATE)
FOLLOW, SOURCE = flag("follow", default=False), choice("source", LogSource)
WAIT, TIMEOUT = choice("wait", WaitFor), number("timeout", 0, WAIT_MAX_S, default=30)


@instance_router.post("", status_code=201, openapi_extra=takes(CreateBody))
async def launch(request: Request) -> Response:
    """Create an instance; its machine is rented in the background. Follow `Location` or a `webhookUrl`.

    `{"planId": "…"}` alone rents a plan that is held: once, and never for more.
    """
    plane = plane_of(request)
    body = await read_object(request)
    claim, caller = (
        claim_of(request.scope, body, plane.services),
        acting_caller(request),
    )
    plan = None
    if "planId" in body:
        plan = await _held_plan(plane, validate_body(RentPlanBody, body).plan_id, caller)
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


@instance_router.get("", openapi_extra=described(INSTANCE_LIST))
async def list_instances(request: Request) -> Response:
    """List instances, newest first. Filters: `status`, `name`, `label=key=value`."""
    query = Query(request)
    wanted = instance_query(query, caller_of(request).owner)
    query.done()
    return bytes_reply(await plane_of(request).list_instances(wanted))


# Before `/{id_or_name}`, or it would be taken for a name.
@instance_router.get("/comprehensive", openapi_extra=described(COMPREHENSIVE))
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


@instance_router.get("/{id_or_name}", openapi_extra=described((WAIT, TIMEOUT)))
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


@instance_router.get("/{id_or_name}/events")
async def events(id_or_name: str, request: Request) -> Response:
    """List the events of an instance, oldest first."""
    found = await plane_of(request).read_history.events(id_or_name, caller_of(request))
    return json_reply(EventHistory(events=tuple(map(describe_event, found))))


@instance_router.get("/{id_or_name}/logs", openapi_extra=described((FOLLOW, SOURCE)))
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


@instance_router.get("/{id_or_name}/attempts")
async def attempts(id_or_name: str, request: Request) -> Response:
    """Explain an instance: offers ranked and refused, create calls, what it waits for, and its history."""
    plane = plane_of(request)
    instance = await plane.find_instance(id_or_name, caller_of(request))
    return json_reply(await plane.explain_instance(instance))


operation_router = APIRouter(tags=["operations"])


@operation_router.post("/api/instances/start", status_code=202, openapi_extra=takes(StartByNameBody))
async def start_by_name(request: Request) -> Response:
    """Start the instance that is called `instanceName`."""
    return await _start(request, None)


@operation_router.post("/api/instances/stop", status_code=202, openapi_extra=takes(GoalByNameBody))
async def stop_by_name(request: Request) -> Response:
    """Stop the instance that is called `instanceName`."""
    body = await read_optional_object(request)
    name = validate_body(GoalByNameBody, body).instance_name
    return accepted(
        await plane_of(request).change_goal.stop(name, by_name=True, **_request_origin(request, body))
    )


@operation_router.post("/api/instances/delete", status_code=202, openapi_extra=takes(GoalByNameBody))
async def delete_by_name(request: Request) -> Response:
    """Delete the instance that is called `instanceName`."""
    body = await read_optional_object(request)
    name = validate_body(GoalByNameBody, body).instance_name
    return accepted(
        await plane_of(request).change_goal.delete(name, by_name=True, **_request_origin(request, body))
    )


@operation_router.post(
    "/api/instances/{id_or_name}/start", status_code=202, openapi_extra=takes(StartBody, required=False)
)
async def start(id_or_name: str, request: Request) -> Response:
    """Start an exited instance; follow the operation, or give a `webhookUrl`."""
    return await _start(request, id_or_name)


@operation_router.post(
    "/api/instances/{id_or_name}/restart", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def restart(id_or_name: str, request: Request) -> Response:
    """Restart a running instance, on the same machine with the same data; its ports may change."""
    body = await read_optional_object(request)
    validate_body(GoalBody, body)
    return accepted(await plane_of(request).change_goal.restart(id_or_name, **_request_origin(request, body)))


@operation_router.post(
    "/api/instances/{id_or_name}/replace", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def replace(id_or_name: str, request: Request) -> Response:
    """Let another instance of the same lineage take over: same wish, another machine, without the data."""
    body = await read_optional_object(request)
    validate_body(GoalBody, body)
    return accepted(await plane_of(request).replace_instance(id_or_name, **_request_origin(request, body)))


@operation_router.post(
    "/api/instances/{id_or_name}/stop", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def stop(id_or_name: str, request: Request) -> Response:
    """Stop a running instance. Its data stays, its GPU does not."""
    body = await read_optional_object(request)
    validate_body(GoalBody, body)
    return accepted(await plane_of(request).change_goal.stop(id_or_name, **_request_origin(request, body)))


@operation_router.delete(
    "/api/instances/{id_or_name}", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def delete(id_or_name: str, request: Request) -> Response:
    """Delete an instance and its machine, whatever the state. Done when the cloud proves that it is gone."""
    body = await read_optional_object(request)
    validate_body(GoalBody, body)
    return accepted(await plane_of(request).change_goal.delete(id_or_name, **_request_origin(request, body)))


@operation_router.get("/api/operations/{operation_id}")
async def show_operations(operation_id: str, request: Request) -> Response:
    """Return an operation with its phases and times."""
    lookup = plane_of(request).lookup
    operation, instance_id = await lookup.operation(operation_id, caller_of(request))
    return json_reply(describe_operation(operation, instance_id))


async def _start(request: Request, id_or_name: str | None) -> Response:
    plane = plane_of(request)
    by_name = id_or_name is None
    raw = await read_optional_object(request)
    body = validate_body(StartByNameBody if by_name else StartBody, raw, plane.targets)
    return accepted(
        await plane.change_goal.start(
            id_or_name or body.instance_name or "",
            health_check=body.check,
            webhook_url=body.webhook_url,
            capacity_wait_s=body.capacity_wait_s,
            by_name=by_name,
            **_request_origin(request, raw),
        )
    )


class _RequestOrigin(TypedDict):
    """Who asks, and by which word of his own he knows the request."""

    caller: Caller
    claim: IdempotencyClaim | None


def _request_origin(request: Request, body: dict[str, Any]) -> _RequestOrigin:
    return {
        "caller": acting_caller(request),
        "claim": claim_of(request.scope, body, plane_of(request).services),
    }


def accepted(it: AcceptedGoal) -> Response:
    """Return that the goal is written down, and where to follow it."""
    instance, operation = it.instance, it.operation
    headers = {"Location": f"/api/operations/{operation.id}"}
    if it.replayed:
        headers[REPLAYED_HEADER] = "true"
    return json_reply(describe_accepted(operation, instance), status=202, headers=headers)


lease_router = APIRouter(prefix="/api/instances/{id_or_name}", tags=["leases"])


@lease_router.post("/lease", openapi_extra=takes(LeaseBody))
async def set_lease(id_or_name: str, request: Request) -> Response:
    """Set the end of an instance anew: `seconds` from now, or `until` a moment; `then` stop or delete."""
    order = lease_order_of(validate_body(LeaseBody, await read_object(request)))
    return _changed(
        request, await plane_of(request).change_lease.set(id_or_name, order, acting_caller(request))
    )


@lease_router.delete("/lease")
async def remove_lease(id_or_name: str, request: Request) -> Response:
    """Take the lease of an instance away."""
    return _changed(request, await plane_of(request).change_lease.remove(id_or_name, acting_caller(request)))


@lease_router.post("/heartbeat", status_code=204)
async def heartbeat(id_or_name: str, request: Request) -> Response:
    """Say that an instance is in use, so that silence does not end it."""
    await plane_of(request).note_use(id_or_name, acting_caller(request))
    return Response(status_code=204)


def _changed(request: Request, it: Instance) -> Response:
    return json_reply(describe_lease_change(it, plane_of(request).clock.now()))


plan_router = APIRouter(prefix="/api/plans", tags=["plans"])


@plan_router.post("", openapi_extra=takes(PlanBody))
async def plan(request: Request) -> Response:
    """Dry run of a create: offers in the order of trying, with prices. Nothing is rented.

    With `hold` (scope write) the plan can be rented by its `planId` for ten minutes, once, and never for
    more; one that does not fit is not held.
    """
    plane, caller = plane_of(request), caller_of(request)
    said = await read_object(request)
    body = await parsed(PlanBody, said, plane, caller)
    if body.hold:
        require_scope(request, Scope.WRITE)
    planned = await plane.plan_launch(body.to_request(caller=caller))
    wish = {name: it for name, it in said.items() if name != "hold"}
    held = await plane.plans.hold(planned, wish, caller) if body.hold else None
    return json_reply(describe_plan(planned, held))


@plan_router.get("/{plan_id}")
async def show_plans(plan_id: str, request: Request) -> Response:
    """Return a plan that is held, for the key that planned it, with what was rented by it."""
    plane, caller = plane_of(request), caller_of(request)
    held = await plane.plans.find(plan_id, caller)
    wanted = validate_body(LaunchBody, json.loads(held.body), plane.targets).to_request(
        caller=caller, plan=held
    )
    made = await plane.launch_instance.made_of(wanted)
    return json_reply(describe_held_plan(held, wanted.name, wanted.wish, wanted.terms.lease, made))
