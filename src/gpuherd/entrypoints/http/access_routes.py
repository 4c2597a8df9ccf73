"""Routes of keys, named secrets and the audit log."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.access_models import KeyBody, SecretBody, SecretRemoved
from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import ShownKeySecret
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.http.openapi_document import takes
from gpuherd.entrypoints.http_auth import acting_caller, caller_of, check_scope
from gpuherd.entrypoints.list_queries import (
    AUDIT_LIST,
    LIMIT,
    ORDER,
    POSITION_CURSOR,
    Order,
    Query,
    described,
    flag,
)
from gpuherd.entrypoints.use_case_access import json_reply, plane_of
from gpuherd.entrypoints.values_from_bodies import checked_secret_name, key_request_of
from gpuherd.usecases.access.manage_keys import add_key, revoke_key
from gpuherd.usecases.access.manage_secrets import (
    put_secret,
    read_secret,
    read_secrets,
    remove_secret,
    rotate_secrets,
)
from gpuherd.usecases.events.manage_webhooks import rotate_key_secret, show_key_secret
from gpuherd.usecases.money.manage_budgets import is_strict_for
from gpuherd.usecases.views.access_view import (
    describe_audit,
    describe_key,
    describe_keys,
    describe_new_key,
    describe_own_key,
    describe_rotated,
    describe_secret,
    describe_secrets,
)
from gpuherd.usecases.views.webhook_view import describe_key_secret

key_router = APIRouter(prefix="/api/keys", tags=["keys"])


@key_router.post("", status_code=201, openapi_extra=takes(KeyBody))
async def add(request: Request) -> Response:
    """Create a key. It is shown in this reply only, and so is the secret that signs its webhooks."""
    plane = plane_of(request)
    now = plane.clock.now()
    wanted = key_request_of(validate_body(KeyBody, await read_object(request), now))
    made = await add_key(plane.services, wanted, acting_caller(request))
    body = describe_new_key(made.key, made.secret, made.webhook_secret, now)
    return json_reply(body, status=201, headers={"Location": f"/api/keys/{made.key.id}"})


@key_router.get("")
async def list_keys(request: Request) -> Response:
    """List the keys, oldest first, revoked ones too. The admin key of the settings is not among them."""
    plane = plane_of(request)
    return json_reply(describe_keys(await plane.services.stores.keys.list_all(), plane.clock.now()))


# Before `/{key_id}`, or it would be taken for an id.
@key_router.get("/self")
async def show_own(request: Request) -> Response:
    """Tell a key about itself: id, scopes, limits, and whether a strict budget covers what it rents."""
    caller = caller_of(request)
    covered = await is_strict_for(plane_of(request).services, caller.key_id)
    return json_reply(describe_own_key(caller, has_strict_budget=covered))


@key_router.get("/{key_id}")
async def show(key_id: str, request: Request) -> Response:
    """Return one key, without its secret."""
    plane = plane_of(request)
    return json_reply(describe_key(await plane.services.stores.keys.get(key_id), plane.clock.now()))


@key_router.get("/{key_id}/webhook-secret")
async def show_webhook_secret(key_id: str, request: Request) -> Response:
    """Show what signs the webhooks of a key; `me` is your own. Only that one is shown."""
    caller = caller_of(request)
    shown = await show_key_secret(plane_of(request).services, _own(key_id, caller), caller)
    return _secret_reply(shown)


@key_router.post("/{key_id}/webhook-secret/rotate")
async def rotate_webhook_secret(key_id: str, request: Request) -> Response:
    """Rotate the secret that signs the webhooks of a key; `me` is your own. For a day the old one signs."""
    caller = acting_caller(request)
    return _secret_reply(await rotate_key_secret(plane_of(request).services, _own(key_id, caller), caller))


def _own(key_id: str, caller: Caller) -> str:
    return caller.key_id if key_id == "me" else key_id


def _secret_reply(shown: ShownKeySecret) -> Response:
    # No proxy and no browser shall keep a secret.
    return json_reply(describe_key_secret(shown), headers={"Cache-Control": "no-store"})


@key_router.delete("/{key_id}")
async def revoke(key_id: str, request: Request) -> Response:
    """Revoke a key, at once. What it has rented goes on; only admins see that from now on."""
    plane = plane_of(request)
    revoked = await revoke_key(plane.services, key_id, acting_caller(request))
    return json_reply(describe_key(revoked, plane.clock.now()))


secret_router = APIRouter(prefix="/api/secrets", tags=["secrets"])
SHARED = flag("shared", default=False)


@secret_router.get("")
async def list_secrets(request: Request) -> Response:
    """List the secrets that your key may use, by name, without their values."""
    return json_reply(describe_secrets(await read_secrets(plane_of(request).services, caller_of(request))))


@secret_router.get("/{name}")
async def show_secrets(name: str, request: Request) -> Response:
    """Return True if there is such a secret, without its value."""
    return json_reply(
        describe_secret(await read_secret(plane_of(request).services, name, caller_of(request)))
    )


@secret_router.put("/{name}", openapi_extra=takes(SecretBody))
async def put(name: str, request: Request) -> Response:
    """Set a secret of your key, or change it. Machines that run keep the value they were made with.

    With `shared`, for which a key with the scope admin is needed, every key may use it.
    """
    body, caller = validate_body(SecretBody, await read_object(request)), acting_caller(request)
    if body.shared:
        check_scope(caller, Scope.ADMIN)
    kept = await put_secret(
        plane_of(request).services, checked_secret_name(name), Secret(body.value), caller, shared=body.shared
    )
    return json_reply(describe_secret(kept))


@secret_router.delete("/{name}", openapi_extra=described((SHARED,)))
async def remove(name: str, request: Request) -> Response:
    """Remove a secret of your key, or with `shared` one of all. A create that refers to it is refused."""
    query, caller = Query(request), acting_caller(request)
    shared = query(SHARED)
    query.only((SHARED,))
    query.done()
    if shared:
        check_scope(caller, Scope.ADMIN)
    await remove_secret(plane_of(request).services, name, caller, shared=shared)
    return json_reply(SecretRemoved(name=name, removed=True))


@secret_router.post("/rotate")
async def rotate(request: Request) -> Response:
    """Seal again, with the newest key, what an earlier one has sealed. Repeat it until nothing is left."""
    return json_reply(
        describe_rotated(await rotate_secrets(plane_of(request).services, acting_caller(request)))
    )


audit_router = APIRouter(prefix="/api/audit", tags=["audit"])


@audit_router.get("", openapi_extra=described(AUDIT_LIST))
async def list_entries(request: Request) -> Response:
    """List entries, newest first, or with `order=asc` oldest first. Each has the hash of the one before."""
    query = Query(request)
    limit, cursor, order = query(LIMIT), query(POSITION_CURSOR), query(ORDER)
    query.only(AUDIT_LIST)
    query.done()
    page = await plane_of(request).services.stores.audit.page(limit, cursor, oldest_first=order is Order.ASC)
    return json_reply(describe_audit(page))
