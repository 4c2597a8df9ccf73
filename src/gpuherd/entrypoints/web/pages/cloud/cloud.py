"""`/cloud/…`: the word of an admin about the account, and about machines that are missing from it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import done
from gpuherd.entrypoints.web.routes import Routes


async def confirm_account(request: Request) -> Response:
    """Believe that the key is of the right account."""
    await plane_of(request).account.confirm(acting_caller(request))
    return done("/", "resume")


async def confirm_loss(request: Request) -> Response:
    """Believe that what is missing is gone."""
    await plane_of(request).vanishing.confirm(acting_caller(request))
    return done("/", "resume")


ROUTES: Routes = {
    ("POST", "/cloud/confirm-account"): confirm_account,
    ("POST", "/cloud/confirm-loss"): confirm_loss,
}
