"""`/orphans`: machines that no instance has, what they cost, and what to do about them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.orphans.orphan import OrphanVerdict
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.formatting import BAD, IDLE, MOVING
from gpuherd.usecases.describe.orphan import describe_orphan, hourly_usd

LOOKS = {OrphanVerdict.SURPLUS: BAD, OrphanVerdict.UNRECORDED: MOVING, OrphanVerdict.FOREIGN: IDLE}
MEANINGS = {
    OrphanVerdict.SURPLUS: "gpuherd rented it and no longer needs it; it is removed by itself.",
    OrphanVerdict.UNRECORDED: "It carries our tag, but this database does not know it.",
    OrphanVerdict.FOREIGN: "Somebody else made it. gpuherd never touches it by itself.",
}


async def show(request: Request) -> Response:
    """List them, what we can do something about first."""
    plane = plane_of(request)
    now = plane.clock.now()
    order = list(OrphanVerdict)
    found = sorted(await plane.orphans.list_open(), key=lambda it: (order.index(it.verdict), it.since))
    known = [cost for it in found if (cost := it.cost_so_far(now)) is not None]
    return page(
        request,
        "orphans.html",
        orphans=[(it, describe_orphan(it, now), it.cost_so_far(now)) for it in found],
        looks=LOOKS,
        meanings=MEANINGS,
        hourly_usd=hourly_usd(found),
        so_far_usd=sum(known) if known else None,
        braked=await plane.orphans.list_open.braked(),
    )


async def adopt(request: Request) -> Response:
    """Make it an instance."""
    services = plane_of(request).orphans
    instance, _ = await services.adopt(request.path_params["cloud_id"], caller=acting_caller(request))
    return done(f"/instances/{instance.id}", "adopt")


async def stop(request: Request) -> Response:
    """Stop it; its disk stays."""
    await plane_of(request).orphans.order.stop(request.path_params["cloud_id"], caller=acting_caller(request))
    return done("/orphans", "order")


async def delete(request: Request) -> Response:
    """Remove it with all its data."""
    await plane_of(request).orphans.order.delete(
        request.path_params["cloud_id"], caller=acting_caller(request)
    )
    return done("/orphans", "order")


async def resume(request: Request) -> Response:
    """Let surplus machines be removed again."""
    plane, caller = plane_of(request), acting_caller(request)
    audit_record = caller.audit_record("orphan.resume", "collector", plane.clock.now())
    await plane.orphans.collect.resume(caller.key_id, audit_record)
    return done("/orphans", "resume")


ROUTES: Routes = {
    ("GET", "/orphans"): show,
    ("POST", "/orphans/resume"): resume,
    ("POST", "/orphans/{cloud_id}/adopt"): adopt,
    ("POST", "/orphans/{cloud_id}/stop"): stop,
    ("POST", "/orphans/{cloud_id}/delete"): delete,
}
