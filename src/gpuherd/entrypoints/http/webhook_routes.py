"""`/api/webhooks`: who hears of everything, what became of each delivery, and how to send it again."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.webhook_models import (
    EndpointBody,
    ReplayBody,
    ReplayedDeliveries,
    WebhookEndpointRemoved,
    WebhookEndpoints,
    WebhookTestBody,
)
from gpuherd.contract.wire_models import iso
from gpuherd.domain.api_key import Scope
from gpuherd.domain.egress_policy import redact_query
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind, EndpointWithSecret
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.http.openapi_document import takes
from gpuherd.entrypoints.http_auth import (
    acting_caller,
    append_audit_record,
    caller_of,
    require_scope,
)
from gpuherd.entrypoints.list_queries import (
    DELIVERY_LIST,
    Query,
    delivery_query,
    described,
)
from gpuherd.entrypoints.use_case_access import json_reply, plane_of
from gpuherd.entrypoints.values_from_bodies import target_check
from gpuherd.ports.webhook_port import DeliveryFilter
from gpuherd.usecases.events.manage_webhooks import (
    create_endpoint,
    delete_endpoint,
    is_secret_known,
    reenable_endpoint,
    replay_delivery,
    replay_since,
    rotate_endpoint,
    send_test_to_endpoint,
    send_test_to_url,
)
from gpuherd.usecases.instances.read_instance import find_delivery
from gpuherd.usecases.views.webhook_view import (
    describe_deliveries,
    describe_delivery,
    describe_delivery_fully,
    describe_endpoint,
    describe_endpoint_with_secret,
    describe_test_result,
)

router = APIRouter(prefix="/api/webhooks", tags=["webhooks"])


@router.get("/endpoints")
async def list_endpoints(request: Request) -> Response:
    """List the endpoints, oldest first."""
    services = plane_of(request).services
    listed = await services.stores.endpoints.list_all()
    found = tuple(describe_endpoint(it, secret_known=is_secret_known(services, it)) for it in listed)
    return json_reply(WebhookEndpoints(endpoints=found, total=len(found)))


@router.post("/endpoints", status_code=201, openapi_extra=takes(EndpointBody))
async def add_endpoint(request: Request) -> Response:
    """Create an endpoint. Its secret is shown in this reply only; `kind` says how events are written."""
    wanted = validate_body(EndpointBody, await read_object(request), target_check(plane_of(request).targets))
    services, caller = plane_of(request).services, acting_caller(request)
    made = await create_endpoint(
        services,
        wanted.url,
        tuple(wanted.events or ()),
        wanted.label or "",
        kind=EndpointKind(wanted.kind),
        caller=caller,
    )
    headers = {"Location": f"/api/webhooks/endpoints/{made.endpoint.id}"}
    return _keyed_reply(made, status=201, headers=headers)


@router.get("/endpoints/{endpoint_id}")
async def show_endpoint(endpoint_id: str, request: Request) -> Response:
    """Return one endpoint."""
    services = plane_of(request).services
    found = await services.stores.endpoints.get(endpoint_id)
    return json_reply(describe_endpoint(found, secret_known=is_secret_known(services, found)))


@router.delete("/endpoints/{endpoint_id}")
async def remove_endpoint(endpoint_id: str, request: Request) -> Response:
    """Remove an endpoint; its pending deliveries become dead letters."""
    await delete_endpoint(plane_of(request).services, endpoint_id, caller=acting_caller(request))
    return json_reply(WebhookEndpointRemoved(id=endpoint_id, removed=True))


@router.post("/endpoints/{endpoint_id}/rotate")
async def rotate_secret(endpoint_id: str, request: Request) -> Response:
    """Rotate the secret of an endpoint; for 24 hours the old one signs too."""
    services, caller = plane_of(request).services, acting_caller(request)
    return _keyed_reply(await rotate_endpoint(services, endpoint_id, caller=caller))


@router.post("/endpoints/{endpoint_id}/enable")
async def enable_endpoint(endpoint_id: str, request: Request) -> Response:
    """Enable an endpoint again, for example after a 410."""
    enabled = await reenable_endpoint(plane_of(request).services, endpoint_id, caller=acting_caller(request))
    return json_reply(describe_endpoint(enabled))


@router.get("/deliveries", openapi_extra=described(DELIVERY_LIST))
async def list_deliveries(request: Request) -> Response:
    """List deliveries, newest first. Filters: `state`, `instanceId`, `endpointId`, `type`."""
    query = Query(request)
    wanted = delivery_query(query, caller_of(request).owner)
    query.only(DELIVERY_LIST)
    query.done()
    return json_reply(describe_deliveries(await plane_of(request).services.stores.deliveries.page(wanted)))


@router.get("/deliveries/{delivery_id}")
async def show_delivery(delivery_id: str, request: Request) -> Response:
    """Return one delivery with its latest tries and its payload."""
    found = await find_delivery(plane_of(request).services, delivery_id, caller_of(request))
    return json_reply(describe_delivery_fully(found))


@router.post("/deliveries/{delivery_id}/replay", status_code=202)
async def replay_one(delivery_id: str, request: Request) -> Response:
    """Replay one delivery: the same id and bytes, a new time and signature."""
    found = await find_delivery(plane_of(request).services, delivery_id, caller_of(request))
    await append_audit_record(request, "delivery.replay", delivery_id, before=found.state.value)
    replayed = await replay_delivery(plane_of(request).services, delivery_id)
    return json_reply(describe_delivery(replayed), status=202)


@router.post("/replay", status_code=202, openapi_extra=takes(ReplayBody))
async def replay_all(request: Request) -> Response:
    """Replay all deliveries since a time that failed or are dead letters."""
    body = validate_body(ReplayBody, await read_object(request))
    services = plane_of(request).services
    if body.endpoint_id is not None:
        await services.stores.endpoints.get(body.endpoint_id)
    await append_audit_record(
        request, "delivery.replay_all", body.endpoint_id or "all", after=f"since {iso(body.since)}"
    )
    count = await replay_since(services, body.since, DeliveryFilter(body.state), body.endpoint_id)
    return json_reply(ReplayedDeliveries(count=count), status=202)


@router.post("/test", openapi_extra=takes(WebhookTestBody))
async def test(request: Request) -> Response:
    """Send one signed `webhook.test` now, and return the result."""
    body = validate_body(WebhookTestBody, await read_object(request), target_check(plane_of(request).targets))
    url, endpoint_id = body.url, body.endpoint_id
    if endpoint_id:
        # Endpoints are for admins, all about them.
        require_scope(request, Scope.ADMIN)
    await append_audit_record(request, "webhook.test", redact_query(url) if url else endpoint_id or "")
    services, caller = plane_of(request).services, acting_caller(request)
    if url:
        tried = await send_test_to_url(services, url, caller)
    else:
        tried = await send_test_to_endpoint(services, endpoint_id or "", caller)
    return json_reply(describe_test_result(tried))


def _keyed_reply(
    made: EndpointWithSecret, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    # No proxy and no browser shall keep a secret.
    headers = {"Cache-Control": "no-store", **(headers or {})}
    return json_reply(describe_endpoint_with_secret(made), status=status, headers=headers)
