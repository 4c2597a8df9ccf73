"""Manage endpoints: who hears of everything, with which secret, and from when on no more."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock, Ids
from gpuherd.domain.audit import Deed
from gpuherd.domain.caller import HOUSE, Caller
from gpuherd.domain.errors import Conflict
from gpuherd.domain.redaction import without_query
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhook_endpoint import ID_PREFIX, WebhookEndpoint
from gpuherd.domain.webhook_keys import KeyRing
from gpuherd.ports.webhooks import WebhookEndpoints
from gpuherd.usecases.endpoint_directory import EndpointDirectory

log = structlog.get_logger()

# Each of them is a row and a job for every event, written in the event's own transaction.
ENDPOINTS_MAX = 20


@dataclass(frozen=True)
class Keyed:
    """An endpoint with its secret, which is shown at this moment and never again."""

    endpoint: WebhookEndpoint
    secret: Secret


@dataclass(frozen=True)
class ManageEndpoints:
    """Each change is known in this process before it is answered."""

    endpoints: WebhookEndpoints
    directory: EndpointDirectory
    keys: KeyRing
    clock: Clock
    ids: Ids

    async def add(
        self, url: str, events: tuple[str, ...] = (), label: str = "", *, caller: Caller = HOUSE
    ) -> Keyed:
        """Make an endpoint; it hears of what happens from now on."""
        if len(await self.endpoints.everyone()) >= ENDPOINTS_MAX:
            raise Conflict(
                f"there are {ENDPOINTS_MAX} endpoints already; remove one first",
                code="TOO_MANY_WEBHOOK_ENDPOINTS",
            )
        endpoint = WebhookEndpoint(
            id=self.ids.new(ID_PREFIX),
            url=url,
            created_at=self.clock.now(),
            root=self.keys.newest,
            events=events,
            label=label,
        )
        deed = self._deed(caller, "create", endpoint.id, after=without_query(url))
        await self.endpoints.add(endpoint, deed)
        await self.directory.refresh()
        log.info("webhook.endpoint_added", endpoint_id=endpoint.id)
        return Keyed(endpoint, self.keys.secret(endpoint))

    async def everyone(self) -> tuple[WebhookEndpoint, ...]:
        """Return all, oldest first."""
        return await self.endpoints.everyone()

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        """Return one; `NotFound` if there is none."""
        return await self.endpoints.get(endpoint_id)

    async def remove(self, endpoint_id: str, *, caller: Caller = HOUSE) -> None:
        """Forget an endpoint; what is still on its way there becomes a dead letter."""
        await self.endpoints.remove(endpoint_id, self._deed(caller, "remove", endpoint_id))
        await self.directory.refresh()
        log.info("webhook.endpoint_removed", endpoint_id=endpoint_id)

    async def rotate(self, endpoint_id: str, *, caller: Caller = HOUSE) -> Keyed:
        """Give an endpoint a new secret; for a day the one before it signs too."""
        before = await self.endpoints.get(endpoint_id)
        after = before.rotated(self.keys.newest, self.clock.now())
        generations = (str(before.generation), str(after.generation))
        await self._change(before, after, self._deed(caller, "rotate", endpoint_id, *generations))
        log.info("webhook.endpoint_rotated", endpoint_id=endpoint_id, generation=after.generation)
        return Keyed(after, self.keys.secret(after))

    async def enable(self, endpoint_id: str, *, caller: Caller = HOUSE) -> WebhookEndpoint:
        """Switch an endpoint on again."""
        before = await self.endpoints.get(endpoint_id)
        deed = self._deed(caller, "enable", endpoint_id, before.disabled_reason)
        await self._change(before, before.enabled(), deed)
        return before.enabled()

    def _deed(self, caller: Caller, what: str, endpoint_id: str, before: str = "", after: str = "") -> Deed:
        return caller.does(f"webhook_endpoint.{what}", endpoint_id, self.clock.now(), before, after)

    async def _change(self, before: WebhookEndpoint, after: WebhookEndpoint, deed: Deed) -> None:
        await self.endpoints.change(before, after, deed)
        await self.directory.refresh()

    def knows_secret(self, endpoint: WebhookEndpoint) -> bool:
        """Tell whether its secret can still be derived; if not, only a rotation helps."""
        return self.keys.knows(endpoint)
