"""Templates and registry credentials of the account."""

from __future__ import annotations

from dataclasses import dataclass, fields

import structlog

from gpuherd.contract.catalogue_models import RegistryAuthRemoved, TemplateRemoved
from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.template import (
    CredentialOrder,
    RegistryCredential,
    Template,
    TemplateDraft,
)
from gpuherd.domain.errors import (
    CloudUnavailable,
    Conflict,
    NotFound,
    OutcomeUnknown,
)
from gpuherd.ports.access_port import AuditLog
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud, RegistryCredentials, TemplateEditor
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache

log = structlog.get_logger()
CREATED, DELETED = "registry_auth.create", "registry_auth.delete"


@dataclass(frozen=True)
class ManageRegistry:
    """The use case. Names are given once, so that a credential whose answer was lost is found by its name."""

    credentials: RegistryCredentials
    catalogue: CatalogueCache
    audit: AuditLog
    clock: Clock

    async def list_all(self) -> tuple[RegistryCredential, ...]:
        """Return them by name."""
        found = await self.credentials.list_credentials()
        return tuple(sorted(found, key=lambda it: (it.name, it.auth_id)))

    async def create(self, order: CredentialOrder, caller: Caller) -> RegistryCredential:
        """Keep a login at the cloud; `Conflict` (REGISTRY_AUTH_EXISTS) if its name is taken."""
        # guard: a name of a registry credential is given once
        if (there := await self._named(order.name)) is not None:
            raise Conflict(
                f"there is a registry credential {order.name!r} already; delete it, or choose another name",
                code="REGISTRY_AUTH_EXISTS",
                details={"id": there.auth_id},
            )
        record = caller.audit_record(CREATED, order.name, self.clock.now(), after=f"user {order.username}")
        # guard: who makes a registry credential is on record before the cloud is asked
        await self.audit.append(record)
        lost: OutcomeUnknown | None = None
        try:
            await self.credentials.create_credential(order)
        except OutcomeUnknown as unknown:
            lost = unknown
        # Novita does not always say its id.
        made = await self._named(order.name)
        if made is None:
            raise CloudUnavailable(
                "this registry credential is not listed yet; look for its name before you send it again",
                code="REGISTRY_AUTH_OUTCOME_UNKNOWN",
            ) from lost
        self.catalogue.forget_registry_auths()
        log.info("registry_auth.created", auth_id=made.auth_id, by=caller.key_id)
        return made

    async def delete(self, auth_id: str, caller: Caller) -> RegistryAuthRemoved:
        """Remove one; `NotFound` if there is none, `Conflict` (REGISTRY_AUTH_IN_USE) while it is used."""
        known = next((it for it in await self.credentials.list_credentials() if it.auth_id == auth_id), None)
        if known is None:
            raise NotFound(f"there is no registry credential {auth_id!r}", code="REGISTRY_AUTH_NOT_FOUND")
        before = f"{known.name}, user {known.username}"
        await self.audit.append(caller.audit_record(DELETED, auth_id, self.clock.now(), before))
        try:
            await self.credentials.delete_credential(auth_id)
        except NotFound:
            pass
        except OutcomeUnknown:
            # guard: a removal of a registry credential without an answer is not told as done
            if any(it.auth_id == auth_id for it in await self.credentials.list_credentials()):
                raise
        self.catalogue.forget_registry_auths()
        log.info("registry_auth.removed", auth_id=auth_id, by=caller.key_id)
        return RegistryAuthRemoved(id=auth_id, removed=True)

    async def _named(self, name: str) -> RegistryCredential | None:
        return next((it for it in await self.credentials.list_credentials() if it.name == name), None)


# Of the channels that Novita has: what it offers to everybody.
OFFICIAL = "official"


CREATED_templates, CHANGED, DELETED_templates = "template.create", "template.change", "template.delete"


@dataclass(frozen=True)
class ManageTemplates:
    """The use case. Names are given once, so that a template whose answer was lost is found by its name."""

    editor: TemplateEditor
    cloud: Cloud
    catalogue: CatalogueCache
    audit: AuditLog
    clock: Clock

    async def create(self, draft: TemplateDraft, caller: Caller) -> Template:
        """Make a template; `Conflict` (TEMPLATE_EXISTS) if one of the account has its name."""
        assert draft.name is not None
        if (there := await self._named(draft.name)) is not None:
            raise Conflict(
                f"there is a template {draft.name!r} already; change it, or choose another name",
                code="TEMPLATE_EXISTS",
                details={"id": there.template_id},
            )
        await self._check_credential(draft)
        await self.audit.append(
            caller.audit_record(CREATED_templates, draft.name, self.clock.now(), after=draft.image or "")
        )
        try:
            template_id = await self.editor.create_template(draft)
        except OutcomeUnknown:
            made = await self._named(draft.name)
            if made is None:
                raise
            template_id = made.template_id
        self.catalogue.forget_templates()
        log.info("template.created", template_id=template_id, by=caller.key_id)
        return await self.catalogue.find_template(template_id)

    async def change(self, template_id: str, draft: TemplateDraft, caller: Caller) -> Template:
        """Change what the draft says, and nothing else; machines that run keep what they were made with."""
        _check_own(await self.cloud.get_template(template_id))
        await self._check_credential(draft)
        said = [it.name for it in fields(draft) if getattr(draft, it.name) is not None]
        # Of values nothing: people keep tokens in commands and variables.
        record = caller.audit_record(CHANGED, template_id, self.clock.now(), after=", ".join(said))
        await self.audit.append(record)
        try:
            # Once is as good as twice.
            await self.editor.change_template(template_id, draft)
        finally:
            self.catalogue.forget_templates()
        log.info("template.changed", template_id=template_id, by=caller.key_id)
        return await self.catalogue.find_template(template_id)

    async def delete(self, template_id: str, caller: Caller) -> TemplateRemoved:
        """Remove one of the account; machines that were made from it stay."""
        known = await self.cloud.get_template(template_id)
        _check_own(known)
        await self.audit.append(
            caller.audit_record(
                DELETED_templates, template_id, self.clock.now(), f"{known.name}, {known.image}"
            )
        )
        try:
            await self.editor.delete_template(template_id)
        except NotFound:
            pass
        except OutcomeUnknown:
            # guard: a removal of a template without an answer is not told as done
            if any(it.template_id == template_id for it in await self.cloud.list_templates()):
                raise
        self.catalogue.forget_templates()
        log.info("template.removed", template_id=template_id, by=caller.key_id)
        return TemplateRemoved(id=template_id, removed=True)

    async def _check_credential(self, draft: TemplateDraft) -> None:
        if draft.registry_auth_id:
            await self.cloud.check_registry_auth(draft.registry_auth_id)

    async def _named(self, name: str) -> Template | None:
        listed = await self.cloud.list_templates()
        return next((it for it in listed if it.name == name and it.channel != OFFICIAL), None)


def _check_own(template: Template) -> None:
    if template.channel == OFFICIAL:
        raise Conflict(
            "this template belongs to Novita and cannot be changed; make one of your own",
            code="TEMPLATE_NOT_YOURS",
        )
