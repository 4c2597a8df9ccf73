"""Deliveries and endpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.webhook_models import EndpointBody
from gpuherd.contract.wire_models import iso
from gpuherd.domain.egress_policy import redact_query, redact_urls
from gpuherd.domain.errors import InvalidRequest
from gpuherd.domain.instance.instance_event import ACCOUNT, ENDPOINT_WEBHOOK_TYPES
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind, EndpointWithSecret
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.http_auth import acting_caller, append_audit_record, caller_of
from gpuherd.entrypoints.list_queries import Query, delivery_query
from gpuherd.entrypoints.use_case_access import plane_of
from gpuherd.entrypoints.values_from_bodies import target_check
from gpuherd.entrypoints.web.page_forms import form_of, problems_by_field
from gpuherd.entrypoints.web.page_rendering import (
    BAD,
    GOOD,
    IDLE,
    MOVING,
    Routes,
    done,
    next_page,
    page,
    without_blanks,
)
from gpuherd.ports.webhook_port import DeliveryFilter, WebhookTestResult
from gpuherd.usecases.events.manage_webhooks import (
    create_endpoint,
    delete_endpoint,
    is_secret_known,
    reenable_endpoint,
    replay_delivery,
    replay_since,
    rotate_endpoint,
    send_test_to_endpoint,
)
from gpuherd.usecases.instances.read_instance import find_delivery

FILTERS = ("state", "instanceId", "endpointId", "type")


# Longer than deliveries are kept.
REPLAY_WINDOW = timedelta(days=365)


async def show(request: Request) -> Response:
    """List deliveries, newest first."""
    query, plane = Query(without_blanks(request)), plane_of(request)
    wanted = delivery_query(query, caller_of(request).owner)
    query.done()
    found = await plane.services.stores.deliveries.page(wanted)
    return page(
        request,
        "webhooks.html",
        deliveries=[(it, look_of(it), redact_query(it.url)) for it in found.deliveries],
        total=found.total,
        states=list(DeliveryFilter),
        account=ACCOUNT,
        chosen={name: request.query_params.get(name, "") for name in FILTERS},
        is_filtered=any(request.query_params.get(name) for name in FILTERS),
        next_page=next_page(request, found.next_cursor),
    )


async def show_one(request: Request) -> Response:
    """Show one delivery with its tries and what it says."""
    services, delivery_id = plane_of(request).services, request.path_params["delivery_id"]
    it = await find_delivery(services, delivery_id, caller_of(request))
    said = json.dumps(redact_urls(json.loads(it.body)), indent=2, ensure_ascii=False)
    return page(
        request,
        "delivery.html",
        it=it,
        look=look_of(it),
        url=redact_query(it.url),
        account=ACCOUNT,
        payload=said,
    )


async def replay(request: Request) -> Response:
    """Send one delivery again."""
    plane, delivery_id = plane_of(request), request.path_params["delivery_id"]
    found = await find_delivery(plane.services, delivery_id, caller_of(request))
    await append_audit_record(request, "delivery.replay", delivery_id, before=found.state.value)
    await replay_delivery(plane.services, delivery_id)
    return done(f"/webhooks/{found.id}", "replay")


async def replay_failed(request: Request) -> Response:
    """Send everything again that failed and did not arrive."""
    plane = plane_of(request)
    since = plane.clock.now() - REPLAY_WINDOW
    await append_audit_record(request, "delivery.replay_all", "all", after=f"since {iso(since)}")
    await replay_since(plane.services, since, DeliveryFilter.FAILED)
    return done("/webhooks", "replay")


def look_of(it: Delivery) -> str:
    """Return by which shape a delivery is shown."""
    if it.state is DeliveryState.DELIVERED:
        return GOOD
    if it.state is DeliveryState.DEAD:
        return BAD
    return MOVING if it.tries else IDLE


DELIVERY_ROUTES: Routes = {
    ("GET", "/webhooks"): show,
    ("POST", "/webhooks/replay"): replay_failed,
    ("GET", "/webhooks/{delivery_id}"): show_one,
    ("POST", "/webhooks/{delivery_id}/replay"): replay,
}


async def show_endpoints(request: Request) -> Response:
    """List the endpoints."""
    return await _list(request)


async def add(request: Request) -> Response:
    """Make an endpoint; its secret is on this page and on no other."""
    form, plane = form_of(request), plane_of(request)
    said = {name: form.text(name) for name in ("kind", "url", "label")} | {"events": form.all("events")}
    try:
        given = {name: value for name, value in said.items() if value}
        wanted = validate_body(EndpointBody, given, target_check(plane.targets))
    except InvalidRequest as error:
        return await _list(request, status=400, problems=problems_by_field(error.problems))
    made = await create_endpoint(
        plane.services,
        wanted.url,
        tuple(wanted.events or ()),
        wanted.label or "",
        kind=EndpointKind(wanted.kind),
        caller=acting_caller(request),
    )
    return await _list(request, made=made)


async def enable(request: Request) -> Response:
    """Switch an endpoint on again."""
    await reenable_endpoint(
        plane_of(request).services, request.path_params["endpoint_id"], caller=acting_caller(request)
    )
    return done("/endpoints", "enable")


async def test(request: Request) -> Response:
    """Send a test now, and say how it went."""
    plane, endpoint_id = plane_of(request), request.path_params["endpoint_id"]
    await append_audit_record(request, "webhook.test", endpoint_id)
    return await _list(
        request, tried=await send_test_to_endpoint(plane.services, endpoint_id, acting_caller(request))
    )


async def rotate(request: Request) -> Response:
    """Give an endpoint a new secret, which is on this page and on no other."""
    services, endpoint_id = plane_of(request).services, request.path_params["endpoint_id"]
    made = await rotate_endpoint(services, endpoint_id, caller=acting_caller(request))
    return await _list(request, made=made)


async def remove(request: Request) -> Response:
    """Forget an endpoint."""
    await delete_endpoint(
        plane_of(request).services, request.path_params["endpoint_id"], caller=acting_caller(request)
    )
    return done("/endpoints", "remove")


async def _list(
    request: Request,
    *,
    status: int = 200,
    made: EndpointWithSecret | None = None,
    tried: WebhookTestResult | None = None,
    problems: Mapping[str, str] | None = None,
) -> Response:
    services = plane_of(request).services
    found = await services.stores.endpoints.list_all()
    return page(
        request,
        "endpoints.html",
        status=status,
        endpoints=[(it, it.shown_url, is_secret_known(services, it)) for it in found],
        types=sorted(ENDPOINT_WEBHOOK_TYPES),
        kinds=list(EndpointKind),
        made=made,
        tried=tried,
        problems=problems or {},
        filled=form_of(request) if problems else None,
    )


ENDPOINT_ROUTES: Routes = {
    ("GET", "/endpoints"): show_endpoints,
    ("POST", "/endpoints"): add,
    ("POST", "/endpoints/{endpoint_id}/enable"): enable,
    ("POST", "/endpoints/{endpoint_id}/test"): test,
    ("POST", "/endpoints/{endpoint_id}/rotate"): rotate,
    ("POST", "/endpoints/{endpoint_id}/remove"): remove,
}
