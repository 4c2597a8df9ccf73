"""`/api/secrets`: values for variables of instances, which go in and never come out."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.access import SecretRemoved
from gpuherd.domain.access.api_key import Scope
from gpuherd.entrypoints.auth.authorization import acting_caller, caller_of, check_scope
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.query import Query, described, flag
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.keys import SecretBody, checked_secret_name
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.usecases.describe.key import describe_rotated, describe_secret, describe_secrets

router = APIRouter(prefix="/api/secrets", tags=["secrets"])

SHARED = flag("shared", default=False)


@router.get("")
async def list_secrets(request: Request) -> Response:
    """List the secrets that your key may use, by name, without their values."""
    return json_reply(describe_secrets(await plane_of(request).secrets.list_of(caller_of(request))))


@router.get("/{name}")
async def show(name: str, request: Request) -> Response:
    """Tell whether there is such a secret, without its value."""
    return json_reply(describe_secret(await plane_of(request).secrets.get(name, caller_of(request))))


@router.put("/{name}", openapi_extra=takes(SecretBody))
async def put(name: str, request: Request) -> Response:
    """Set a secret of your key, or change it. Machines that run keep the value they were made with.

    With `shared`, for which a key with the scope admin is needed, every key may use it.
    """
    body, caller = SecretBody.parse(await read_object(request)), acting_caller(request)
    if body.shared:
        check_scope(caller, Scope.ADMIN)
    kept = await plane_of(request).secrets.put(
        checked_secret_name(name), body.secret, caller, shared=body.shared
    )
    return json_reply(describe_secret(kept))


@router.delete("/{name}", openapi_extra=described((SHARED,)))
async def remove(name: str, request: Request) -> Response:
    """Remove a secret of your key, or with `shared` one of all. A create that refers to it is refused."""
    query, caller = Query(request), acting_caller(request)
    shared = query(SHARED)
    query.only((SHARED,))
    query.done()
    if shared:
        check_scope(caller, Scope.ADMIN)
    await plane_of(request).secrets.remove(name, caller, shared=shared)
    return json_reply(SecretRemoved(name=name, removed=True))


@router.post("/rotate")
async def rotate(request: Request) -> Response:
    """Seal again, with the newest key, what an earlier one has sealed. Repeat it until nothing is left."""
    return json_reply(describe_rotated(await plane_of(request).rotate_secrets(acting_caller(request))))
