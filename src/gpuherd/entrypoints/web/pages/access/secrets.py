"""`/secrets`: values for variables of instances, which go in and never come out."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.access.named_secret import VALUE_CHARS_MAX
from gpuherd.domain.errors import FieldProblem, GpuherdError, InvalidRequest, NotFound
from gpuherd.entrypoints.auth.authorization import acting_caller, check_scope
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.keys import SecretBody, checked_secret_name
from gpuherd.entrypoints.web.forms import Form, form_of
from gpuherd.entrypoints.web.refusals import NOT_REFUSED, FormRefusal
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.usecases.describe.key import describe_secrets


async def show(request: Request) -> Response:
    """List the secrets that the key of this session may use."""
    return await _list(request)


async def put(request: Request) -> Response:
    """Set a secret, or change it; the same form sent twice leaves the same."""
    form, caller = form_of(request), acting_caller(request)
    is_shared = _is_shared(form)
    if is_shared:
        check_scope(caller, Scope.ADMIN)
    try:
        name, body = _parsed(form)
        await plane_of(request).secrets.put(name, body.secret, caller, shared=is_shared)
    except GpuherdError as error:
        return await _list(request, FormRefusal.of(error, "secret"))
    return done("/secrets", "secret")


async def remove(request: Request) -> Response:
    """Forget a secret; one that is gone already is as it should be."""
    caller, is_shared = acting_caller(request), _is_shared(form_of(request))
    if is_shared:
        check_scope(caller, Scope.ADMIN)
    with suppress(NotFound):
        await plane_of(request).secrets.remove(request.path_params["name"], caller, shared=is_shared)
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
        body = SecretBody.parse({"value": form.as_typed("value")})
    except InvalidRequest as error:
        raise InvalidRequest([*problems, *error.problems]) from None
    if problems:
        raise InvalidRequest(problems)
    return name, body


async def _list(request: Request, refused: FormRefusal = NOT_REFUSED) -> Response:
    listed = await plane_of(request).secrets.list_of(acting_caller(request))
    return page(
        request,
        "secrets.html",
        status=refused.status,
        secrets=describe_secrets(listed).secrets,
        value_chars_max=VALUE_CHARS_MAX,
        refused=refused,
        filled=form_of(request) if refused.form else None,
    )


ROUTES: Routes = {
    ("GET", "/secrets"): show,
    ("POST", "/secrets"): put,
    ("POST", "/secrets/{name}/remove"): remove,
}
