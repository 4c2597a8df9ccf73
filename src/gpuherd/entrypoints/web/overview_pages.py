"""Overview: the herd at a glance, alerts, and the buttons that lift a hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.money.usage_span import usd_of
from gpuherd.entrypoints.http_auth import acting_caller, caller_of
from gpuherd.entrypoints.use_case_access import Plane, plane_of
from gpuherd.entrypoints.web.instance_pages import (
    Cost,
    Row,
    cost_at,
    is_moving,
    row_of,
)
from gpuherd.entrypoints.web.page_rendering import (
    BAD,
    MOVING,
    Routes,
    done,
    hourly,
    page,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.event_port import EventFilter
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud import guard_creates
from gpuherd.usecases.service.read_service_health import SystemStatus, read_system_status
from gpuherd.usecases.views.service_view import hourly_usd

QUEUE_LAG_MAX_S = 30.0
FAILED_SHOWN = 5


@dataclass(frozen=True)
class Alert:
    """One thing that somebody should look at."""

    look: str
    title: str
    detail: str
    href: str = ""
    # What the link says.
    link: str = ""
    # Where a form goes that puts it right.
    action: str = ""
    button: str = ""


def alerts_of(instances: Sequence[Instance], system: SystemStatus, *, is_admin: bool) -> list[Alert]:
    """Return everything that needs attention, what costs money first."""
    return [
        *_money(system, is_admin),
        *_service(system, is_admin),
        *_instances(instances),
        *_unknown(system),
        *_leftovers(system),
    ]


def _money(system: SystemStatus, is_admin: bool) -> Iterator[Alert]:
    ours = [it for it in system.orphans or () if it.verdict is not OrphanVerdict.FOREIGN]
    foreign = [it for it in system.orphans or () if it.verdict is OrphanVerdict.FOREIGN]
    if ours:
        cost = hourly(hourly_usd(ours))
        yield Alert(
            BAD, f"{_count(len(ours), 'orphaned machine')}, {cost}", _ORPHANS_DETAIL, "/orphans", "Look"
        )
    if foreign:
        cost = hourly(hourly_usd(foreign))
        title = f"{_count(len(foreign), 'machine')} of somebody else on this account, {cost}"
        yield Alert(MOVING, title, "Nothing is done about it until you decide.", "/orphans", "Look")
    if system.creates_blocked:
        action = ("/creates/resume", "Allow creates again") if is_admin else ("", "")
        yield Alert(BAD, "New machines are not rented", system.creates_blocked, "", "", *action)
    if system.account_unconfirmed:
        action = ("/cloud/confirm-account", "It is the right account") if is_admin else ("", "")
        yield Alert(BAD, "The account is not confirmed", system.account_unconfirmed, "", "", *action)
    if system.vanishing_held:
        action = ("/cloud/confirm-loss", "They are really gone") if is_admin else ("", "")
        yield Alert(BAD, "Many machines are missing at once", system.vanishing_held, "", "", *action)
    if system.auto_stop_braked:
        yield Alert(BAD, "Nothing ends by idleness", system.auto_stop_braked, "/instances", "Look")
    if system.collector_braked:
        yield Alert(BAD, "Surplus machines are not removed", system.collector_braked, "/orphans", "Look")


def _service(system: SystemStatus, is_admin: bool) -> Iterator[Alert]:
    if system.breaker != "CLOSED":
        detail = (
            "Calls to Novita fail, so what is shown here may be out of date. It is tried again by itself."
        )
        yield Alert(BAD, "Novita cannot be reached", detail)
    if system.oldest_due_s > QUEUE_LAG_MAX_S and is_admin:
        detail = f"The oldest job that is due waits for {system.oldest_due_s:.0f} s."
        yield Alert(MOVING, "The workers do not keep up", detail, "/jobs?status=PENDING", "Look")


def _instances(instances: Sequence[Instance]) -> Iterator[Alert]:
    failed = [it for it in instances if it.status is Status.FAILED]
    for it in failed[:FAILED_SHOWN]:
        yield Alert(BAD, f"{it.name} failed", it.reason, f"/instances/{it.id}", "Why?")
    if len(failed) > FAILED_SHOWN:
        title = f"{len(failed) - FAILED_SHOWN} more failed"
        yield Alert(BAD, title, "", "/instances?status=failed", "Show them")
    for it in instances:
        if it.loss_expected_at is not None:
            detail = "The cloud has announced that it takes this spot machine back."
            yield Alert(MOVING, f"{it.name} will be reclaimed", detail, f"/instances/{it.id}", "Look")


def _unknown(system: SystemStatus) -> Iterator[Alert]:
    for it in system.unknown:
        detail = "A create call got no answer. gpuherd looks for the machine before it tries again."
        yield Alert(MOVING, f"{it.name}: outcome not known yet", detail, f"/instances/{it.id}", "Look")


def _leftovers(system: SystemStatus) -> Iterator[Alert]:
    if system.dead_deliveries:
        title = f"{_count(system.dead_deliveries, 'webhook')} given up"
        yield Alert(BAD, title, "The receiver did not accept them.", "/webhooks?state=dead", "Look")
    if system.failed_jobs:
        title = _count(system.failed_jobs, "failed job")
        yield Alert(BAD, title, "They are not tried again by themselves.", "/jobs?status=FAILED", "Look")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_ORPHANS_DETAIL = "No instance has them, and they cost money."


# More than anybody reads at a glance; the list of instances has them all.
ROWS_SHOWN = 12


EVENTS_SHOWN = 15


# To count this many takes a while, and pages that are open ask with every change.
SUMMARY_CACHED_ABOVE = 500


SUMMARY_TTL_S = 5.0


@dataclass(frozen=True)
class HerdSummary:
    """All instances at one moment."""

    cost: Cost
    total: int
    usable: Sequence[Row]
    usable_total: int
    moving: Sequence[Row]
    moving_total: int
    alerts: Sequence[Alert]


def summary_cache(clock: Clock) -> Cache[str | None, HerdSummary]:
    """Return a cache of the summaries of large fleets, by owner."""
    return Cache(clock, SUMMARY_TTL_S, 100, "glances")


async def show(request: Request) -> Response:
    """Show it all at a glance."""
    plane, caller = plane_of(request), caller_of(request)
    summaries: Cache[str | None, HerdSummary] = request.app.state.summaries
    kept = summaries.peek(caller.owner)
    summary = kept or await _summarize(plane, caller)
    if summary.total > SUMMARY_CACHED_ABOVE and kept is None:
        summaries.put(caller.owner, summary)
    return page(
        request,
        "overview.html",
        summary=summary,
        is_kept=kept is not None,
        events=await plane.services.stores.events.before(None, EVENTS_SHOWN, EventFilter(owner=caller.owner)),
    )


async def _summarize(plane: Plane, caller: Caller) -> HerdSummary:
    live = await plane.services.stores.instances.all_live(caller.owner)
    instances = [it.instance for it in live]
    moving = [it for it in instances if is_moving(it)]
    usable = [it for it in instances if it.usable]
    return HerdSummary(
        # What the meter says, like Money: no sum of instances has the machines of nobody and the volumes.
        cost=cost_at(usd_of(await plane.services.stores.costs.hourly_now(caller.owner))),
        total=len(instances),
        usable=[row_of(it) for it in usable[:ROWS_SHOWN]],
        usable_total=len(usable),
        moving=[row_of(it) for it in moving[:ROWS_SHOWN]],
        moving_total=len(moving),
        alerts=alerts_of(
            instances, await read_system_status(plane.services, caller, live), is_admin=caller.sees_all
        ),
    )


OVERVIEW_ROUTES: Routes = {("GET", "/"): show}


async def confirm_account(request: Request) -> Response:
    """Believe that the key is of the right account."""
    await plane_of(request).account.confirm(acting_caller(request))
    return done("/", "resume")


async def confirm_loss(request: Request) -> Response:
    """Believe that what is missing is gone."""
    await plane_of(request).vanishing.confirm(acting_caller(request))
    return done("/", "resume")


CLOUD_ROUTES: Routes = {
    ("POST", "/cloud/confirm-account"): confirm_account,
    ("POST", "/cloud/confirm-loss"): confirm_loss,
}


async def resume_creates(request: Request) -> Response:
    """Allow creates again."""
    await guard_creates.resume_creates(plane_of(request).services, acting_caller(request))
    return done("/", "resume")


CREATES_ROUTES: Routes = {("POST", "/creates/resume"): resume_creates}
