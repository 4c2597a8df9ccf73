"""`/endpoints`: who hears of every instance."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import InvalidRequest
from gpuherd.domain.instance.events import ENDPOINT_WEBHOOK_TYPES
from gpuherd.domain.notifications.kind import EndpointKind
from gpuherd.domain.webhooks.endpoint import EndpointWithSecret
from gpuherd.entrypoints.audit import append_audit_record
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.webhooks import EndpointBody
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.wish_form import problems_by_field
from gpuherd.ports.webhooks import WebhookTestResult


async def show(request: Request) -> Response:
    """List the endpoints."""
    return await _list(request)


async def add(request: Request) -> Response:
    """Make an endpoint; its secret is on this page and on no other."""
    form, plane = form_of(request), plane_of(request)
    said = {name: form.text(name) for name in ("kind", "url", "label")} | {"events": form.all("events")}
    try:
        wanted = EndpointBody.parse({name: value for name, value in said.items() if value}, plane.targets)
    except InvalidRequest as error:
        return await _list(request, status=400, problems=problems_by_field(error.problems))
    manage = plane.webhooks.endpoints
    made = await manage.add(
        wanted.url,
        tuple(wanted.events or ()),
        wanted.label or "",
        kind=wanted.kind,
        caller=acting_caller(request),
    )
    return await _list(request, made=made)


async def enable(request: Request) -> Response:
    """Switch an endpoint on again."""
    manage = plane_of(request).webhooks.endpoints
    await manage.enable(request.path_params["endpoint_id"], caller=acting_caller(request))
    return done("/endpoints", "enable")


async def test(request: Request) -> Response:
    """Send a test now, and say how it went."""
    plane, endpoint_id = plane_of(request), request.path_params["endpoint_id"]
    await append_audit_record(request, "webhook.test", endpoint_id)
    return await _list(request, tried=await plane.webhooks.test.endpoint(endpoint_id, acting_caller(request)))


async def rotate(request: Request) -> Response:
    """Give an endpoint a new secret, which is on this page and on no other."""
    manage = plane_of(request).webhooks.endpoints
    made = await manage.rotate(request.path_params["endpoint_id"], caller=acting_caller(request))
    return await _list(request, made=made)


async def remove(request: Request) -> Response:
    """Forget an endpoint."""
    manage = plane_of(request).webhooks.endpoints
    await manage.remove(request.path_params["endpoint_id"], caller=acting_caller(request))
    return done("/endpoints", "remove")


async def _list(
    request: Request,
    *,
    status: int = 200,
    made: EndpointWithSecret | None = None,
    tried: WebhookTestResult | None = None,
    problems: Mapping[str, str] | None = None,
) -> Response:
    manage = plane_of(request).webhooks.endpoints
    found = await manage.list_all()
    return page(
        request,
        "endpoints.html",
        status=status,
        endpoints=[(it, it.shown_url, manage.knows_secret(it)) for it in found],
        types=sorted(ENDPOINT_WEBHOOK_TYPES),
        kinds=list(EndpointKind),
        made=made,
        tried=tried,
        problems=problems or {},
        filled=form_of(request) if problems else None,
    )


ROUTES: Routes = {
    ("GET", "/endpoints"): show,
    ("POST", "/endpoints"): add,
    ("POST", "/endpoints/{endpoint_id}/enable"): enable,
    ("POST", "/endpoints/{endpoint_id}/test"): test,
    ("POST", "/endpoints/{endpoint_id}/rotate"): rotate,
    ("POST", "/endpoints/{endpoint_id}/remove"): remove,
}
