"""`/livez`, `/readyz`, `/health`: open to everybody, and nothing secret in them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import KeyRefused
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.usecases.health import ServiceHealth

router = APIRouter(tags=["health"])

# A job that is due for longer than this means that the workers do not keep up.
QUEUE_LAG_MAX_S = 30.0


@router.get("/livez")
async def live() -> Response:
    """Answer as long as the process can answer at all."""
    return json_reply({"status": "alive"})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Tell whether requests can be taken now."""
    plane = plane_of(request)
    is_ready = await plane.health.database_answers() and plane.is_ready()
    return json_reply({"status": "ready" if is_ready else "not ready"}, status=200 if is_ready else 503)


@router.get("/health")
async def health(request: Request) -> Response:
    """Summarise how everything is that gpuherd needs."""
    plane = plane_of(request)
    if not await plane.health.database_answers():
        down = {"database": {"status": "down"}}
        return json_reply({"status": "unhealthy", "dependencies": down}, status=503)
    it = await plane.health()
    blocked, braked = it.creates_blocked, it.collector_braked
    dependencies = {
        "novita": _novita(it),
        "database": {"status": "up"},
        "queue": {
            "status": "up" if it.oldest_due_s < QUEUE_LAG_MAX_S else "late",
            "oldestDueSeconds": round(it.oldest_due_s, 3),
        },
    }
    healthy = not (blocked or braked) and all(it["status"] == "up" for it in dependencies.values())
    return json_reply(
        {
            "status": "healthy" if healthy else "degraded",
            "dependencies": dependencies,
            "createsBlocked": blocked,
            "collectorBraked": braked,
            "replicas": _by_role(plane),
            "timestamp": plane.clock.now().isoformat(),
        }
    )


def _by_role(plane: Plane) -> dict[str, int]:
    """Count the processes on our database by what they do; of one who is alone there is nothing to tell."""
    return dict(sorted(Counter(it.role for it in plane.replicas()).items()))


def _novita(it: ServiceHealth) -> dict[str, Any]:
    # A key that is refused will not be accepted by waiting; other trouble is for the breaker to judge.
    is_up = it.breaker == "CLOSED" and it.cloud_error != KeyRefused.code
    return {
        "status": "up" if is_up else "down",
        "breaker": it.breaker,
        "trouble": it.cloud_error or None,
        "lastListedAt": None if it.last_listed_at is None else it.last_listed_at.isoformat(),
    }
