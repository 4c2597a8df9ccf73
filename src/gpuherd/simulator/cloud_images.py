"""The simulated cloud's registry credentials and templates behind our own ports."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol, TypeVar

from gpuherd.domain.cloud.template import (
    TEMPLATE_DISK_GB,
    CredentialOrder,
    RegistryCredential,
    TemplateDraft,
)
from gpuherd.domain.errors import GpuherdError, NotFound, OutcomeUnknown
from gpuherd.simulator import domain_mapping as mapping
from gpuherd.simulator.api.shapes import template_shape
from gpuherd.simulator.errors import GarbageReply, SimulatedError
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.operations import CloudOperations

T = TypeVar("T")
Ask = Callable[[], Coroutine[Any, Any, T]]


class _CloudCalls(Protocol):
    """How calls are carried to the cloud and back."""

    _operations: CloudOperations

    async def _read(self, ask: Ask[T], missing: GpuherdError | None = None) -> T: ...

    async def _change(
        self,
        ask: Ask[str],
        missing: GpuherdError | None = None,
        failed: Callable[[SimulatedError, datetime], GpuherdError] = mapping.failed_change,
    ) -> str: ...

    async def _image_change(self, ask: Ask[str]) -> str: ...


class ImagePorts:
    """The ports `RegistryCredentials` and `TemplateEditor`."""

    async def list_credentials(self: _CloudCalls) -> tuple[RegistryCredential, ...]:
        found = await self._read(self._operations.registry_auths)
        return tuple(RegistryCredential(it.id, it.name, it.username) for it in found)

    async def create_credential(self: _CloudCalls, order: CredentialOrder) -> None:
        async def ask() -> str:
            return await self._operations.save_registry_auth(
                order.name, order.username, order.password.reveal()
            )

        await self._image_change(ask)

    async def delete_credential(self: _CloudCalls, auth_id: str) -> None:
        async def ask() -> str:
            await self._operations.delete_registry_auth(auth_id)
            return ""

        await self._image_change(ask)

    async def create_template(self: _CloudCalls, draft: TemplateDraft) -> str:
        said = {"rootfsSize": TEMPLATE_DISK_GB, **mapping.template_fields(draft)}
        return await self._image_change(lambda: self._operations.create_template(Fields(said)))

    async def change_template(self: _CloudCalls, template_id: str, draft: TemplateDraft) -> None:
        missing = NotFound("there is no such template", code="TEMPLATE_NOT_FOUND")
        stored = await self._read(lambda: self._operations.template(template_id), missing)
        said = {**template_shape(stored), **mapping.template_fields(draft)}
        await self._image_change(lambda: self._operations.update_template(Fields(said)))

    async def delete_template(self: _CloudCalls, template_id: str) -> None:
        await self._image_change(lambda: self._operations.delete_template(template_id))

    async def _image_change(self: _CloudCalls, ask: Ask[str]) -> str:
        try:
            return await self._change(ask, failed=mapping.failed_image_change)
        except GarbageReply as garbage:
            raise OutcomeUnknown(str(garbage)) from None
