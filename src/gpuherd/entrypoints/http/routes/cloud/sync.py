"""`/api/sync`: look at the cloud now."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.service import Sync
from gpuherd.entrypoints.audit import append_audit_record
from gpuherd.entrypoints.replies import json_reply, plane_of

router = APIRouter(prefix="/api/sync", tags=["instances"])


@router.post("")
async def sync(request: Request) -> Response:
    """Observe the cloud now, and update what is stored."""
    await append_audit_record(request, "cloud.sync", "cloud")
    look = await plane_of(request).sync_cloud()
    return json_reply(
        Sync(
            listed=look.record.machines,
            complete=look.record.complete,
            witness=look.record.witness.value,
            changed=look.changed,
        )
    )
