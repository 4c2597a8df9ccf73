"""A directory without endpoints, for worlds in which nobody but the instances' own receivers listens."""

from __future__ import annotations

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import NotFound
from gpuherd.domain.webhooks.webhook_endpoint import WebhookEndpoint


class NoEndpoints:
    """The port `WebhookEndpoints` of an installation that has none."""

    async def list_all(self) -> tuple[WebhookEndpoint, ...]:
        return ()

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        raise NotFound("there are no endpoints here", code="WEBHOOK_ENDPOINT_NOT_FOUND")

    async def add(self, endpoint: WebhookEndpoint, audit_record: AuditRecord | None = None) -> None:
        raise NotImplementedError

    async def change(
        self, before: WebhookEndpoint, after: WebhookEndpoint, audit_record: AuditRecord | None = None
    ) -> None:
        raise NotImplementedError

    async def remove(self, endpoint_id: str, audit_record: AuditRecord | None = None) -> None:
        raise NotImplementedError
