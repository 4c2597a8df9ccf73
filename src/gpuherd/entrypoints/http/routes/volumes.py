"""`/api/volumes`: the account's network volumes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.parsed import parsed
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.entrypoints.schemas.others import VolumeBody
from gpuherd.usecases.describe.volume import describe_volume, describe_volumes

router = APIRouter(prefix="/api/volumes", tags=["volumes"])


@router.get("")
async def list_volumes(request: Request) -> Response:
    """List the account's network volumes by name, with region and price."""
    return json_reply(describe_volumes(await plane_of(request).volumes.list_all()))


@router.post("", status_code=201, openapi_extra=takes(VolumeBody))
async def create(request: Request) -> Response:
    """Make a network volume. It costs money until it is deleted, mounted or not; its name must be free."""
    plane, caller = plane_of(request), acting_caller(request)
    wanted = (await parsed(VolumeBody, await read_object(request), plane, caller)).to_request()
    made = await plane.volumes.create(wanted, caller)
    return json_reply(describe_volume(made), status=201)


@router.delete("/{volume_id}")
async def delete(volume_id: str, request: Request) -> Response:
    """Delete a network volume with all its data; not while a machine has it."""
    return json_reply(await plane_of(request).volumes.delete(volume_id, acting_caller(request)))
