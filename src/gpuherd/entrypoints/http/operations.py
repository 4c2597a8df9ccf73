"""Start, stop and delete, by id and by name, and the operations that they are."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.instance import Instance
from gpuherd.entrypoints.http.goal_body import parse_goal, parse_start
from gpuherd.entrypoints.http.reading import read_optional_object
from gpuherd.entrypoints.http.replies import json_reply, plane_of
from gpuherd.usecases.describe import describe_operation, iso

router = APIRouter(tags=["operations"])


@router.post("/api/instances/start", status_code=202)
async def start_by_name(request: Request) -> Response:
    """Start the instance that is called `instanceName`."""
    return await _start(request, None)


@router.post("/api/instances/stop", status_code=202)
async def stop_by_name(request: Request) -> Response:
    """Stop the instance that is called `instanceName`."""
    name = parse_goal(await read_optional_object(request), by_name=True).instance_name
    return accepted(await plane_of(request).change_goal.stop(name or "", by_name=True))


@router.post("/api/instances/delete", status_code=202)
async def delete_by_name(request: Request) -> Response:
    """Delete the instance that is called `instanceName`."""
    name = parse_goal(await read_optional_object(request), by_name=True).instance_name
    return accepted(await plane_of(request).change_goal.delete(name or "", by_name=True))


@router.post("/api/instances/{id_or_name}/start", status_code=202)
async def start(id_or_name: str, request: Request) -> Response:
    """Start an exited instance; follow the operation, or give a `webhookUrl`."""
    return await _start(request, id_or_name)


@router.post("/api/instances/{id_or_name}/stop", status_code=202)
async def stop(id_or_name: str, request: Request) -> Response:
    """Stop a running instance. Its data stays, its GPU does not."""
    parse_goal(await read_optional_object(request), by_name=False)
    return accepted(await plane_of(request).change_goal.stop(id_or_name))


@router.delete("/api/instances/{id_or_name}", status_code=202)
async def delete(id_or_name: str, request: Request) -> Response:
    """Delete an instance and its machine, whatever the state. Done when the cloud proves that it is gone."""
    parse_goal(await read_optional_object(request), by_name=False)
    return accepted(await plane_of(request).change_goal.delete(id_or_name))


@router.get("/api/operations/{operation_id}")
async def show(operation_id: str, request: Request) -> Response:
    """Return an operation with its phases and times."""
    operation, instance_id = await plane_of(request).instances.operation(operation_id)
    return json_reply(describe_operation(operation, instance_id))


async def _start(request: Request, id_or_name: str | None) -> Response:
    plane = plane_of(request)
    by_name = id_or_name is None
    body = parse_start(await read_optional_object(request), plane.targets, by_name=by_name)
    instance = await plane.change_goal.start(
        id_or_name or body.instance_name or "",
        health_check=body.health_check,
        webhook_url=body.webhook_url,
        by_name=by_name,
    )
    return accepted(instance)


def accepted(instance: Instance) -> Response:
    """Return that the goal is written down, and where to follow it."""
    operation = instance.operation
    assert operation is not None, "every change of goal is an operation"
    answer: dict[str, Any] = {
        "operationId": operation.id,
        "instanceId": instance.id,
        "novitaInstanceId": instance.cloud_id,
        "name": instance.name,
        "status": instance.status.value,
        "goal": instance.goal.value,
        "message": instance.reason,
        "estimatedReadyTime": iso(instance.estimated_ready_at) if operation.kind == "start" else None,
    }
    return json_reply(answer, status=202, headers={"Location": f"/api/operations/{operation.id}"})
