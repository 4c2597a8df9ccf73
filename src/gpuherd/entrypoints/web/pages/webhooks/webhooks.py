"""`/webhooks`: what became of each delivery, and the way to send it again."""

from __future__ import annotations

import json
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.codec.values import iso
from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.domain.net.url_redaction import redact_query, redact_urls
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryState
from gpuherd.entrypoints.audit import append_audit_record
from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.lists import delivery_query
from gpuherd.entrypoints.query import Query
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.pages.instances.instances import next_page, without_blanks
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.formatting import BAD, GOOD, IDLE, MOVING
from gpuherd.ports.webhooks import DeliveryFilter

FILTERS = ("state", "instanceId", "endpointId", "type")
# Longer than deliveries are kept.
REPLAY_WINDOW = timedelta(days=365)


async def show(request: Request) -> Response:
    """List deliveries, newest first."""
    query, plane = Query(without_blanks(request)), plane_of(request)
    wanted = delivery_query(query, caller_of(request).owner)
    query.done()
    found = await plane.webhooks.deliveries(wanted)
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
    it = await plane_of(request).lookup.delivery(request.path_params["delivery_id"], caller_of(request))
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
    found = await plane.lookup.delivery(delivery_id, caller_of(request))
    await append_audit_record(request, "delivery.replay", delivery_id, before=found.state.value)
    await plane.webhooks.replay.one(delivery_id)
    return done(f"/webhooks/{found.id}", "replay")


async def replay_failed(request: Request) -> Response:
    """Send everything again that failed and did not arrive."""
    plane = plane_of(request)
    since = plane.clock.now() - REPLAY_WINDOW
    await append_audit_record(request, "delivery.replay_all", "all", after=f"since {iso(since)}")
    await plane.webhooks.replay.since(since, DeliveryFilter.FAILED)
    return done("/webhooks", "replay")


def look_of(it: Delivery) -> str:
    """Return by which shape a delivery is shown."""
    if it.state is DeliveryState.DELIVERED:
        return GOOD
    if it.state is DeliveryState.DEAD:
        return BAD
    return MOVING if it.tries else IDLE


ROUTES: Routes = {
    ("GET", "/webhooks"): show,
    ("POST", "/webhooks/replay"): replay_failed,
    ("GET", "/webhooks/{delivery_id}"): show_one,
    ("POST", "/webhooks/{delivery_id}/replay"): replay,
}
