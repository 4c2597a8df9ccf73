"""Overview, alerts, orphans, jobs, settings, API reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.job import JobStatus
from gpuherd.domain.money.usage_span import usd_of
from gpuherd.entrypoints.http_auth import acting_caller, append_audit_record, caller_of
from gpuherd.entrypoints.list_queries import Query, job_query
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
    GOOD,
    IDLE,
    MOVING,
    Routes,
    done,
    hourly,
    next_page,
    page,
    without_blanks,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.event_port import EventFilter
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud import guard_creates
from gpuherd.usecases.cloud.collect_orphans import resume_collector
from gpuherd.usecases.cloud.handle_orphan import (
    adopt_orphan,
    collector_brake,
    delete_orphan,
    list_orphans,
    stop_orphan,
)
from gpuherd.usecases.instances.read_instance import find_job
from gpuherd.usecases.service.make_jobs import CHECK_HEALTH, RECONCILE_KINDS, SEND_WEBHOOK
from gpuherd.usecases.service.read_service_health import SystemStatus, read_system_status
from gpuherd.usecases.service.run_jobs import retry_job
from gpuherd.usecases.views.service_view import describe_orphan, hourly_usd

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
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter of an operation."""

    name: str
    where: str
    kind: str
    is_required: bool
    about: str


@dataclass(frozen=True)
class ApiOperation:
    """One method of one path."""

    anchor: str
    method: str
    path: str
    summary: str
    about: str
    scope: str
    parameters: tuple[Parameter, ...]
    body: tuple[Parameter, ...]
    replies: tuple[tuple[str, str], ...]
    example: str


@dataclass(frozen=True)
class Chapter:
    """The operations of one tag."""

    title: str
    operations: tuple[ApiOperation, ...]


def chapters_of(document: Json) -> list[Chapter]:
    """Return the document chapter by chapter, in the order of the document."""
    found: dict[str, list[ApiOperation]] = {}
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            found.setdefault(next(iter(said.get("tags", [])), "other"), []).append(
                _operation(path, method, said, document)
            )
    return [Chapter(title, tuple(operations)) for title, operations in found.items()]


def _operation(path: str, method: str, said: Json, document: Json) -> ApiOperation:
    body = tuple(_body(said, document))
    return ApiOperation(
        anchor=said.get("operationId", f"{method}-{path}"),
        method=method.upper(),
        path=path,
        summary=said.get("summary", ""),
        about=said.get("description", ""),
        scope=_scope(said),
        parameters=tuple(_parameter(it) for it in said.get("parameters", [])),
        body=body,
        replies=tuple((code, reply.get("description", "")) for code, reply in said["responses"].items()),
        example=_example(path, method, body),
    )


def _scope(said: Json) -> str:
    needed = [scope for it in said.get("security", []) for scopes in it.values() for scope in scopes]
    return needed[0] if needed else "open"


def _parameter(it: Json) -> Parameter:
    schema = it.get("schema", {})
    about = it.get("description") or schema.get("description", "")
    return Parameter(it["name"], it["in"], _kind(schema), bool(it.get("required")), about)


def _body(said: Json, document: Json) -> Iterator[Parameter]:
    for media in said.get("requestBody", {}).get("content", {}).values():
        schema = _resolved(media["schema"], document)
        required = schema.get("required", [])
        for name, it in schema.get("properties", {}).items():
            found = _resolved(it, document)
            yield Parameter(name, "body", _kind(found), name in required, found.get("description", ""))


def _resolved(schema: Json, document: Json) -> Json:
    """Follow a reference to where the schema is."""
    reference = schema.get("$ref", "")
    if not reference:
        return schema
    return document["components"]["schemas"].get(reference.rsplit("/", 1)[-1], {})  # type: ignore[no-any-return]


def _kind(schema: Json) -> str:
    """Return what a value may be, in a few words."""
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_kind(it) for it in choices if it.get("type") != "null"))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    words = [schema.get("format") or schema.get("type") or "object"]
    if "minimum" in schema and "maximum" in schema:
        words.append(f"{schema['minimum']:,}–{schema['maximum']:,}")
    if "default" in schema and schema["default"] not in (None, {}):
        words.append(f"default {schema['default']}")
    return ", ".join(words)


def _example(path: str, method: str, body: tuple[Parameter, ...]) -> str:
    lines = [f"curl -H 'Authorization: Bearer $KEY' $URL{path}"]
    if method != "get":
        lines[0] = lines[0].replace("curl ", f"curl -X {method.upper()} ")
    if needed := {it.name: "…" for it in body if it.is_required}:
        lines.append(f"-H 'Content-Type: application/json' -d '{json.dumps(needed, ensure_ascii=False)}'")
    return " \\\n  ".join(lines).replace("'Authorization: Bearer $KEY'", '"Authorization: Bearer $KEY"')


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
LOOKS = {OrphanVerdict.SURPLUS: BAD, OrphanVerdict.UNRECORDED: MOVING, OrphanVerdict.FOREIGN: IDLE}


MEANINGS = {
    OrphanVerdict.SURPLUS: "gpuherd rented it and no longer needs it; it is removed by itself.",
    OrphanVerdict.UNRECORDED: "It carries our tag, but this database does not know it.",
    OrphanVerdict.FOREIGN: "Somebody else made it. gpuherd never touches it by itself.",
}


async def show_orphans(request: Request) -> Response:
    """List them, what we can do something about first."""
    plane = plane_of(request)
    now = plane.clock.now()
    order = list(OrphanVerdict)
    found = sorted(await list_orphans(plane.services), key=lambda it: (order.index(it.verdict), it.since))
    known = [cost for it in found if (cost := it.cost_so_far(now)) is not None]
    return page(
        request,
        "orphans.html",
        orphans=[(it, describe_orphan(it, now), it.cost_so_far(now)) for it in found],
        looks=LOOKS,
        meanings=MEANINGS,
        hourly_usd=hourly_usd(found),
        so_far_usd=sum(known) if known else None,
        braked=await collector_brake(plane.services),
    )


async def adopt(request: Request) -> Response:
    """Make it an instance."""
    services, caller = plane_of(request).services, acting_caller(request)
    instance, _ = await adopt_orphan(services, request.path_params["cloud_id"], caller)
    return done(f"/instances/{instance.id}", "adopt")


async def stop(request: Request) -> Response:
    """Stop it; its disk stays."""
    services, caller = plane_of(request).services, acting_caller(request)
    await stop_orphan(services, request.path_params["cloud_id"], caller)
    return done("/orphans", "order")


async def delete(request: Request) -> Response:
    """Remove it with all its data."""
    services, caller = plane_of(request).services, acting_caller(request)
    await delete_orphan(services, request.path_params["cloud_id"], caller)
    return done("/orphans", "order")


async def resume(request: Request) -> Response:
    """Let surplus machines be removed again."""
    plane, caller = plane_of(request), acting_caller(request)
    audit_record = caller.audit_record("orphan.resume", "collector", plane.clock.now())
    await resume_collector(plane.services, caller.key_id, audit_record)
    return done("/orphans", "resume")


ORPHAN_ROUTES: Routes = {
    ("GET", "/orphans"): show_orphans,
    ("POST", "/orphans/resume"): resume,
    ("POST", "/orphans/{cloud_id}/adopt"): adopt,
    ("POST", "/orphans/{cloud_id}/stop"): stop,
    ("POST", "/orphans/{cloud_id}/delete"): delete,
}


FILTERS = ("type", "status", "instanceId")


LOOKS_jobs = {
    JobStatus.PENDING: IDLE,
    JobStatus.PROCESSING: MOVING,
    JobStatus.COMPLETED: GOOD,
    JobStatus.FAILED: BAD,
}


async def show_jobs(request: Request) -> Response:
    """List jobs, newest first."""
    query, plane = Query(without_blanks(request)), plane_of(request)
    owner = caller_of(request).owner
    wanted = job_query(query, owner)
    query.done()
    found = await plane.services.stores.jobs.page(wanted)
    return page(
        request,
        "jobs.html",
        jobs=found.jobs,
        total=found.total,
        stats=(await plane.services.stores.jobs.stats(owner)).by_status,
        looks=LOOKS_jobs,
        statuses=list(JobStatus),
        kinds=[*RECONCILE_KINDS, CHECK_HEALTH, SEND_WEBHOOK],
        chosen={name: request.query_params.get(name, "") for name in FILTERS},
        is_filtered=any(request.query_params.get(name) for name in FILTERS),
        next_page=next_page(request, found.next_cursor),
    )


async def retry(request: Request) -> Response:
    """Give a failed job another round of tries."""
    plane, job_id = plane_of(request), request.path_params["job_id"]
    job = await find_job(plane.services, job_id, acting_caller(request))
    await append_audit_record(request, "job.retry", job_id, before=job.status.value)
    await retry_job(plane.services, job_id)
    return done("/jobs", "retry")


JOB_ROUTES: Routes = {("GET", "/jobs"): show_jobs, ("POST", "/jobs/{job_id}/retry"): retry}


async def show_settings(request: Request) -> Response:
    """List the settings in force."""
    return page(request, "settings.html", settings=plane_of(request).settings_shown())


SETTINGS_ROUTES: Routes = {("GET", "/settings"): show_settings}


async def show_api_docs(request: Request) -> Response:
    """Show every operation."""
    document = request.app.state.document()
    return page(request, "docs.html", info=document["info"], chapters=chapters_of(document))


API_ROUTES: Routes = {("GET", "/docs"): show_api_docs}


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
