"""`/images/credentials`: logins to registries. A password is passed on to the cloud and shown nowhere."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import GpuherdError, NotFound
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.others import RegistryAuthBody
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.once import done_once
from gpuherd.entrypoints.web.pages.images.images import images_page
from gpuherd.entrypoints.web.refusals import FormRefusal
from gpuherd.entrypoints.web.rendering import done
from gpuherd.entrypoints.web.routes import Routes


async def create(request: Request) -> Response:
    """Give the cloud a login to a registry. The same form sent twice gives it once."""
    form = form_of(request)
    body = {name: form.text(name) for name in ("name", "username")} | {"password": form.as_typed("password")}

    async def act() -> Response:
        order = RegistryAuthBody.parse(body).to_order()
        await plane_of(request).images.registry.create(order, acting_caller(request))
        return done("/images", "credential")

    try:
        return await done_once(request, body, act)
    except GpuherdError as error:
        return await images_page(request, FormRefusal.of(error, "credential"))


async def delete(request: Request) -> Response:
    """Remove a login; one that is gone already is as it should be."""
    with suppress(NotFound):
        await plane_of(request).images.registry.delete(request.path_params["auth_id"], acting_caller(request))
    return done("/images", "credential-gone")


ROUTES: Routes = {
    ("POST", "/images/credentials"): create,
    ("POST", "/images/credentials/{auth_id}/delete"): delete,
}
