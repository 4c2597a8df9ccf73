"""`/api/events`: everything that happens, as a stream that goes on; `/history` is for leafing through it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.event import EventPage
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.auth.recheck import may_go_on
from gpuherd.entrypoints.http.event_stream import EventStreamReply
from gpuherd.entrypoints.lists import LIMIT, POSITION_CURSOR, TYPE
from gpuherd.entrypoints.query import POSITION_MAX, Query, QueryParameter, choice, described, position, text
from gpuherd.entrypoints.replies import header, json_reply, plane_of
from gpuherd.ports.events import EventFilter
from gpuherd.usecases.access.sessions import Session
from gpuherd.usecases.describe.event import describe_logged
from gpuherd.usecases.events.event_stream import HEARTBEAT, HEARTBEAT_EVENT, Reader

router = APIRouter(prefix="/api/events", tags=["events"])


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


@router.get("", openapi_extra=described(STREAM))
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
    return EventStreamReply(plane_of(request).events.feed, reader)


@router.get("/history", openapi_extra=described(HISTORY))
async def history(request: Request) -> Response:
    """List events, newest first; with `lastEventId` those since then, oldest first."""
    query = Query(request)
    since, before, limit = query(LAST_EVENT_ID), query(POSITION_CURSOR), query(LIMIT)
    wanted = await _wanted(request, query, HISTORY)
    if since is not None and before is not None:
        words = "lastEventId reads forwards and cursor backwards; give one of them"
        raise InvalidRequest([FieldProblem("cursor", "INVALID_PARAMETER", words)])
    read = plane_of(request).events.history
    if since is not None:
        page = await read.since(since, limit, wanted)
    else:
        page = await read.before(before, limit, wanted)
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
            instance_id = (await plane_of(request).find_instance(word, caller)).id
    return EventFilter(caller.owner, instance_id, kind)
