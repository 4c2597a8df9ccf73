"""`/`: what runs, what it costs, what is in motion, what needs somebody, what happened last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.alerts import Alert, alerts_of
from gpuherd.entrypoints.web.views.instance_rows import Cost, Row, cost_at, is_moving, row_of
from gpuherd.ports.events import EventFilter
from gpuherd.resilience.cache import Cache

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
        events=await plane.events.history.latest(EVENTS_SHOWN, EventFilter(owner=caller.owner)),
    )


async def _summarize(plane: Plane, caller: Caller) -> HerdSummary:
    live = await plane.overview.live(caller)
    instances = [it.instance for it in live]
    moving = [it for it in instances if is_moving(it)]
    usable = [it for it in instances if it.usable]
    return HerdSummary(
        # What the meter says, like Money: no sum of instances has the machines of nobody and the volumes.
        cost=cost_at(await plane.costs.hourly_now(caller)),
        total=len(instances),
        usable=[row_of(it) for it in usable[:ROWS_SHOWN]],
        usable_total=len(usable),
        moving=[row_of(it) for it in moving[:ROWS_SHOWN]],
        moving_total=len(moving),
        alerts=alerts_of(instances, await plane.overview.system(caller, live), is_admin=caller.sees_all),
    )


ROUTES: Routes = {("GET", "/"): show}
