"""`/api/creates`: whether new machines may be rented at all, and the way back when they may not."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.service import Creates
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import json_reply, plane_of

router = APIRouter(prefix="/api/creates", tags=["creates"])


@router.get("")
async def show(request: Request) -> Response:
    """Tell whether creates are blocked, and why."""
    return json_reply(Creates(blocked=await plane_of(request).creates.blocked()))


@router.post("/resume")
async def resume(request: Request) -> Response:
    """Allow creates again, after the reason of the block was looked at."""
    await plane_of(request).creates.resume(acting_caller(request))
    return json_reply(Creates(blocked=None))
