"""`/api/audit`: who did what."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.lists import AUDIT_LIST, LIMIT, ORDER, POSITION_CURSOR, Order
from gpuherd.entrypoints.query import Query, described
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.usecases.describe.key import describe_audit

router = APIRouter(prefix="/api/audit", tags=["audit"])


@router.get("", openapi_extra=described(AUDIT_LIST))
async def list_entries(request: Request) -> Response:
    """List entries, newest first, or with `order=asc` oldest first. Each has the hash of the one before."""
    query = Query(request)
    limit, cursor, order = query(LIMIT), query(POSITION_CURSOR), query(ORDER)
    query.only(AUDIT_LIST)
    query.done()
    page = await plane_of(request).keys.audit.page(limit, cursor, oldest_first=order is Order.ASC)
    return json_reply(describe_audit(page))
