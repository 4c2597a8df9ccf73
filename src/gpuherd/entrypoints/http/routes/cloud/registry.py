"""`/api/registry-auths`: logins to registries, whose passwords go in and never come out."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.entrypoints.schemas.others import RegistryAuthBody
from gpuherd.usecases.describe.catalogue import describe_registry_auth, describe_registry_auths

router = APIRouter(prefix="/api/registry-auths", tags=["registry"])


@router.get("")
async def list_registry_auths(request: Request) -> Response:
    """List the account's registry credentials by name, without their passwords."""
    return json_reply(describe_registry_auths(await plane_of(request).images.registry.list_all()))


@router.post("", status_code=201, openapi_extra=takes(RegistryAuthBody))
async def create(request: Request) -> Response:
    """Give the cloud a login to a registry. gpuherd keeps nothing of it; its name must be free."""
    order = RegistryAuthBody.parse(await read_object(request)).to_order()
    made = await plane_of(request).images.registry.create(order, acting_caller(request))
    return json_reply(describe_registry_auth(made), status=201)


@router.delete("/{auth_id}")
async def delete(auth_id: str, request: Request) -> Response:
    """Delete a registry credential; not while a machine or a template uses it."""
    return json_reply(await plane_of(request).images.registry.delete(auth_id, acting_caller(request)))
