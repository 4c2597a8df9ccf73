"""Routes of the service: health, metrics, jobs, events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.service_models import (
    CloudHealth,
    DatabaseHealth,
    Dependencies,
    Health,
    Liveness,
    QueueHealth,
    Readiness,
    Unhealthy,
)
from gpuherd.contract.webhook_models import EventPage
from gpuherd.domain.errors import FieldProblem, InvalidRequest, KeyRefused
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.entrypoints.http_auth import (
    acting_caller,
    append_audit_record,
    caller_of,
    may_go_on,
)
from gpuherd.entrypoints.list_queries import (
    JOB_LIST,
    LIMIT,
    POSITION_CURSOR,
    POSITION_MAX,
    TYPE,
    Query,
    QueryParameter,
    choice,
    described,
    job_query,
    position,
    text,
)
from gpuherd.entrypoints.streamed_replies import EventStreamReply
from gpuherd.entrypoints.use_case_access import (
    Plane,
    header,
    json_reply,
    plane_of,
)
from gpuherd.ports.event_port import EventFilter
from gpuherd.usecases.access.sign_in import Session
from gpuherd.usecases.events.stream_events import (
    HEARTBEAT,
    HEARTBEAT_EVENT,
    Reader,
    read_events_before,
    read_events_since,
)
from gpuherd.usecases.instances.read_instance import find_instance, find_job
from gpuherd.usecases.service.read_service_health import ServiceHealth, database_answers, read_service_health
from gpuherd.usecases.service.run_jobs import retry_job
from gpuherd.usecases.views.service_view import describe_job, describe_job_stats, describe_jobs
from gpuherd.usecases.views.webhook_view import describe_logged

health_router = APIRouter(tags=["health"])


# A job that is due for longer than this means that the workers do not keep up.
QUEUE_LAG_MAX_S = 30.0


UP, DOWN = "up", "down"


# A caller without a key sees only these codes, not the reasons.
CREATES_BLOCKED, COLLECTOR_BRAKED = "CREATES_BLOCKED", "COLLECTOR_BRAKED"


INSTALLATION_SHARED = "INSTALLATION_SHARED"
ACCOUNT_UNCONFIRMED, VANISHING_HELD = "ACCOUNT_UNCONFIRMED", "VANISHING_HELD"
AUTO_STOP_BRAKED = "AUTO_STOP_BRAKED"
LISTS_UNBELIEVED = "LISTS_UNBELIEVED"


@health_router.get("/livez")
async def live() -> Response:
    """Liveness: the process answers."""
    return json_reply(Liveness(status="alive"))


@health_router.get("/readyz")
async def ready(request: Request) -> Response:
    """Readiness: requests can be taken now."""
    plane = plane_of(request)
    is_ready = await database_answers(plane.services) and plane.is_ready()
    return json_reply(Readiness(status="ready" if is_ready else "not ready"), status=200 if is_ready else 503)


@health_router.get("/health")
async def health(request: Request) -> Response:
    """Show the state of every dependency; with a key also why, in words."""
    plane = plane_of(request)
    it = await read_service_health(plane.services)
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
    """Return the reason to a caller with a key, and its code to all others."""
    return reason if reason is None or request.scope.get("caller") is not None else code


def _by_role(plane: Plane) -> dict[str, int]:
    """Count the processes on our database by role. Return {} if there are no replicas."""
    return dict(sorted(Counter(it.role for it in plane.replicas()).items()))


def _novita(it: ServiceHealth, unbelieved: str | None) -> CloudHealth:
    # A refused key stays refused. The breaker judges all other errors.
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


metrics_router = APIRouter(tags=["health"])


@metrics_router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return all metrics in the text format of Prometheus."""
    money = caller_of(request).sees_all
    body, content_type = await plane_of(request).metrics.render(money=money)
    return Response(body, headers={"Content-Type": content_type})


job_router = APIRouter(prefix="/api/jobs", tags=["jobs"])


@job_router.get("", openapi_extra=described(JOB_LIST))
async def list_jobs(request: Request) -> Response:
    """List jobs, newest first. Filters: `type`, `status`, `instanceId`."""
    query = Query(request)
    wanted = job_query(query, caller_of(request).owner)
    query.done()
    return json_reply(describe_jobs(await plane_of(request).services.stores.jobs.page(wanted)))


@job_router.get("/stats")
async def stats(request: Request) -> Response:
    """Count the jobs by status and by type."""
    counted = await plane_of(request).services.stores.jobs.stats(caller_of(request).owner)
    return json_reply(describe_job_stats(counted))


@job_router.post("/{job_id}/retry", status_code=202)
async def retry(job_id: str, request: Request) -> Response:
    """Retry a failed job."""
    plane, caller = plane_of(request), acting_caller(request)
    job = await find_job(plane.services, job_id, caller)
    await append_audit_record(request, "job.retry", job_id, before=job.status.value)
    return json_reply(describe_job(await retry_job(plane.services, job_id)), status=202)


@job_router.get("/{job_id}")
async def show(job_id: str, request: Request) -> Response:
    """Return one job."""
    job = await find_job(plane_of(request).services, job_id, caller_of(request))
    return json_reply(describe_job(job))


event_router = APIRouter(prefix="/api/events", tags=["events"])


class KeepAlive(StrEnum):
    """How a stream shows that it is alive."""

    COMMENT = "comment"
    EVENT = "event"


INSTANCE, LAST_EVENT_ID = text("instance"), position("lastEventId")
KEEP_ALIVE = choice("keepAlive", KeepAlive)
STREAM = (INSTANCE, TYPE, LAST_EVENT_ID, KEEP_ALIVE)
HISTORY = (INSTANCE, TYPE, LAST_EVENT_ID, LIMIT, POSITION_CURSOR)
LAST_EVENT_ID_HEADER = b"last-event-id"


# Browsers come back by themselves.
SESSION_RECHECK_INTERVAL = timedelta(minutes=10)


@event_router.get("", openapi_extra=described(STREAM))
async def stream(request: Request) -> Response:
    """Stream events (server-sent events). `Last-Event-ID` or `lastEventId` resumes; else from now."""
    query = Query(request)
    last = _last_event_id(request, query)
    # Browsers do not tell scripts of comments.
    as_event = query(KEEP_ALIVE) is KeepAlive.EVENT
    wanted = await _wanted(request, query, STREAM)
    session: Session | None = request.scope.get("session")
    session_id = None if session is None else session.id
    heartbeat = HEARTBEAT_EVENT if as_event else HEARTBEAT
    may_read = may_go_on(request, SESSION_RECHECK_INTERVAL)
    reader = Reader(caller_of(request).key_id, wanted, last, may_read, session_id, heartbeat)
    return EventStreamReply(plane_of(request).services.event_feed, reader)


@event_router.get("/history", openapi_extra=described(HISTORY))
async def history(request: Request) -> Response:
    """List events, newest first; with `lastEventId` those since then, oldest first."""
    query = Query(request)
    since, before, limit = query(LAST_EVENT_ID), query(POSITION_CURSOR), query(LIMIT)
    wanted = await _wanted(request, query, HISTORY)
    if since is not None and before is not None:
        words = "lastEventId reads forwards and cursor backwards; give one of them"
        raise InvalidRequest([FieldProblem("cursor", "INVALID_PARAMETER", words)])
    services = plane_of(request).services
    if since is not None:
        page = await read_events_since(services, since, limit, wanted)
    else:
        page = await read_events_before(services, before, limit, wanted)
    return json_reply(
        EventPage(
            events=tuple(map(describe_logged, page.events)),
            next_cursor=None if page.next_cursor is None else str(page.next_cursor),
            last_event_id=str(page.last),
        )
    )


def _last_event_id(request: Request, query: Query) -> int | None:
    """Return the last event that the client has got.

    A browser that reconnects sends the header, while the address is still that of its first request.
    """
    asked = query(LAST_EVENT_ID)
    sent = header(request, LAST_EVENT_ID_HEADER)
    if sent is None:
        return asked
    if not sent.isdigit() or len(sent) > len(str(POSITION_MAX)) or int(sent) > POSITION_MAX:
        words = "the header Last-Event-ID must be the id of an event, a whole number"
        raise InvalidRequest([FieldProblem("Last-Event-ID", "INVALID_PARAMETER", words)])
    return int(sent)


async def _wanted(request: Request, query: Query, parameters: Iterable[QueryParameter[Any]]) -> EventFilter:
    """Return the filter, if everything in the query makes sense."""
    word, kind = query(INSTANCE), query(TYPE)
    query.only(parameters)
    query.done()
    caller = caller_of(request)
    instance_id = None
    if word is not None:
        if word == ACCOUNT and caller.sees_all:
            instance_id = ACCOUNT
        else:
            instance_id = (await find_instance(plane_of(request).services, word, caller)).id
    return EventFilter(caller.owner, instance_id, kind)
