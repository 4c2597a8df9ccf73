"""`/keys`: who else may come in, how far, and from when on no more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.codec.values import iso
from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.access.webhook_secret import ShownKeySecret
from gpuherd.domain.errors import InvalidRequest
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.keys import KeyBody
from gpuherd.entrypoints.web.forms import Form, form_of
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.formatting import BAD, GONE, GOOD
from gpuherd.usecases.access.manage_keys import IssuedKey

DAYS_MAX = 3650
LOOKS = {"active": GOOD, "expired": GONE, "revoked": BAD}
MEANINGS = {
    Scope.READ: "read: look at its own instances",
    Scope.WRITE: "write: rent, start, stop and delete its own instances",
    Scope.ADMIN: "admin: everything, everybody's",
}


async def show(request: Request) -> Response:
    """List the keys."""
    return await _list(request)


async def add(request: Request) -> Response:
    """Make a key; it is on this page and on no other."""
    form, plane = form_of(request), plane_of(request)
    now = plane.clock.now()
    body = _body(form)
    if (days := form.text("days")) and days.isascii() and days.isdigit() and 0 < int(days[:6]) <= DAYS_MAX:
        body["expiresAt"] = iso(now + timedelta(days=int(days)))
    elif days:
        body["expiresAt"] = days
    try:
        made = await plane.keys.manage.add(KeyBody.parse(body, now).to_request(), acting_caller(request))
    except InvalidRequest as error:
        problems = {it.field: it.message for it in error.problems}
        return await _list(request, status=400, problems=problems)
    return await _list(request, made=made)


async def revoke(request: Request) -> Response:
    """Make a key worthless at once."""
    await plane_of(request).keys.manage.revoke(request.path_params["key_id"], acting_caller(request))
    return done("/keys", "revoke")


async def rotate(request: Request) -> Response:
    """Give a key a new webhook secret, which is on this page and on no other."""
    secrets = plane_of(request).webhooks.key_secrets
    return await _list(
        request, rotated=await secrets.rotate(request.path_params["key_id"], acting_caller(request))
    )


def _body(form: Form) -> dict[str, Any]:
    """Return the key as the API takes it."""
    body: dict[str, Any] = {"scopes": form.all("scope")}
    if label := form.text("label"):
        body["label"] = label
    said = {"maxGpus": form.text("maxGpus"), "maxHourlyUsd": form.text("maxHourlyUsd").removeprefix("$")}
    limits: dict[str, Any] = {name: value for name, value in said.items() if value}
    if limits.get("maxGpus", "").isdigit():
        limits["maxGpus"] = int(limits["maxGpus"][:9])
    return {**body, "limits": limits} if limits else body


async def _list(
    request: Request,
    *,
    status: int = 200,
    made: IssuedKey | None = None,
    rotated: ShownKeySecret | None = None,
    problems: Mapping[str, str] | None = None,
) -> Response:
    plane = plane_of(request)
    now = plane.clock.now()
    found = await plane.keys.manage.list_all()
    return page(
        request,
        "keys.html",
        status=status,
        keys=[(it, _state(it.is_valid(now), it.revoked_at is not None)) for it in reversed(found)],
        looks=LOOKS,
        meanings=MEANINGS,
        made=made,
        rotated=rotated,
        problems=problems or {},
        filled=form_of(request) if problems else None,
    )


def _state(is_valid: bool, is_revoked: bool) -> str:
    if is_valid:
        return "active"
    return "revoked" if is_revoked else "expired"


ROUTES: Routes = {
    ("GET", "/keys"): show,
    ("POST", "/keys"): add,
    ("POST", "/keys/{key_id}/revoke"): revoke,
    ("POST", "/keys/{key_id}/rotate"): rotate,
}
