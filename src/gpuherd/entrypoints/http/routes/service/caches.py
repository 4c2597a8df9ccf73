"""`/api/cache`: what is remembered for a while, and how to forget it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.service import CachesCleaned, CachesCleared
from gpuherd.entrypoints.audit import append_audit_record
from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.http.json_body import read_optional_object
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.entrypoints.schemas.others import ClearCacheBody

router = APIRouter(prefix="/api/cache", tags=["cache"])


@router.get("/stats")
async def stats(request: Request) -> Response:
    """Show the size, hits and misses of each cache."""
    # The ids are those of everybody's instances.
    with_ids = caller_of(request).sees_all
    return json_reply(await plane_of(request).manage_caches.stats(with_ids=with_ids))


@router.post("/clear", openapi_extra=takes(ClearCacheBody, required=False))
async def clear(request: Request) -> Response:
    """Clear all caches, or the cache `cacheName`."""
    name = ClearCacheBody.parse(await read_optional_object(request)).cache_name
    await append_audit_record(request, "cache.clear", name or "all")
    return json_reply(CachesCleared(cleared=tuple(plane_of(request).manage_caches.clear(name))))


@router.post("/cleanup")
async def cleanup(request: Request) -> Response:
    """Remove expired entries from all caches."""
    await append_audit_record(request, "cache.cleanup", "all")
    return json_reply(CachesCleaned(removed=await plane_of(request).manage_caches.cleanup()))
