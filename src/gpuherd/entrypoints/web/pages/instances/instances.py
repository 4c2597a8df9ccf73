"""`/instances`: all of them, filtered and page by page."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.instance.instance import Status
from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.lists import instance_query
from gpuherd.entrypoints.query import Query
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.instance_rows import row_of

FILTERS = ("status", "name", "label")


async def show(request: Request) -> Response:
    """List instances, newest first; an empty field of the form filters nothing."""
    query = Query(without_blanks(request))
    wanted = instance_query(query, caller_of(request).owner)
    query.done()
    found = await plane_of(request).list_instances.page(wanted)
    return page(
        request,
        "instances.html",
        rows=[row_of(it) for it in found.instances],
        total=found.total,
        statuses=[it.value for it in Status],
        chosen={name: request.query_params.get(name, "") for name in FILTERS},
        is_filtered=any(request.query_params.get(name) for name in FILTERS),
        next_page=next_page(request, found.next_cursor),
    )


def without_blanks(request: Request) -> Request:
    """Return the request as if nothing had been said of the fields that were left empty."""
    said = [(name, value) for name, value in request.query_params.multi_items() if value]
    return Request({**request.scope, "query_string": urlencode(said).encode()})


def next_page(request: Request, cursor: str | None) -> str:
    """Return the address of the next page with the same filters, or nothing if this is the last."""
    if cursor is None:
        return ""
    said = {name: value for name, value in request.query_params.items() if value and name != "done"}
    return f"{request.url.path}?{urlencode({**said, 'cursor': cursor})}"


ROUTES: Routes = {("GET", "/instances"): show}
