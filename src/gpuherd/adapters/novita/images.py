"""Novita's registry credentials and templates: made, changed and removed, each by one call."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gpuherd.adapters.novita import failures, wire
from gpuherd.adapters.novita.call_secrets import NO_SECRETS, CallSecrets
from gpuherd.adapters.novita.failures import ResourceKind
from gpuherd.adapters.novita.fields import parts, text
from gpuherd.adapters.novita.reply import NovitaReply
from gpuherd.adapters.novita.transport import NovitaTransport
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.cloud.images import (
    TEMPLATE_DISK_GB,
    CredentialOrder,
    RegistryCredential,
    TemplateDraft,
)
from gpuherd.resilience.rate_limit import Lane


class NovitaImages:
    """The ports `RegistryCredentials` and `TemplateEditor`."""

    def __init__(self, transport: NovitaTransport) -> None:
        self._transport = transport

    async def list_credentials(self) -> tuple[RegistryCredential, ...]:
        rows = wire.rows(await self._transport.read("/repository/auths", lane=Lane.BROWSE), "data")
        if rows is None:
            raise failures.unreadable()
        # The password of each comes along, in clear, and is not even looked at.
        found = [it for it in rows if isinstance(it, dict) and text(it, "id")]
        return tuple(
            RegistryCredential(text(it, "id"), text(it, "name"), text(it, "username")) for it in found
        )

    async def create_credential(self, order: CredentialOrder) -> None:
        body = {"name": order.name, "username": order.username, "password": order.password.reveal()}
        secrets = CallSecrets(credentials=(order.password,))
        await self._change("/repository/auth/save", body, ResourceKind.REGISTRY_AUTH, secrets)

    async def delete_credential(self, auth_id: str) -> None:
        await self._change("/repository/auth/delete", {"id": auth_id}, ResourceKind.REGISTRY_AUTH)

    async def create_template(self, draft: TemplateDraft) -> str:
        row = {"type": "instance", "channel": "private", "rootfsSize": TEMPLATE_DISK_GB, **_said(draft)}
        reply = await self._change(
            "/template/create", {"template": row}, ResourceKind.TEMPLATE, _secrets_of(row)
        )
        if template_id := text(reply.body or {}, "templateId"):
            return template_id
        raise failures.outcome_unknown(reply)

    async def change_template(self, template_id: str, draft: TemplateDraft) -> None:
        # An update says everything anew, also what we know nothing of.
        query = {"templateId": template_id}
        found = await self._transport.read("/template", query, about=ResourceKind.TEMPLATE, lane=Lane.BROWSE)
        row = found.get("template")
        if not isinstance(row, dict) or text(row, "Id") != template_id:
            raise failures.unreadable()
        row = {**row, **_said(draft)}
        await self._change("/template/update", {"template": row}, ResourceKind.TEMPLATE, _secrets_of(row))

    async def delete_template(self, template_id: str) -> None:
        await self._change("/template/delete", {"templateId": template_id}, ResourceKind.TEMPLATE)

    async def _change(
        self, path: str, body: dict[str, Any], about: ResourceKind, secrets: CallSecrets = NO_SECRETS
    ) -> NovitaReply:
        reply = await self._transport.change(path, body, secrets=secrets)
        error = failures.failure_of_change(reply, about)
        if error is not None:
            raise error
        return reply


def _said(draft: TemplateDraft) -> dict[str, Any]:
    """Return what a draft says, in Novita's words."""
    words: dict[str, Any] = {
        "name": draft.name,
        "image": draft.image,
        "imageAuth": draft.registry_auth_id,
        "startCommand": draft.command,
        "entrypoint": draft.entrypoint,
        "rootfsSize": draft.disk_gb,
        "minCudaVersion": draft.min_cuda_version,
        "ports": None if draft.ports is None else _ports(draft.ports),
        "envs": None if draft.envs is None else [{"key": key, "value": value} for key, value in draft.envs],
    }
    return {key: value for key, value in words.items() if value is not None}


def _ports(ports: tuple[tuple[int, str], ...]) -> list[dict[str, Any]]:
    by_type: defaultdict[str, list[int]] = defaultdict(list)
    for number, kind in ports:
        by_type[kind].append(number)
    return [{"type": kind, "ports": numbers} for kind, numbers in by_type.items()]


def _secrets_of(row: dict[str, Any]) -> CallSecrets:
    """Return what a template holds that nobody must read in an answer: people keep tokens in all of it."""
    commands = tuple(Secret(it) for key in ("startCommand", "entrypoint") if (it := text(row, key)))
    envs = [(text(it, "key"), text(it, "value")) for it in parts(row, "envs")]
    return CallSecrets(values=commands).with_envs(envs)
