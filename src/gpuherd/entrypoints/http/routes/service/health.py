"""`/livez`, `/readyz`, `/health`: open to everybody, and nothing secret in them.

Without a key `/health` has codes only; reasons, which name tags and machines, are for those who have one.
"""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.service import (
    CloudHealth,
    DatabaseHealth,
    Dependencies,
    Health,
    Liveness,
    QueueHealth,
    Readiness,
    Unhealthy,
)
from gpuherd.domain.errors import KeyRefused
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.usecases.health import ServiceHealth

router = APIRouter(tags=["health"])

# A job that is due for longer than this means that the workers do not keep up.
QUEUE_LAG_MAX_S = 30.0
UP, DOWN = "up", "down"
# What is told of a reason without a key.
CREATES_BLOCKED, COLLECTOR_BRAKED = "CREATES_BLOCKED", "COLLECTOR_BRAKED"
INSTALLATION_SHARED = "INSTALLATION_SHARED"
ACCOUNT_UNCONFIRMED, VANISHING_HELD = "ACCOUNT_UNCONFIRMED", "VANISHING_HELD"
AUTO_STOP_BRAKED = "AUTO_STOP_BRAKED"
LISTS_UNBELIEVED = "LISTS_UNBELIEVED"


@router.get("/livez")
async def live() -> Response:
    """Liveness: the process answers."""
    return json_reply(Liveness(status="alive"))


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Readiness: requests can be taken now."""
    plane = plane_of(request)
    is_ready = await plane.health.database_answers() and plane.is_ready()
    return json_reply(Readiness(status="ready" if is_ready else "not ready"), status=200 if is_ready else 503)


@router.get("/health")
async def health(request: Request) -> Response:
    """Show the state of every dependency; with a key also why, in words."""
    plane = plane_of(request)
    it = await plane.health()
    if it is None:
        down = Dependencies(database=DatabaseHealth(status=DOWN))
        return json_reply(Unhealthy(status="unhealthy", dependencies=down), status=503)
    blocked, braked = it.creates_blocked, it.collector_braked
    novita, queue = _novita(it, _told(request, LISTS_UNBELIEVED, it.lists_unbelieved)), _queue(it)
    held = it.account_unconfirmed or it.vanishing_held or it.lists_unbelieved or it.auto_stop_braked
    healthy = not (blocked or braked or held) and novita.status == UP and queue.status == UP
    return json_reply(
        Health(
            status="healthy" if healthy else "degraded",
            dependencies=Dependencies(novita=novita, database=DatabaseHealth(status=UP), queue=queue),
            creates_blocked=_told(request, CREATES_BLOCKED, blocked),
            collector_braked=_told(request, COLLECTOR_BRAKED, braked),
            installation_shared=_told(request, INSTALLATION_SHARED, it.installation_shared),
            account_unconfirmed=_told(request, ACCOUNT_UNCONFIRMED, it.account_unconfirmed),
            vanishing_held=_told(request, VANISHING_HELD, it.vanishing_held),
            auto_stop_braked=_told(request, AUTO_STOP_BRAKED, it.auto_stop_braked),
            replicas=_by_role(plane),
            timestamp=plane.clock.now(),
        )
    )


def _told(request: Request, code: str, reason: str | None) -> str | None:
    """Return the reason to those who have a key, and its code to everybody else."""
    return reason if reason is None or request.scope.get("caller") is not None else code


def _by_role(plane: Plane) -> dict[str, int]:
    """Count the processes on our database by what they do; of one who is alone there is nothing to tell."""
    return dict(sorted(Counter(it.role for it in plane.replicas()).items()))


def _novita(it: ServiceHealth, unbelieved: str | None) -> CloudHealth:
    # A key that is refused will not be accepted by waiting; other trouble is for the breaker to judge.
    is_up = it.breaker == "CLOSED" and it.cloud_error != KeyRefused.code
    return CloudHealth(
        status=UP if is_up else DOWN,
        breaker=it.breaker,
        trouble=it.cloud_error or None,
        last_listed_at=it.last_listed_at,
        last_believed_at=it.last_believed_at,
        unbelieved=unbelieved,
    )


def _queue(it: ServiceHealth) -> QueueHealth:
    return QueueHealth(
        status=UP if it.oldest_due_s < QUEUE_LAG_MAX_S else "late",
        oldest_due_seconds=round(it.oldest_due_s, 3),
    )
