"""Webhook endpoints.

A cache of them for the event recorder, and their management (add, rotate, enable, remove).
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.access.caller import SYSTEM_CALLER, Caller
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.errors import Conflict, NotFound, StaleWrite
from gpuherd.domain.notifications.kind import EndpointKind, default_events
from gpuherd.domain.webhooks.endpoint import ID_PREFIX, EndpointWithSecret, WebhookEndpoint
from gpuherd.domain.webhooks.key_ring import KeyRing
from gpuherd.ports.webhooks import Notifier, WebhookEndpoints

log = structlog.get_logger()


class EndpointCache:
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
        self._known = await self._endpoints.list_all()

    async def find(self, endpoint_id: str) -> WebhookEndpoint | None:
        """Return one as it is now, or None if it was removed."""
        try:
            return await self._endpoints.get(endpoint_id)
        except NotFound:
            return None

    def secrets(self, endpoint: WebhookEndpoint) -> tuple[Secret, ...]:
        """Return what signs for it now; none if the root key is lost."""
        return self._keys.signing_secrets(endpoint, self._clock.now())

    async def disable(self, endpoint: WebhookEndpoint, reason: str) -> None:
        """Send nothing more there until somebody enables it. Quiet if it was changed or removed meanwhile."""
        try:
            await self._endpoints.change(endpoint, endpoint.disabled(reason, self._clock.now()))
        except (NotFound, StaleWrite):
            return
        log.warning("webhook.endpoint_disabled", endpoint_id=endpoint.id, reason=reason)
        await self.refresh()


log = structlog.get_logger()

# Each of them is a row and a job for every event, written in the event's own transaction.
ENDPOINTS_MAX = 20


@dataclass(frozen=True)
class ManageEndpoints:
    """Each change is known in this process before it is answered."""

    endpoints: WebhookEndpoints
    endpoint_cache: EndpointCache
    keys: KeyRing
    notifier: Notifier
    clock: Clock
    ids: Ids

    async def add(
        self,
        url: str,
        events: tuple[str, ...] = (),
        label: str = "",
        *,
        kind: EndpointKind = EndpointKind.WEBHOOK,
        caller: Caller = SYSTEM_CALLER,
    ) -> EndpointWithSecret:
        """Make an endpoint; it hears of what happens from now on."""
        if kind is EndpointKind.EMAIL and not self.notifier.sends_mail:
            raise Conflict(
                "this server has no mail server to send by; its operator sets GPUHERD_SMTP_URL and "
                "GPUHERD_SMTP_FROM, and restarts it",
                code="EMAIL_NOT_CONFIGURED",
            )
        if len(await self.endpoints.list_all()) >= ENDPOINTS_MAX:
            raise Conflict(
                f"there are {ENDPOINTS_MAX} endpoints already; remove one first",
                code="TOO_MANY_WEBHOOK_ENDPOINTS",
            )
        endpoint = WebhookEndpoint(
            id=self.ids.new(ID_PREFIX),
            url=url,
            created_at=self.clock.now(),
            root=self.keys.newest,
            events=events or default_events(kind),
            label=label,
            nonce=self.ids.secret_nonce(),
            kind=kind,
        )
        audit_record = self._audit_record(caller, "create", endpoint.id, after=endpoint.shown_url)
        await self.endpoints.add(endpoint, audit_record)
        await self.endpoint_cache.refresh()
        log.info("webhook.endpoint_added", endpoint_id=endpoint.id, kind=kind.value)
        return EndpointWithSecret(endpoint, self.keys.secret(endpoint) if kind.is_signed else Secret(""))

    async def list_all(self) -> tuple[WebhookEndpoint, ...]:
        """Return all, oldest first."""
        return await self.endpoints.list_all()

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        """Return one; `NotFound` if there is none."""
        return await self.endpoints.get(endpoint_id)

    async def remove(self, endpoint_id: str, *, caller: Caller = SYSTEM_CALLER) -> None:
        """Forget an endpoint; what is still on its way there becomes a dead letter."""
        await self.endpoints.remove(endpoint_id, self._audit_record(caller, "remove", endpoint_id))
        await self.endpoint_cache.refresh()
        log.info("webhook.endpoint_removed", endpoint_id=endpoint_id)

    async def rotate(self, endpoint_id: str, *, caller: Caller = SYSTEM_CALLER) -> EndpointWithSecret:
        """Give an endpoint a new secret; for a day the one before it signs too."""
        before = await self.endpoints.get(endpoint_id)
        if not before.kind.is_signed:
            raise Conflict(
                f"nothing is signed for an endpoint of the kind {before.kind}, so it has no secret; "
                "to change its address, add it anew and remove this one",
                code="ENDPOINT_NOT_SIGNED",
            )
        after = before.rotated(self.keys.newest, self.ids.secret_nonce(), self.clock.now())
        generations = (str(before.generation), str(after.generation))
        await self._change(before, after, self._audit_record(caller, "rotate", endpoint_id, *generations))
        log.info("webhook.endpoint_rotated", endpoint_id=endpoint_id, generation=after.generation)
        return EndpointWithSecret(after, self.keys.secret(after))

    async def enable(self, endpoint_id: str, *, caller: Caller = SYSTEM_CALLER) -> WebhookEndpoint:
        """Switch an endpoint on again."""
        before = await self.endpoints.get(endpoint_id)
        audit_record = self._audit_record(caller, "enable", endpoint_id, before.disabled_reason)
        await self._change(before, before.enabled(), audit_record)
        return before.enabled()

    def _audit_record(
        self, caller: Caller, what: str, endpoint_id: str, before: str = "", after: str = ""
    ) -> AuditRecord:
        return caller.audit_record(f"webhook_endpoint.{what}", endpoint_id, self.clock.now(), before, after)

    async def _change(
        self, before: WebhookEndpoint, after: WebhookEndpoint, audit_record: AuditRecord
    ) -> None:
        await self.endpoints.change(before, after, audit_record)
        await self.endpoint_cache.refresh()

    def knows_secret(self, endpoint: WebhookEndpoint) -> bool:
        """Tell whether its secret can still be derived; if not, only a rotation helps."""
        return self.keys.knows(endpoint) or not endpoint.kind.is_signed
