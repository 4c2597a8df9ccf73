"""Sends one test event right away, and says how it went."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock, Ids
from gpuherd.contract.webhook import TestEventBody, TestEventData
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance.events import WEBHOOK_TEST
from gpuherd.domain.webhooks.delivery import DELIVERY_ID_PREFIX
from gpuherd.ports.webhooks import WebhookEndpoints, WebhookSender, WebhookTestResult
from gpuherd.usecases.compact_json import compact
from gpuherd.usecases.webhooks.endpoints import EndpointCache


@dataclass(frozen=True)
class SendTestWebhook:
    """The event goes the same guarded way, with the same signature, as every other."""

    sender: WebhookSender
    endpoints: WebhookEndpoints
    endpoint_cache: EndpointCache
    clock: Clock
    ids: Ids

    async def url(self, url: str) -> WebhookTestResult:
        """Send one to an address that instances may bring along."""
        return await self._try(url, None, None)

    async def endpoint(self, endpoint_id: str) -> WebhookTestResult:
        """Send one to an endpoint, disabled or not; `NotFound` if there is none."""
        endpoint = await self.endpoints.get(endpoint_id)
        secrets = self.endpoint_cache.secrets(endpoint)
        if not secrets:
            raise Conflict(
                "the root key of this endpoint's secret is lost; rotate the secret first",
                code="WEBHOOK_SECRET_LOST",
            )
        return await self._try(endpoint.url, endpoint.id, secrets)

    async def _try(
        self, url: str, endpoint_id: str | None, secrets: tuple[Secret, ...] | None
    ) -> WebhookTestResult:
        now, event_id = self.clock.now(), self.ids.new(DELIVERY_ID_PREFIX)
        data = TestEventData(
            endpoint_id=endpoint_id, message="a test of gpuherd's webhooks; nothing happened"
        )
        body = compact(TestEventBody(type=WEBHOOK_TEST, timestamp=now, data=data))
        return WebhookTestResult(event_id, url, await self.sender.send(url, event_id, body, now, secrets))
