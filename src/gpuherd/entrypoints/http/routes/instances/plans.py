"""`/api/plans`: what a create would do, without doing it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.launch import PlanBody
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.usecases.describe.plan import describe_plan

router = APIRouter(prefix="/api/plans", tags=["plans"])


@router.post("", openapi_extra=takes(PlanBody))
async def plan(request: Request) -> Response:
    """Dry run of a create: offers in the order of trying, with prices. Nothing is rented."""
    plane = plane_of(request)
    body = PlanBody.parse(await read_object(request), plane.targets)
    wanted = body.to_request(caller=caller_of(request))
    return json_reply(describe_plan(await plane.plan_launch(wanted)))
