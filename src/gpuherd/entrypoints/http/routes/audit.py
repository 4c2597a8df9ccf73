"""`/api/audit`: who did what."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.audit import AUDIT_CURSOR_MAX
from gpuherd.entrypoints.query import Query
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.usecases.describe.key import describe_audit

router = APIRouter(prefix="/api/audit", tags=["audit"])


@router.get("")
async def list_entries(request: Request) -> Response:
    """List entries, newest first, or with `order=asc` oldest first. Each has the hash of the one before."""
    query = Query(request)
    limit = query.limit()
    cursor = query.whole_number("cursor", 0, AUDIT_CURSOR_MAX)
    oldest_first = query.one_of("order", "asc", "desc") == "asc"
    query.only("limit", "cursor", "order")
    query.done()
    page = await plane_of(request).keys.audit.page(limit, cursor, oldest_first=oldest_first)
    return json_reply(describe_audit(page))
