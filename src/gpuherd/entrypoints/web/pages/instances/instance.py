"""`/instances/{id}`: one instance, what happened to it, how to get in, and what can be done with it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.cloud.logs import LogSource
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Goal, Status
from gpuherd.domain.instance.lifecycle.due import auto_ends_at
from gpuherd.domain.instance.lifecycle.handover import awaits_handover, is_replaceable
from gpuherd.domain.net.url_redaction import redact_query
from gpuherd.entrypoints.auth.authorization import acting_caller, caller_of
from gpuherd.entrypoints.auth.recheck import may_go_on
from gpuherd.entrypoints.durations import HOUR
from gpuherd.entrypoints.log_reply import LogReply
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.endings import LeaseBody
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views import instance_rows
from gpuherd.entrypoints.web.views.connection import commands_for, connection_options, link
from gpuherd.entrypoints.web.views.status_history import cost_so_far, status_spans
from gpuherd.usecases.explain.story import story_of
from gpuherd.usecases.explain.waiting import advice_for, explain_waiting
from gpuherd.usecases.explain.why import describe_lineage
from gpuherd.usecases.instances.read_log import LogReader

EVENTS_SHOWN = 100
# What the page offers; any other end can be had from a shell.
LEASE_HOURS = {"1": "1 hour", "4": "4 hours", "8": "8 hours", "24": "1 day", "72": "3 days"}


async def show(request: Request) -> Response:
    """Show everything about one instance."""
    plane = plane_of(request)
    history = await plane.read_history(request.path_params["instance_id"], caller_of(request))
    it, events, attempts = history.instance, history.events, history.attempts
    waiting = explain_waiting(it, events, attempts)
    now, row = plane.clock.now(), instance_rows.row_of(it)
    return page(
        request,
        "instance.html",
        it=it,
        row=row,
        is_moving=instance_rows.is_moving(it),
        is_booting=it.status is Status.STARTING and it.cloud_id is not None,
        status_spans=status_spans(it, events, now),
        cost=cost_so_far(it, events, now),
        events=events[: -EVENTS_SHOWN - 1 : -1],
        attempts=attempts,
        story=story_of(it, events, attempts),
        waiting=waiting,
        place=await plane.explain_instance.place_of(it),
        advice=advice_for(it, waiting),
        lineage=describe_lineage(await plane.explain_instance.lineage_of(it)),
        ways=connection_options(it),
        commands=commands_for(it),
        ports=[(port, link(port.endpoint)) for port in it.ports],
        webhook_url=redact_query(it.webhook_url) if it.webhook_url else "",
        can_start=instance_rows.can_start(it),
        can_restart=instance_rows.can_restart(it),
        can_replace=is_replaceable(it) and not awaits_handover(it),
        can_stop=instance_rows.can_stop(it),
        can_delete=instance_rows.can_delete(it),
        unused_ends_at=auto_ends_at(it),
        unused_rule=it.terms.silence or it.terms.idle,
        can_lease=it.goal is not Goal.DELETED and it.status not in TERMINAL_STATUSES,
        lease_hours=LEASE_HOURS,
        is_stopped=it.status is Status.EXITED,
        daily_usd=instance_rows.daily_price_of(it),
    )


async def log(request: Request) -> Response:
    """Stream what the cloud does for it: the pull of its image, while it boots."""
    word = request.path_params["instance_id"]
    reader = LogReader(word, LogSource.SYSTEM, True, caller_of(request), may_go_on(request))
    return LogReply(plane_of(request).read_log, reader)


async def start(request: Request) -> Response:
    """Start it."""
    word = request.path_params["instance_id"]
    it = await plane_of(request).change_goal.start(word, caller=acting_caller(request))
    return done(f"/instances/{it.instance.id}", "start")


async def restart(request: Request) -> Response:
    """Restart it."""
    word = request.path_params["instance_id"]
    it = await plane_of(request).change_goal.restart(word, caller=acting_caller(request))
    return done(f"/instances/{it.instance.id}", "restart")


async def replace(request: Request) -> Response:
    """Let another instance take over."""
    word = request.path_params["instance_id"]
    it = await plane_of(request).replace_instance(word, caller=acting_caller(request))
    return done(f"/instances/{it.instance.id}", "replace")


async def stop(request: Request) -> Response:
    """Stop it."""
    word = request.path_params["instance_id"]
    it = await plane_of(request).change_goal.stop(word, caller=acting_caller(request))
    return done(f"/instances/{it.instance.id}", "stop")


async def delete(request: Request) -> Response:
    """Delete it."""
    word = request.path_params["instance_id"]
    it = await plane_of(request).change_goal.delete(word, caller=acting_caller(request))
    return done(f"/instances/{it.instance.id}", "delete")


async def set_lease(request: Request) -> Response:
    """Set its end anew, counted from now; an empty choice takes it away."""
    word, caller = request.path_params["instance_id"], acting_caller(request)
    leases = plane_of(request).change_lease
    hours = request.state.form.text("hours")
    if hours:
        body = {"seconds": int(hours) * HOUR if hours in LEASE_HOURS else None}
        it = await leases.set(word, LeaseBody.parse(body).to_order(), caller)
    else:
        it = await leases.remove(word, caller)
    return done(f"/instances/{it.id}", "lease")


async def keep(request: Request) -> Response:
    """Note that it is in use."""
    word = request.path_params["instance_id"]
    await plane_of(request).note_use(word, acting_caller(request))
    return done(f"/instances/{word}", "keep")


ROUTES: Routes = {
    ("GET", "/instances/{instance_id}"): show,
    ("GET", "/instances/{instance_id}/log"): log,
    ("POST", "/instances/{instance_id}/start"): start,
    ("POST", "/instances/{instance_id}/restart"): restart,
    ("POST", "/instances/{instance_id}/replace"): replace,
    ("POST", "/instances/{instance_id}/stop"): stop,
    ("POST", "/instances/{instance_id}/delete"): delete,
    ("POST", "/instances/{instance_id}/lease"): set_lease,
    ("POST", "/instances/{instance_id}/keep"): keep,
}
