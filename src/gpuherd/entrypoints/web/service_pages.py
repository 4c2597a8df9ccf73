"""Orphans, jobs, settings, API reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.job import JobStatus
from gpuherd.entrypoints.http_auth import acting_caller, append_audit_record, caller_of
from gpuherd.entrypoints.list_queries import Query, job_query
from gpuherd.entrypoints.use_case_access import plane_of
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
from gpuherd.usecases.service.run_jobs import retry_job
from gpuherd.usecases.views.service_view import describe_orphan, hourly_usd

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


ORPHAN_LOOKS = {OrphanVerdict.SURPLUS: BAD, OrphanVerdict.UNRECORDED: MOVING, OrphanVerdict.FOREIGN: IDLE}


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
        looks=ORPHAN_LOOKS,
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


JOB_LOOKS = {
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
        looks=JOB_LOOKS,
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
