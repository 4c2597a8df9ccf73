"""The endpoints by heart: a change must know whom to tell without asking the database first."""

from __future__ import annotations

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhook_endpoint import WebhookEndpoint
from gpuherd.domain.webhook_keys import KeyRing
from gpuherd.ports.webhooks import WebhookEndpoints

log = structlog.get_logger()


class EndpointDirectory:
    """Knows the endpoints as they were at the last refresh: at once after a change here, soon after one of
    another replica."""

    def __init__(self, endpoints: WebhookEndpoints, keys: KeyRing, clock: Clock):
        self._endpoints = endpoints
        self._keys = keys
        self._clock = clock
        self._known: tuple[WebhookEndpoint, ...] = ()

    def current(self) -> tuple[WebhookEndpoint, ...]:
        """Return the endpoints without a wait."""
        return self._known

    async def refresh(self) -> None:
        """Learn them anew; what was known stays known while the store is away."""
        self._known = await self._endpoints.everyone()

    async def find(self, endpoint_id: str) -> WebhookEndpoint | None:
        """Return one as it is now, or None if it was removed."""
        try:
            return await self._endpoints.get(endpoint_id)
        except NotFound:
            return None

    def secrets(self, endpoint: WebhookEndpoint) -> tuple[Secret, ...]:
        """Return what signs for it now; none if the root key is lost."""
        return self._keys.signing(endpoint, self._clock.now())

    async def disable(self, endpoint: WebhookEndpoint, reason: str) -> None:
        """Send nothing more there until somebody enables it. Quiet if it was changed or removed meanwhile."""
        try:
            await self._endpoints.change(endpoint, endpoint.disabled(reason, self._clock.now()))
        except (NotFound, StaleWrite):
            return
        log.warning("webhook.endpoint_disabled", endpoint_id=endpoint.id, reason=reason)
        await self.refresh()
