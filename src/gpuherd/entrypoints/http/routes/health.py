"""`/livez`, `/readyz`, `/health`: open to everybody, and nothing secret in them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import KeyRefused, StoreUnavailable
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.usecases.orphans.collect import COLLECTOR_BRAKED
from gpuherd.usecases.reconcile.rent import CREATES_BLOCKED

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
    database = await _database(plane)
    is_ready = plane.is_ready() and database["status"] == "up"
    return json_reply({"status": "ready" if is_ready else "not ready"}, status=200 if is_ready else 503)


@router.get("/health")
async def health(request: Request) -> Response:
    """Summarise how everything is that gpuherd needs."""
    plane = plane_of(request)
    database = await _database(plane)
    if database["status"] != "up":
        return json_reply({"status": "unhealthy", "dependencies": {"database": database}}, status=503)
    stats = await plane.jobs.stats()
    blocked = await plane.flags.get(CREATES_BLOCKED)
    braked = await plane.flags.get(COLLECTOR_BRAKED)
    dependencies = {
        "novita": await _novita(plane),
        "database": database,
        "queue": {
            "status": "up" if stats.oldest_due_s < QUEUE_LAG_MAX_S else "late",
            "oldestDueSeconds": round(stats.oldest_due_s, 3),
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


async def _database(plane: Plane) -> dict[str, Any]:
    try:
        await plane.observations.last_list()
    except StoreUnavailable:
        return {"status": "down"}
    return {"status": "up"}


async def _novita(plane: Plane) -> dict[str, Any]:
    breaker, trouble = plane.breaker_state(), plane.cloud_trouble()
    seen = await plane.observations.last_list()
    return {
        # A key that is refused will not be accepted by waiting; other trouble is for the breaker to judge.
        "status": "up" if breaker == "CLOSED" and trouble != KeyRefused.code else "down",
        "breaker": breaker,
        "trouble": trouble or None,
        "lastListedAt": None if seen is None else seen.finished_at.isoformat(),
    }
