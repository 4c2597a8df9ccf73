"""Keys, named secrets, audit log."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.access_models import KeyBody, SecretBody
from gpuherd.contract.wire_models import iso
from gpuherd.domain.api_key import Scope
from gpuherd.domain.errors import (
    FieldProblem,
    GpuherdError,
    InvalidRequest,
    NotFound,
)
from gpuherd.domain.secret import VALUE_CHARS_MAX, Secret
from gpuherd.domain.webhooks.webhook_signing import ShownKeySecret
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.http_auth import acting_caller, check_scope
from gpuherd.entrypoints.list_queries import POSITION_CURSOR, Query
from gpuherd.entrypoints.use_case_access import plane_of
from gpuherd.entrypoints.values_from_bodies import checked_secret_name, key_request_of
from gpuherd.entrypoints.web.page_forms import (
    NOT_REFUSED,
    Form,
    FormRefusal,
    form_of,
)
from gpuherd.entrypoints.web.page_rendering import (
    BAD,
    GONE,
    GOOD,
    Routes,
    done,
    next_page,
    page,
    without_blanks,
)
from gpuherd.usecases.access.manage_keys import IssuedKey, add_key, revoke_key
from gpuherd.usecases.access.manage_secrets import put_secret, read_secrets, remove_secret
from gpuherd.usecases.events.manage_webhooks import rotate_key_secret
from gpuherd.usecases.views.access_view import describe_secrets

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
        made = await add_key(
            plane.services, key_request_of(validate_body(KeyBody, body, now)), acting_caller(request)
        )
    except InvalidRequest as error:
        problems = {it.field: it.message for it in error.problems}
        return await _list(request, status=400, problems=problems)
    return await _list(request, made=made)


async def revoke(request: Request) -> Response:
    """Make a key worthless at once."""
    await revoke_key(plane_of(request).services, request.path_params["key_id"], acting_caller(request))
    return done("/keys", "revoke")


async def rotate(request: Request) -> Response:
    """Give a key a new webhook secret, which is on this page and on no other."""
    services, key_id = plane_of(request).services, request.path_params["key_id"]
    return await _list(request, rotated=await rotate_key_secret(services, key_id, acting_caller(request)))


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
    found = await plane.services.stores.keys.list_all()
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


KEY_ROUTES: Routes = {
    ("GET", "/keys"): show,
    ("POST", "/keys"): add,
    ("POST", "/keys/{key_id}/revoke"): revoke,
    ("POST", "/keys/{key_id}/rotate"): rotate,
}


async def show_secrets(request: Request) -> Response:
    """List the secrets that the key of this session may use."""
    return await _secrets_list(request)


async def put(request: Request) -> Response:
    """Set a secret, or change it; the same form sent twice leaves the same."""
    form, caller = form_of(request), acting_caller(request)
    is_shared = _is_shared(form)
    if is_shared:
        check_scope(caller, Scope.ADMIN)
    try:
        name, body = _parsed(form)
        await put_secret(plane_of(request).services, name, Secret(body.value), caller, shared=is_shared)
    except GpuherdError as error:
        return await _secrets_list(request, FormRefusal.of(error, "secret"))
    return done("/secrets", "secret")


async def remove(request: Request) -> Response:
    """Forget a secret; one that is gone already is as it should be."""
    caller, is_shared = acting_caller(request), _is_shared(form_of(request))
    if is_shared:
        check_scope(caller, Scope.ADMIN)
    with suppress(NotFound):
        await remove_secret(plane_of(request).services, request.path_params["name"], caller, shared=is_shared)
    return done("/secrets", "secret-gone")


def _is_shared(form: Form) -> bool:
    return form.text("shared") == "yes"


def _parsed(form: Form) -> tuple[str, SecretBody]:
    """Return name and value, or raise every problem of both."""
    name, problems = form.text("name"), list[FieldProblem]()
    try:
        checked_secret_name(name)
    except InvalidRequest as error:
        problems += error.problems
    try:
        body = validate_body(SecretBody, {"value": form.as_typed("value")})
    except InvalidRequest as error:
        raise InvalidRequest([*problems, *error.problems]) from None
    if problems:
        raise InvalidRequest(problems)
    return name, body


async def _secrets_list(request: Request, refused: FormRefusal = NOT_REFUSED) -> Response:
    listed = await read_secrets(plane_of(request).services, acting_caller(request))
    return page(
        request,
        "secrets.html",
        status=refused.status,
        secrets=describe_secrets(listed).secrets,
        value_chars_max=VALUE_CHARS_MAX,
        refused=refused,
        filled=form_of(request) if refused.form else None,
    )


SECRET_ROUTES: Routes = {
    ("GET", "/secrets"): show_secrets,
    ("POST", "/secrets"): put,
    ("POST", "/secrets/{name}/remove"): remove,
}


LIMIT = 50


async def show_audit(request: Request) -> Response:
    """Show the end of the log."""
    query = Query(without_blanks(request))
    cursor = query(POSITION_CURSOR)
    query.done()
    found = await plane_of(request).services.stores.audit.page(LIMIT, cursor)
    following = None if found.next_cursor is None else str(found.next_cursor)
    return page(
        request,
        "audit.html",
        entries=found.entries,
        total=found.total,
        next_page=next_page(request, following),
    )


AUDIT_ROUTES: Routes = {("GET", "/audit"): show_audit}
