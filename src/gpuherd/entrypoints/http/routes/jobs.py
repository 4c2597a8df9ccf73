"""`/api/jobs`: what is being done in the background."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.audit import append_audit_record
from gpuherd.entrypoints.auth.authorization import acting_caller, caller_of
from gpuherd.entrypoints.lists import JOB_LIST, job_query
from gpuherd.entrypoints.query import Query, described
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.usecases.describe.job import describe_job, describe_job_stats, describe_jobs

router = APIRouter(prefix="/api/jobs", tags=["jobs"])


@router.get("", openapi_extra=described(JOB_LIST))
async def list_jobs(request: Request) -> Response:
    """List jobs, newest first. Filters: `type`, `status`, `instanceId`."""
    query = Query(request)
    wanted = job_query(query, caller_of(request).owner)
    query.done()
    return json_reply(describe_jobs(await plane_of(request).read_jobs.page(wanted)))


@router.get("/stats")
async def stats(request: Request) -> Response:
    """Count the jobs by status and by type."""
    counted = await plane_of(request).read_jobs.stats(caller_of(request).owner)
    return json_reply(describe_job_stats(counted))


@router.post("/{job_id}/retry", status_code=202)
async def retry(job_id: str, request: Request) -> Response:
    """Retry a failed job."""
    plane, caller = plane_of(request), acting_caller(request)
    job = await plane.lookup.job(job_id, caller)
    await append_audit_record(request, "job.retry", job_id, before=job.status.value)
    return json_reply(describe_job(await plane.retry_job(job_id)), status=202)


@router.get("/{job_id}")
async def show(job_id: str, request: Request) -> Response:
    """Return one job."""
    return json_reply(describe_job(await plane_of(request).lookup.job(job_id, caller_of(request))))
