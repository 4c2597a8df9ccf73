"""`/api/plans`: what a create would do, without doing it."""

from __future__ import annotations

import json

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.access.api_key import Scope
from gpuherd.entrypoints.auth.authorization import caller_of, require_scope
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.parsed import parsed
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.launch import LaunchBody, PlanBody
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.usecases.describe.plan import describe_held_plan, describe_plan

router = APIRouter(prefix="/api/plans", tags=["plans"])


@router.post("", openapi_extra=takes(PlanBody))
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


@router.get("/{plan_id}")
async def show(plan_id: str, request: Request) -> Response:
    """Return a plan that is held, for the key that planned it, with what was rented by it."""
    plane, caller = plane_of(request), caller_of(request)
    held = await plane.plans.find(plan_id, caller)
    wanted = LaunchBody.parse(json.loads(held.body), plane.targets).to_request(caller=caller, plan=held)
    made = await plane.launch_instance.made_of(wanted)
    return json_reply(describe_held_plan(held, wanted.name, wanted.wish, wanted.terms.lease, made))
