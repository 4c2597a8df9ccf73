"""Routes of instances: create, list, read, operations, leases, plans."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.launch_models import CreateBody, LaunchBody, PlanBody, RentPlanBody
from gpuherd.contract.lease_models import LeaseBody
from gpuherd.contract.operation_models import GoalBody, GoalByNameBody, StartBody, StartByNameBody
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
from gpuherd.entrypoints.streamed_replies import CLIENT_CLOSED_REQUEST, LogReply, until_disconnect
from gpuherd.entrypoints.use_case_access import (
    Plane,
    bytes_reply,
    json_reply,
    plane_of,
)
from gpuherd.entrypoints.values_from_bodies import target_check
from gpuherd.usecases.instances.change_goal import (
    StartOptions,
    delete_instance,
    restart_instance,
    start_instance,
    stop_instance,
)
from gpuherd.usecases.instances.change_lease import note_use, remove_lease, set_lease
from gpuherd.usecases.instances.explain_instance import explain_instance
from gpuherd.usecases.instances.goal_request import AcceptedGoal, GoalRequest
from gpuherd.usecases.instances.launch_instance import find_launched, launch_instance
from gpuherd.usecases.instances.launch_spec_from_body import (
    health_check_of,
    launch_request_of,
    lease_order_of,
)
from gpuherd.usecases.instances.list_comprehensive import list_comprehensive
from gpuherd.usecases.instances.plan_launch import find_held_plan, hold_plan, plan_launch
from gpuherd.usecases.instances.read_instance import (
    WAIT_MAX_S,
    find_instance,
    find_operation,
    list_instances,
    read_instance,
    wait_for_instance,
)
from gpuherd.usecases.instances.read_log import LogReader
from gpuherd.usecases.instances.replace_instance import replace_instance
from gpuherd.usecases.views.instance_view import (
    describe,
    describe_accepted,
    describe_held_plan,
    describe_lease_change,
    describe_operation,
    describe_plan,
)
from gpuherd.usecases.views.webhook_view import describe_event

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
    launched = await launch_instance(plane.services, launch_request_of(wanted, caller, claim, plan))
    headers = {"Location": f"/api/instances/{launched.instance.id}"}
    if launched.replayed:
        headers[REPLAYED_HEADER] = "true"
    return json_reply(describe(launched.instance), status=201, headers=headers)


async def _held_plan(plane: Plane, plan_id: str, caller: Caller) -> HeldPlan:
    """Return the plan that a body names; one that is not there is a wrong value, as in other fields."""
    try:
        return await find_held_plan(plane.services, plan_id, caller)
    except NotFound as missing:
        problem = FieldProblem("planId", "INVALID_PLAN_ID", f"planId: {missing.message}")
        raise InvalidRequest([problem]) from missing


@instance_router.get("", openapi_extra=described(INSTANCE_LIST))
async def show_list(request: Request) -> Response:
    """List instances, newest first. Filters: `status`, `name`, `label=key=value`."""
    query = Query(request)
    wanted = instance_query(query, caller_of(request).owner)
    query.done()
    return bytes_reply(await list_instances(plane_of(request).services, wanted))


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
        await list_comprehensive(
            plane_of(request).services,
            include_novita_only=include_novita_only,
            sync_local_state=sync_local_state,
            caller=caller_of(request),
        )
    )


@instance_router.get("/{id_or_name}", openapi_extra=described((WAIT, TIMEOUT)))
async def show(id_or_name: str, request: Request) -> Response:
    """Return one instance; with `wait=ready|exited|deleted` a long poll of up to `timeout` seconds."""
    services, caller = plane_of(request).services, caller_of(request)
    query = Query(request)
    what = query(WAIT)
    timeout_s = query(TIMEOUT)
    query.done()
    if what is None:
        return bytes_reply(await read_instance(services, id_or_name, caller))
    waited = await until_disconnect(request, wait_for_instance(services, id_or_name, what, timeout_s, caller))
    if waited is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    details, timed_out = waited
    return bytes_reply(details, headers={"X-Wait-Timed-Out": "true"} if timed_out else None)


@instance_router.get("/{id_or_name}/events")
async def events(id_or_name: str, request: Request) -> Response:
    """List the events of an instance, oldest first."""
    services = plane_of(request).services
    instance = await find_instance(services, id_or_name, caller_of(request))
    found = await services.stores.instances.events(instance.id)
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
    return LogReply(plane_of(request).services, reader)


@instance_router.get("/{id_or_name}/attempts")
async def attempts(id_or_name: str, request: Request) -> Response:
    """Explain an instance: offers ranked and refused, create calls, what it waits for, and its history."""
    services = plane_of(request).services
    instance = await find_instance(services, id_or_name, caller_of(request))
    return json_reply(await explain_instance(services, instance))


operation_router = APIRouter(tags=["operations"])


@operation_router.post("/api/instances/start", status_code=202, openapi_extra=takes(StartByNameBody))
async def start_by_name(request: Request) -> Response:
    """Start the instance that is called `instanceName`."""
    return await _start(request, None)


@operation_router.post("/api/instances/stop", status_code=202, openapi_extra=takes(GoalByNameBody))
async def stop_by_name(request: Request) -> Response:
    """Stop the instance that is called `instanceName`."""
    body = await read_optional_object(request)
    goal = _goal_by_name(request, validate_body(GoalByNameBody, body).instance_name, body)
    return accepted(await stop_instance(plane_of(request).services, goal))


@operation_router.post("/api/instances/delete", status_code=202, openapi_extra=takes(GoalByNameBody))
async def delete_by_name(request: Request) -> Response:
    """Delete the instance that is called `instanceName`."""
    body = await read_optional_object(request)
    goal = _goal_by_name(request, validate_body(GoalByNameBody, body).instance_name, body)
    return accepted(await delete_instance(plane_of(request).services, goal))


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
    return accepted(await restart_instance(plane_of(request).services, _goal(request, id_or_name, body)))


@operation_router.post(
    "/api/instances/{id_or_name}/replace", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def replace_by_another(id_or_name: str, request: Request) -> Response:
    """Let another instance of the same lineage take over: same wish, another machine, without the data."""
    body = await read_optional_object(request)
    validate_body(GoalBody, body)
    return accepted(await replace_instance(plane_of(request).services, _goal(request, id_or_name, body)))


@operation_router.post(
    "/api/instances/{id_or_name}/stop", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def stop(id_or_name: str, request: Request) -> Response:
    """Stop a running instance. Its data stays, its GPU does not."""
    body = await read_optional_object(request)
    validate_body(GoalBody, body)
    return accepted(await stop_instance(plane_of(request).services, _goal(request, id_or_name, body)))


@operation_router.delete(
    "/api/instances/{id_or_name}", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def delete(id_or_name: str, request: Request) -> Response:
    """Delete an instance and its machine, whatever the state. Done when the cloud proves that it is gone."""
    body = await read_optional_object(request)
    validate_body(GoalBody, body)
    return accepted(await delete_instance(plane_of(request).services, _goal(request, id_or_name, body)))


@operation_router.get("/api/operations/{operation_id}")
async def show_operations(operation_id: str, request: Request) -> Response:
    """Return an operation with its phases and times."""
    operation, instance_id = await find_operation(
        plane_of(request).services, operation_id, caller_of(request)
    )
    return json_reply(describe_operation(operation, instance_id))


async def _start(request: Request, id_or_name: str | None) -> Response:
    plane, raw = plane_of(request), await read_optional_object(request)
    body = validate_body(StartBody if id_or_name else StartByNameBody, raw, target_check(plane.targets))
    if id_or_name:
        goal = _goal(request, id_or_name, raw)
    else:
        goal = _goal_by_name(request, body.instance_name or "", raw)
    options = StartOptions(health_check_of(body.check), body.webhook_url, body.capacity_wait_s)
    return accepted(await start_instance(plane.services, goal, options))


def _goal(request: Request, id_or_name: str, body: dict[str, Any]) -> GoalRequest:
    claim = claim_of(request.scope, body, plane_of(request).services)
    return GoalRequest(id_or_name, caller=acting_caller(request), claim=claim)


def _goal_by_name(request: Request, name: str, body: dict[str, Any]) -> GoalRequest:
    return replace(_goal(request, name, body), by_name=True)


def accepted(it: AcceptedGoal) -> Response:
    """Return that the goal is written down, and where to follow it."""
    instance, operation = it.instance, it.operation
    headers = {"Location": f"/api/operations/{operation.id}"}
    if it.replayed:
        headers[REPLAYED_HEADER] = "true"
    return json_reply(describe_accepted(operation, instance), status=202, headers=headers)


lease_router = APIRouter(prefix="/api/instances/{id_or_name}", tags=["leases"])


@lease_router.post("/lease", openapi_extra=takes(LeaseBody))
async def change_lease(id_or_name: str, request: Request) -> Response:
    """Set the end of an instance anew: `seconds` from now, or `until` a moment; `then` stop or delete."""
    order = lease_order_of(validate_body(LeaseBody, await read_object(request)))
    return _changed(
        request, await set_lease(plane_of(request).services, id_or_name, order, acting_caller(request))
    )


@lease_router.delete("/lease")
async def end_lease(id_or_name: str, request: Request) -> Response:
    """Take the lease of an instance away."""
    services = plane_of(request).services
    return _changed(request, await remove_lease(services, id_or_name, acting_caller(request)))


@lease_router.post("/heartbeat", status_code=204)
async def heartbeat(id_or_name: str, request: Request) -> Response:
    """Say that an instance is in use, so that silence does not end it."""
    await note_use(plane_of(request).services, id_or_name, acting_caller(request))
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
    planned = await plan_launch(plane.services, launch_request_of(body, caller))
    wish = {name: it for name, it in said.items() if name != "hold"}
    held = await hold_plan(plane.services, planned, wish, caller) if body.hold else None
    return json_reply(describe_plan(planned, held))


@plan_router.get("/{plan_id}")
async def show_plans(plan_id: str, request: Request) -> Response:
    """Return a plan that is held, for the key that planned it, with what was rented by it."""
    plane, caller = plane_of(request), caller_of(request)
    held = await find_held_plan(plane.services, plan_id, caller)
    body = validate_body(LaunchBody, json.loads(held.body), target_check(plane.targets))
    wanted = launch_request_of(body, caller, plan=held)
    made = await find_launched(plane.services, wanted)
    return json_reply(describe_held_plan(held, wanted.name, wanted.wish, wanted.terms.lease, made))
