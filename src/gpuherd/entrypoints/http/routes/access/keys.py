"""`/api/keys`: who else may come in, how far, and from when on no more."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.access.caller import Caller
from gpuherd.domain.access.webhook_secret import ShownKeySecret
from gpuherd.entrypoints.auth.authorization import acting_caller, caller_of
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.keys import KeyBody
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.usecases.describe.key import describe_key, describe_keys, describe_new_key, describe_own_key
from gpuherd.usecases.describe.webhook import describe_key_secret

router = APIRouter(prefix="/api/keys", tags=["keys"])


@router.post("", status_code=201, openapi_extra=takes(KeyBody))
async def add(request: Request) -> Response:
    """Create a key. It is shown in this reply only, and so is the secret that signs its webhooks."""
    plane = plane_of(request)
    now = plane.clock.now()
    wanted = KeyBody.parse(await read_object(request), now).to_request()
    made = await plane.keys.manage.add(wanted, acting_caller(request))
    body = describe_new_key(made.key, made.secret, made.webhook_secret, now)
    return json_reply(body, status=201, headers={"Location": f"/api/keys/{made.key.id}"})


@router.get("")
async def list_keys(request: Request) -> Response:
    """List the keys, oldest first, revoked ones too. The admin key of the settings is not among them."""
    plane = plane_of(request)
    return json_reply(describe_keys(await plane.keys.manage.list_all(), plane.clock.now()))


# Before `/{key_id}`, or it would be taken for an id.
@router.get("/self")
async def show_own(request: Request) -> Response:
    """Tell a key about itself: id, scopes, limits, and whether a strict budget covers what it rents."""
    caller = caller_of(request)
    covered = await plane_of(request).budgets.read.is_strict_for(caller.key_id)
    return json_reply(describe_own_key(caller, has_strict_budget=covered))


@router.get("/{key_id}")
async def show(key_id: str, request: Request) -> Response:
    """Return one key, without its secret."""
    plane = plane_of(request)
    return json_reply(describe_key(await plane.keys.manage.get(key_id), plane.clock.now()))


@router.get("/{key_id}/webhook-secret")
async def show_webhook_secret(key_id: str, request: Request) -> Response:
    """Show what signs the webhooks of a key; `me` is your own. Only that one is shown."""
    caller = caller_of(request)
    shown = await plane_of(request).webhooks.key_secrets.show(_own(key_id, caller), caller)
    return _secret_reply(shown)


@router.post("/{key_id}/webhook-secret/rotate")
async def rotate_webhook_secret(key_id: str, request: Request) -> Response:
    """Rotate the secret that signs the webhooks of a key; `me` is your own. For a day the old one signs."""
    caller = acting_caller(request)
    return _secret_reply(await plane_of(request).webhooks.key_secrets.rotate(_own(key_id, caller), caller))


def _own(key_id: str, caller: Caller) -> str:
    return caller.key_id if key_id == "me" else key_id


def _secret_reply(shown: ShownKeySecret) -> Response:
    # No proxy and no browser shall keep a secret.
    return json_reply(describe_key_secret(shown), headers={"Cache-Control": "no-store"})


@router.delete("/{key_id}")
async def revoke(key_id: str, request: Request) -> Response:
    """Revoke a key, at once. What it has rented goes on; only admins see that from now on."""
    plane = plane_of(request)
    revoked = await plane.keys.manage.revoke(key_id, acting_caller(request))
    return json_reply(describe_key(revoked, plane.clock.now()))
