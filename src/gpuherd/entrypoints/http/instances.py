"""`/api/instances`: rent, list, look."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance import Status
from gpuherd.entrypoints.http.launch_body import LaunchBody, parse_launch
from gpuherd.entrypoints.http.query import Query
from gpuherd.entrypoints.http.reading import read_object
from gpuherd.entrypoints.http.replies import json_reply, plane_of
from gpuherd.ports.store import Claim, InstanceQuery
from gpuherd.usecases.describe import describe, describe_attempt, describe_event

router = APIRouter(prefix="/api/instances", tags=["instances"])

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
LAUNCH_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": LaunchBody.model_json_schema()}},
    }
}


@router.post("", status_code=201, openapi_extra=LAUNCH_SCHEMA)
async def launch(request: Request) -> Response:
    """Accept a wish. The machine is rented in the background; follow `Location` or give a `webhookUrl`."""
    plane = plane_of(request)
    body = await read_object(request)
    wanted = parse_launch(body, plane.targets, claim=_claim(request, body))
    launched = await plane.launch_instance(wanted)
    headers = {"Location": f"/api/instances/{launched.instance.id}"}
    if launched.replayed:
        headers["Idempotency-Replayed"] = "true"
    return json_reply(describe(launched.instance), status=201, headers=headers)


@router.get("")
async def list_instances(request: Request) -> Response:
    """List instances, newest first. Filters: `status`, `name`, `label=key=value`."""
    query = Query(request)
    status = query.choice("status", Status)
    wanted = InstanceQuery(
        statuses=() if status is None else (status,),
        name=query.text("name"),
        label=query.pair("label"),
        limit=query.limit(),
        cursor=query.text("cursor"),
    )
    query.done()
    page = await plane_of(request).instances.page(wanted)
    return json_reply(
        {
            "instances": [describe(it) for it in page.instances],
            "total": page.total,
            "nextCursor": page.next_cursor,
        }
    )


@router.get("/{id_or_name}")
async def show(id_or_name: str, request: Request) -> Response:
    """Return one instance."""
    return json_reply(describe(await plane_of(request).find_instance(id_or_name)))


@router.get("/{id_or_name}/events")
async def events(id_or_name: str, request: Request) -> Response:
    """Return what happened to an instance, oldest first."""
    plane = plane_of(request)
    instance = await plane.find_instance(id_or_name)
    found = await plane.instances.events(instance.id)
    return json_reply({"events": [describe_event(it) for it in found]})


@router.get("/{id_or_name}/attempts")
async def attempts(id_or_name: str, request: Request) -> Response:
    """Return which offers were tried, and why those that failed did."""
    plane = plane_of(request)
    instance = await plane.find_instance(id_or_name)
    found = await plane.instances.attempts(instance.id)
    return json_reply({"attempts": [describe_attempt(it) for it in found]})


def _claim(request: Request, body: dict[str, Any]) -> Claim | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        message = "Idempotency-Key must have 1 to 255 visible ASCII characters"
        raise InvalidRequest([FieldProblem("Idempotency-Key", "INVALID_IDEMPOTENCY_KEY", message)])
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return Claim(scope="admin", key=key, fingerprint=hashlib.sha256(canonical).hexdigest())
