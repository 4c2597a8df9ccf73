"""The list of instances, one instance, and its buttons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.lease_models import LeaseBody
from gpuherd.domain.cloud.machine import LogSource
from gpuherd.domain.egress_policy import redact_query
from gpuherd.domain.instance.goal_rules import RESTARTABLE, STOPPABLE
from gpuherd.domain.instance.instance import (
    TERMINAL_STATUSES,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.instance_state import auto_ends_at
from gpuherd.domain.instance.quota import hourly_usd_now
from gpuherd.domain.instance.replacement import awaits_handover, is_replaceable
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.durations import HOUR
from gpuherd.entrypoints.http_auth import acting_caller, caller_of, may_go_on
from gpuherd.entrypoints.list_queries import Query, instance_query
from gpuherd.entrypoints.streamed_replies import LogReply
from gpuherd.entrypoints.use_case_access import plane_of
from gpuherd.entrypoints.web.page_rendering import (
    MOVING,
    Routes,
    done,
    look_of,
    look_of_status,
    next_page,
    page,
    plain,
    without_blanks,
)
from gpuherd.usecases.instances.change_goal import (
    delete_instance,
    restart_instance,
    start_instance,
    stop_instance,
)
from gpuherd.usecases.instances.change_lease import note_use, remove_lease, set_lease
from gpuherd.usecases.instances.explain_instance import describe_lineage, find_lineage
from gpuherd.usecases.instances.explain_waiting import advice_for, explain_waiting
from gpuherd.usecases.instances.goal_request import GoalRequest
from gpuherd.usecases.instances.launch_spec_from_body import lease_order_of
from gpuherd.usecases.instances.read_instance import find_instance
from gpuherd.usecases.instances.read_log import LogReader
from gpuherd.usecases.instances.replace_instance import replace_instance
from gpuherd.usecases.instances.tell_timeline import tell_timeline

HOURS_A_DAY, HOURS_A_MONTH = 24, 730
SETTLED = frozenset({Status.EXITED, Status.DELETED, Status.FAILED})


@dataclass(frozen=True)
class Row:
    """One instance in a list."""

    id: str
    name: str
    status: str
    look: str
    reason: str
    gpu: str
    region: str
    billing: str
    hourly_usd: Decimal | None
    labels: tuple[tuple[str, str], ...]
    created_at: datetime
    # Since when it is on its way to where it shall be.
    moving_since: datetime
    ready_at: datetime | None
    expected_at: datetime | None
    loss_expected_at: datetime | None
    owner: str


@dataclass(frozen=True)
class Cost:
    """What goes on costs at this moment, and would cost if nothing changed."""

    hourly_usd: Decimal
    daily_usd: Decimal
    monthly_usd: Decimal


def row_of(it: Instance) -> Row:
    """Return an instance for a list."""
    look = look_of(it)
    return Row(
        id=it.id,
        name=it.name,
        status=it.status.value,
        look=look,
        reason=it.reason,
        gpu=gpu_of(it),
        region=it.rental.region if it.rental else "",
        billing="spot" if it.billing_mode == "spot" else "on demand",
        hourly_usd=price_of(it),
        labels=tuple(sorted(it.labels.items())),
        created_at=it.created_at,
        moving_since=moving_since(it),
        ready_at=it.ready_at,
        expected_at=it.estimated_ready_at if look == MOVING and it.goal == "running" else None,
        loss_expected_at=it.loss_expected_at,
        owner=it.owner,
    )


def gpu_of(it: Instance) -> str:
    """Return what was rented, or is wished for."""
    name = it.product_name
    return name if it.wish.gpu_num == 1 else f"{it.wish.gpu_num} × {name}"


def price_of(it: Instance) -> Decimal | None:
    """Return what the whole instance costs an hour while it runs, once that is known."""
    return it.hourly_usd


def daily_price_of(it: Instance) -> Decimal | None:
    """Return what a day costs if it stays as it is: of a stopped one the disk only."""
    price = hourly_usd_now(it) if it.status is Status.EXITED else it.hourly_usd
    return None if price is None else price * HOURS_A_DAY


def moving_since(it: Instance) -> datetime:
    """Return when what is going on was asked for."""
    return it.operation.requested_at if it.operation else it.created_at


def is_moving(it: Instance) -> bool:
    """Return True if it is not yet where it shall be."""
    return not it.usable and it.status not in SETTLED


def cost_at(hourly_usd: Decimal) -> Cost:
    """Return what goes on at so much an hour."""
    return Cost(hourly_usd, hourly_usd * HOURS_A_DAY, hourly_usd * HOURS_A_MONTH)


def can_start(it: Instance) -> bool:
    """Return True if a start would be accepted."""
    return it.status is Status.EXITED and it.cloud_id is not None


def can_restart(it: Instance) -> bool:
    """Return True if a restart would be accepted."""
    return it.status in RESTARTABLE


def can_stop(it: Instance) -> bool:
    """Return True if a stop would be accepted."""
    return it.status in STOPPABLE


def can_delete(it: Instance) -> bool:
    """Return True if a delete would change anything."""
    return it.status not in (Status.DELETED, Status.DELETING)


@dataclass(frozen=True)
class ConnectionOption:
    """One way in: text to copy, and a link where a browser can follow it."""

    title: str
    text: str
    href: str = ""


def connection_options(it: Instance) -> list[ConnectionOption]:
    """Return how to reach it, as far as the cloud says."""
    found = []
    if it.connection.ssh:
        found.append(ConnectionOption("SSH", it.connection.ssh))
    if it.connection.jupyter:
        found.append(ConnectionOption("Jupyter", it.connection.jupyter, link(it.connection.jupyter)))
    if it.connection.web_terminal:
        found.append(
            ConnectionOption("Terminal", it.connection.web_terminal, link(it.connection.web_terminal))
        )
    return found


def commands_for(it: Instance) -> list[ConnectionOption]:
    """Return what to type to go on from a shell."""
    if it.usable:
        return [
            ConnectionOption("Shell", f"gpuherd ssh {it.id}"),
            ConnectionOption("Details", f"gpuherd show {it.id}"),
        ]
    match it.status:
        case Status.EXITED:
            return [
                ConnectionOption("Start", f"gpuherd start {it.id}"),
                ConnectionOption("Delete", f"gpuherd rm {it.id}"),
            ]
        case Status.FAILED:
            return [
                ConnectionOption("Why", f"gpuherd why {it.id}"),
                ConnectionOption("Delete", f"gpuherd rm {it.id}"),
            ]
        case Status.DELETED:
            return [ConnectionOption("Why", f"gpuherd why {it.id}")]
        case _:
            return [
                ConnectionOption("Wait", f"gpuherd wait {it.id}"),
                ConnectionOption("Why", f"gpuherd why {it.id}"),
            ]


def link(address: str) -> str:
    """Return an address that is safe to follow, or nothing: the cloud could send us `javascript:`."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return address if parts.scheme in ("http", "https") and parts.netloc else ""


HOUR_S = Decimal(3600)

# A machine is there, and its GPU is ours.
BILLED = frozenset(
    {Status.STARTING, Status.RUNNING, Status.HEALTH_CHECKING, Status.READY, Status.STOPPING, Status.MIGRATING}
)


WIDTH = 1000

# A phase that was over at once is still to be seen.
WIDTH_MIN = 6


@dataclass(frozen=True)
class StatusSpan:
    """A status and how long it lasted."""

    status: str
    title: str
    look: str
    reason: str
    begun_at: datetime
    # None where it is the end: that lasts for ever.
    seconds: float | None
    is_now: bool
    # Where the bar of it begins and how wide it is, of 1000.
    x: int = 0
    width: int = 0


def status_spans(instance: Instance, events: Sequence[Event], now: datetime) -> list[StatusSpan]:
    """Return one stretch for each status that it had, oldest first."""
    changes: list[Event] = []
    for event in events:
        if event.after and (not changes or changes[-1].after != event.after):
            changes.append(event)
    ends = [it.at for it in changes[1:]]
    found = [_span(it, end, now) for it, end in zip(changes, [*ends, None], strict=False)]
    if found and instance.status in SETTLED:
        found[-1] = replace(found[-1], seconds=None)
    return _with_widths(found)


def _span(it: Event, end: datetime | None, now: datetime) -> StatusSpan:
    seconds = max(((end or now) - it.at).total_seconds(), 0.0)
    return StatusSpan(
        it.after, plain(it.after), look_of_status(it.after), it.reason, it.at, seconds, end is None
    )


def _with_widths(found: Sequence[StatusSpan]) -> list[StatusSpan]:
    whole = sum(it.seconds or 0.0 for it in found)
    widths = [max(WIDTH_MIN, round((it.seconds or 0.0) / whole * WIDTH)) if whole else 0 for it in found]
    # Those that were widened must not push the last one out.
    scale = WIDTH / sum(widths) if sum(widths) else 0.0
    placed, x = [], 0
    for it, width in zip(found, widths, strict=True):
        placed.append(replace(it, x=x, width=int(width * scale)))
        x += int(width * scale)
    return placed


def cost_so_far(instance: Instance, events: Sequence[Event], now: datetime) -> Decimal | None:
    """Return about how much it has cost: GPUs while a machine ran, its disk as long as there was one.

    None if nothing was rented.
    """
    price = price_of(instance)
    if price is None:
        return None
    spans = status_spans(instance, events, now)
    billed = [it for it in spans if it.status in BILLED]
    seconds = sum(it.seconds or 0.0 for it in billed)
    is_gone = instance.status in (Status.DELETED, Status.FAILED)
    until = spans[-1].begun_at if is_gone else now
    disk_s = max((until - billed[0].begun_at).total_seconds(), 0.0) if billed else 0.0
    gpus, disk = price - instance.disk_hourly_usd, instance.disk_hourly_usd
    return (gpus * Decimal(int(seconds)) + disk * Decimal(int(disk_s))) / HOUR_S


FILTERS = ("status", "name", "label")


async def show(request: Request) -> Response:
    """List instances, newest first; an empty field of the form filters nothing."""
    query = Query(without_blanks(request))
    wanted = instance_query(query, caller_of(request).owner)
    query.done()
    found = await plane_of(request).services.stores.instances.page(wanted)
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


LIST_ROUTES: Routes = {("GET", "/instances"): show}
EVENTS_SHOWN = 100
# What the page offers; any other end can be had from a shell.
LEASE_HOURS = {"1": "1 hour", "4": "4 hours", "8": "8 hours", "24": "1 day", "72": "3 days"}


async def show_instance(request: Request) -> Response:
    """Show everything about one instance."""
    services = plane_of(request).services
    it = await find_instance(services, request.path_params["instance_id"], caller_of(request))
    events = await services.stores.instances.events(it.id)
    attempts = await services.stores.instances.attempts(it.id)
    waiting = explain_waiting(it, events, attempts)
    now, row = services.clock.now(), row_of(it)
    return page(
        request,
        "instance.html",
        it=it,
        row=row,
        is_moving=is_moving(it),
        is_booting=it.status is Status.STARTING and it.cloud_id is not None,
        status_spans=status_spans(it, events, now),
        cost=cost_so_far(it, events, now),
        events=events[: -EVENTS_SHOWN - 1 : -1],
        attempts=attempts,
        story=tell_timeline(it, events, attempts),
        waiting=waiting,
        place=await services.capacity_line.place_of(it),
        advice=advice_for(it, waiting),
        lineage=describe_lineage(await find_lineage(services, it)),
        ways=connection_options(it),
        commands=commands_for(it),
        ports=[(port, link(port.endpoint)) for port in it.ports],
        webhook_url=redact_query(it.webhook_url) if it.webhook_url else "",
        can_start=can_start(it),
        can_restart=can_restart(it),
        can_replace=is_replaceable(it) and not awaits_handover(it),
        can_stop=can_stop(it),
        can_delete=can_delete(it),
        unused_ends_at=auto_ends_at(it),
        unused_rule=it.terms.silence or it.terms.idle,
        can_lease=it.goal is not Goal.DELETED and it.status not in TERMINAL_STATUSES,
        lease_hours=LEASE_HOURS,
        is_stopped=it.status is Status.EXITED,
        daily_usd=daily_price_of(it),
    )


async def log(request: Request) -> Response:
    """Stream what the cloud does for it: the pull of its image, while it boots."""
    instance_id, caller = request.path_params["instance_id"], caller_of(request)
    reader = LogReader(instance_id, LogSource.SYSTEM, True, caller, may_go_on(request))
    return LogReply(plane_of(request).services, reader)


async def start(request: Request) -> Response:
    """Start the instance."""
    it = await start_instance(plane_of(request).services, _goal(request))
    return done(f"/instances/{it.instance.id}", "start")


async def restart(request: Request) -> Response:
    """Restart the instance."""
    it = await restart_instance(plane_of(request).services, _goal(request))
    return done(f"/instances/{it.instance.id}", "restart")


async def replace_by_another(request: Request) -> Response:
    """Replace the instance by another one."""
    it = await replace_instance(plane_of(request).services, _goal(request))
    return done(f"/instances/{it.instance.id}", "replace")


async def stop(request: Request) -> Response:
    """Stop the instance."""
    it = await stop_instance(plane_of(request).services, _goal(request))
    return done(f"/instances/{it.instance.id}", "stop")


async def delete(request: Request) -> Response:
    """Delete the instance."""
    it = await delete_instance(plane_of(request).services, _goal(request))
    return done(f"/instances/{it.instance.id}", "delete")


def _goal(request: Request) -> GoalRequest:
    return GoalRequest(request.path_params["instance_id"], caller=acting_caller(request))


async def change_lease(request: Request) -> Response:
    """Set the end anew, counted from now. An empty choice removes the lease."""
    word, caller = request.path_params["instance_id"], acting_caller(request)
    services = plane_of(request).services
    hours = request.state.form.text("hours")
    if hours:
        body = {"seconds": int(hours) * HOUR if hours in LEASE_HOURS else None}
        it = await set_lease(services, word, lease_order_of(validate_body(LeaseBody, body)), caller)
    else:
        it = await remove_lease(services, word, caller)
    return done(f"/instances/{it.id}", "lease")


async def keep(request: Request) -> Response:
    """Note that the instance is in use."""
    word = request.path_params["instance_id"]
    await note_use(plane_of(request).services, word, acting_caller(request))
    return done(f"/instances/{word}", "keep")


INSTANCE_ROUTES: Routes = {
    ("GET", "/instances/{instance_id}"): show_instance,
    ("GET", "/instances/{instance_id}/log"): log,
    ("POST", "/instances/{instance_id}/start"): start,
    ("POST", "/instances/{instance_id}/restart"): restart,
    ("POST", "/instances/{instance_id}/replace"): replace_by_another,
    ("POST", "/instances/{instance_id}/stop"): stop,
    ("POST", "/instances/{instance_id}/delete"): delete,
    ("POST", "/instances/{instance_id}/lease"): change_lease,
    ("POST", "/instances/{instance_id}/keep"): keep,
}
