"""`/jobs`: what is done in the background, and another round for what failed."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.audit import append_audit_record
from gpuherd.entrypoints.auth.authorization import acting_caller, caller_of
from gpuherd.entrypoints.lists import job_query
from gpuherd.entrypoints.query import Query
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.pages.instances.instances import next_page, without_blanks
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.formatting import BAD, GOOD, IDLE, MOVING
from gpuherd.jobs.job import JobStatus
from gpuherd.usecases.jobs.kinds import CHECK_HEALTH, RECONCILE_KINDS, SEND_WEBHOOK

FILTERS = ("type", "status", "instanceId")
LOOKS = {
    JobStatus.PENDING: IDLE,
    JobStatus.PROCESSING: MOVING,
    JobStatus.COMPLETED: GOOD,
    JobStatus.FAILED: BAD,
}


async def show(request: Request) -> Response:
    """List jobs, newest first."""
    query, plane = Query(without_blanks(request)), plane_of(request)
    owner = caller_of(request).owner
    wanted = job_query(query, owner)
    query.done()
    found = await plane.read_jobs.page(wanted)
    return page(
        request,
        "jobs.html",
        jobs=found.jobs,
        total=found.total,
        stats=(await plane.read_jobs.stats(owner)).by_status,
        looks=LOOKS,
        statuses=list(JobStatus),
        kinds=[*RECONCILE_KINDS, CHECK_HEALTH, SEND_WEBHOOK],
        chosen={name: request.query_params.get(name, "") for name in FILTERS},
        is_filtered=any(request.query_params.get(name) for name in FILTERS),
        next_page=next_page(request, found.next_cursor),
    )


async def retry(request: Request) -> Response:
    """Give a failed job another round of tries."""
    plane, job_id = plane_of(request), request.path_params["job_id"]
    job = await plane.lookup.job(job_id, acting_caller(request))
    await append_audit_record(request, "job.retry", job_id, before=job.status.value)
    await plane.retry_job(job_id)
    return done("/jobs", "retry")


ROUTES: Routes = {("GET", "/jobs"): show, ("POST", "/jobs/{job_id}/retry"): retry}
