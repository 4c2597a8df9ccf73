"""`/audit`: who did what, newest first."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.lists import POSITION_CURSOR
from gpuherd.entrypoints.query import Query
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.pages.instances.instances import next_page, without_blanks
from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes

LIMIT = 50


async def show(request: Request) -> Response:
    """Show the end of the log."""
    query = Query(without_blanks(request))
    cursor = query(POSITION_CURSOR)
    query.done()
    found = await plane_of(request).keys.audit.page(LIMIT, cursor)
    following = None if found.next_cursor is None else str(found.next_cursor)
    return page(
        request,
        "audit.html",
        entries=found.entries,
        total=found.total,
        next_page=next_page(request, following),
    )


ROUTES: Routes = {("GET", "/audit"): show}
