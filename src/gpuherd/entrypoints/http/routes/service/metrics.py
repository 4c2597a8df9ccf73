"""`/metrics`: how gpuherd is doing, for Prometheus. With a key only: your business is nobody else's.

What tells money is on the page of an admin only, as everywhere else.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.replies import plane_of

router = APIRouter(tags=["health"])


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return all metrics in the text format of Prometheus."""
    money = caller_of(request).sees_all
    body, content_type = await plane_of(request).metrics.render(money=money)
    return Response(body, headers={"Content-Type": content_type})
