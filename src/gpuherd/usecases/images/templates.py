"""Manage the account's own templates: one more, another image or command in one, one less."""

from __future__ import annotations

from dataclasses import dataclass, fields

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.catalogue import TemplateRemoved
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.images import TemplateDraft
from gpuherd.domain.cloud.offer import Template
from gpuherd.domain.errors import Conflict, NotFound, OutcomeUnknown
from gpuherd.ports.access import AuditLog
from gpuherd.ports.cloud import Cloud, TemplateEditor
from gpuherd.usecases.cloud.catalogue import CatalogueCache

log = structlog.get_logger()

# Of the channels that Novita has: what it offers to everybody.
OFFICIAL = "official"
CREATED, CHANGED, DELETED = "template.create", "template.change", "template.delete"


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
            caller.audit_record(CREATED, draft.name, self.clock.now(), after=draft.image or "")
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
            caller.audit_record(DELETED, template_id, self.clock.now(), f"{known.name}, {known.image}")
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
