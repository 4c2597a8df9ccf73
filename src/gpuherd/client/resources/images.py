"""What the account keeps for images: registry credentials, and its own templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from gpuherd.client.effects import Effects
from gpuherd.client.methods import Resource, api_method
from gpuherd.client.models.account import (
    RegistryAuth,
    RegistryAuthRemoved,
    Template,
    TemplateRemoved,
)
from gpuherd.client.paging import Items, items_of
from gpuherd.client.transport.wire import get, path_segment
from gpuherd.contract.codec.values import camel
from gpuherd.domain.access.secret import Secret


class TemplateFields(TypedDict, total=False):
    """What a template says beside its name and image."""

    registry_auth_id: str | None
    command: str | None
    ports: Sequence[str] | None
    # The cloud keeps these in the clear; nobody reads them from gpuherd again.
    envs: Mapping[str, str] | None
    rootfs_size: int | None
    min_cuda_version: str | None


class TemplateMethods(Resource):
    """Of `herd` itself: changes to the account's own templates. They need the scope admin."""

    @api_method
    def create_template(self, name: str, image_url: str, **more: Unpack[TemplateFields]) -> Effects[Template]:
        """Make a template; `Conflict` (TEMPLATE_EXISTS) if its name is taken."""
        body = _said(name, image_url, more)
        return Template.of((yield from self._caller.change("POST", "/api/templates", body)))

    @api_method
    def change_template(
        self,
        template: str | int | Template,
        *,
        name: str | None = None,
        image_url: str | None = None,
        **more: Unpack[TemplateFields],
    ) -> Effects[Template]:
        """Change what is said here, and nothing else. Machines that run are not touched."""
        body = _said(name, image_url, more)
        return Template.of((yield from self._caller.change("PATCH", _path(template), body)))

    @api_method
    def delete_template(self, template: str | int | Template) -> Effects[TemplateRemoved]:
        """Delete a template of the account."""
        return TemplateRemoved.of((yield from self._caller.change("DELETE", _path(template))))


class RegistryMethods(Resource):
    """`herd.registry`: logins to registries. Changes need the scope admin."""

    @api_method
    def list(self) -> Effects[Items[RegistryAuth]]:
        """Return the account's registry credentials by name, without passwords."""
        answer = yield from self._caller.call(get("/api/registry-auths"))
        return items_of(answer, "registryAuths", RegistryAuth.of)

    @api_method
    def create(self, name: str, username: str, password: str | Secret) -> Effects[RegistryAuth]:
        """Let the cloud keep a login; `Conflict` (REGISTRY_AUTH_EXISTS) if its name is taken."""
        word = password.reveal() if isinstance(password, Secret) else password
        body = {"name": name, "username": username, "password": word}
        return RegistryAuth.of((yield from self._caller.change("POST", "/api/registry-auths", body)))

    @api_method
    def delete(self, auth: str | RegistryAuth) -> Effects[RegistryAuthRemoved]:
        """Delete one; `Conflict` (REGISTRY_AUTH_IN_USE) while a machine or a template uses it."""
        path = f"/api/registry-auths/{path_segment(auth if isinstance(auth, str) else auth.id)}"
        return RegistryAuthRemoved.of((yield from self._caller.change("DELETE", path)))


def _path(template: str | int | Template) -> str:
    template_id = template.id if isinstance(template, Template) else str(template)
    return f"/api/templates/{path_segment(template_id)}"


def _said(name: str | None, image_url: str | None, more: TemplateFields) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": name, "image_url": image_url, **more}
    return {camel(key): value for key, value in fields.items() if value is not None}
