"""Start, restart, stop, delete and replace, and the operations that they are."""

from __future__ import annotations

from typing import Any, TypedDict

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.access.caller import Caller
from gpuherd.entrypoints.auth.authorization import acting_caller, caller_of
from gpuherd.entrypoints.http.idempotency_key import REPLAYED_HEADER, claim_of
from gpuherd.entrypoints.http.json_body import read_optional_object
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.goals import GoalBody, GoalByNameBody, StartBody, StartByNameBody
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.ports.access import IdempotencyClaim
from gpuherd.usecases.describe.operation import describe_accepted, describe_operation
from gpuherd.usecases.instances.change_goal import AcceptedGoal

router = APIRouter(tags=["operations"])


@router.post("/api/instances/start", status_code=202, openapi_extra=takes(StartByNameBody))
async def start_by_name(request: Request) -> Response:
    """Start the instance that is called `instanceName`."""
    return await _start(request, None)


@router.post("/api/instances/stop", status_code=202, openapi_extra=takes(GoalByNameBody))
async def stop_by_name(request: Request) -> Response:
    """Stop the instance that is called `instanceName`."""
    body = await read_optional_object(request)
    name = GoalByNameBody.parse(body).instance_name
    return accepted(
        await plane_of(request).change_goal.stop(name, by_name=True, **_request_origin(request, body))
    )


@router.post("/api/instances/delete", status_code=202, openapi_extra=takes(GoalByNameBody))
async def delete_by_name(request: Request) -> Response:
    """Delete the instance that is called `instanceName`."""
    body = await read_optional_object(request)
    name = GoalByNameBody.parse(body).instance_name
    return accepted(
        await plane_of(request).change_goal.delete(name, by_name=True, **_request_origin(request, body))
    )


@router.post(
    "/api/instances/{id_or_name}/start", status_code=202, openapi_extra=takes(StartBody, required=False)
)
async def start(id_or_name: str, request: Request) -> Response:
    """Start an exited instance; follow the operation, or give a `webhookUrl`."""
    return await _start(request, id_or_name)


@router.post(
    "/api/instances/{id_or_name}/restart", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def restart(id_or_name: str, request: Request) -> Response:
    """Restart a running instance, on the same machine with the same data; its ports may change."""
    body = await read_optional_object(request)
    GoalBody.parse(body)
    return accepted(await plane_of(request).change_goal.restart(id_or_name, **_request_origin(request, body)))


@router.post(
    "/api/instances/{id_or_name}/replace", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def replace(id_or_name: str, request: Request) -> Response:
    """Let another instance of the same lineage take over: same wish, another machine, without the data."""
    body = await read_optional_object(request)
    GoalBody.parse(body)
    return accepted(await plane_of(request).replace_instance(id_or_name, **_request_origin(request, body)))


@router.post(
    "/api/instances/{id_or_name}/stop", status_code=202, openapi_extra=takes(GoalBody, required=False)
)
async def stop(id_or_name: str, request: Request) -> Response:
    """Stop a running instance. Its data stays, its GPU does not."""
    body = await read_optional_object(request)
    GoalBody.parse(body)
    return accepted(await plane_of(request).change_goal.stop(id_or_name, **_request_origin(request, body)))


@router.delete("/api/instances/{id_or_name}", status_code=202, openapi_extra=takes(GoalBody, required=False))
async def delete(id_or_name: str, request: Request) -> Response:
    """Delete an instance and its machine, whatever the state. Done when the cloud proves that it is gone."""
    body = await read_optional_object(request)
    GoalBody.parse(body)
    return accepted(await plane_of(request).change_goal.delete(id_or_name, **_request_origin(request, body)))


@router.get("/api/operations/{operation_id}")
async def show(operation_id: str, request: Request) -> Response:
    """Return an operation with its phases and times."""
    lookup = plane_of(request).lookup
    operation, instance_id = await lookup.operation(operation_id, caller_of(request))
    return json_reply(describe_operation(operation, instance_id))


async def _start(request: Request, id_or_name: str | None) -> Response:
    plane = plane_of(request)
    by_name = id_or_name is None
    raw = await read_optional_object(request)
    body = (StartByNameBody if by_name else StartBody).parse(raw, plane.targets)
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
        "claim": claim_of(request.scope, body, plane_of(request).keys.claim_request),
    }


def accepted(it: AcceptedGoal) -> Response:
    """Return that the goal is written down, and where to follow it."""
    instance, operation = it.instance, it.operation
    headers = {"Location": f"/api/operations/{operation.id}"}
    if it.replayed:
        headers[REPLAYED_HEADER] = "true"
    return json_reply(describe_accepted(operation, instance), status=202, headers=headers)
