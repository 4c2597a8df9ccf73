"""`/metrics`: how gpuherd is doing, for Prometheus. With a key only: your business is nobody else's."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.replies import plane_of

router = APIRouter(tags=["health"])


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return all metrics in the text format of Prometheus."""
    body, content_type = await plane_of(request).metrics.render()
    return Response(body, headers={"Content-Type": content_type})
