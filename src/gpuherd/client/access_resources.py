"""The API of access: keys, secrets, webhooks, the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gpuherd.client.client_connection import AsyncPaged, Connection, Items, decode, without_none
from gpuherd.client.client_errors import SecretLost
from gpuherd.client.client_transport import Json, Request, get, path_segment
from gpuherd.client.instance_resources import PAGE_SIZE, AsyncResource, InstanceRef, id_or_name
from gpuherd.client.wish import Usd
from gpuherd.contract.access_models import (
    ApiKey,
    AuditEntry,
    OwnKey,
    SecretName,
    SecretRemoved,
    SecretsRotated,
)
from gpuherd.contract.webhook_models import (
    Delivery,
    KeyWebhookSecret,
    WebhookEndpoint,
    WebhookEndpointRemoved,
    WebhookTest,
)
from gpuherd.domain.secret import Secret

Scope = Literal["read", "write", "admin"]

# The receiver has 15 s to answer a test.
WEBHOOK_TEST_TIMEOUT_S = 40.0
# The only kind of endpoint with a secret.
SIGNED_KIND = "webhook"


@dataclass(frozen=True)
class NewKey:
    """A new API key. The server shows `secret.reveal()`, the key itself, only once."""

    key: ApiKey
    secret: Secret
    # Signs the webhooks of its instances. None if the server is too old to have one.
    webhook_secret: Secret | None = None


@dataclass(frozen=True)
class WebhookSecret:
    """What signs the webhooks of a key. `secret` is None unless this key may see it."""

    key: KeyWebhookSecret
    secret: Secret | None


@dataclass(frozen=True)
class NewSecret:
    """An endpoint with its new secret, which the server shows only once.

    The secret is empty, and so false, for every kind but a webhook: nothing else is signed.
    """

    endpoint: WebhookEndpoint
    secret: Secret


class AsyncKeys(AsyncResource):
    """`herd.keys`: for admins, but for `own` and the webhook secret."""

    async def list(self) -> Items[ApiKey]:
        """Return all keys, oldest first, revoked ones too."""
        return await self._connection.items(ApiKey, "keys", "/api/keys")

    async def create(
        self,
        scopes: Sequence[Scope],
        *,
        label: str | None = None,
        expires_at: datetime | None = None,
        requests_per_minute: int | None = None,
        max_gpus: int | None = None,
        max_hourly_usd: Usd | None = None,
        max_lease_s: int | None = None,
    ) -> NewKey:
        """Make a key. Only this reply contains it."""
        limits = {
            "requestsPerMinute": requests_per_minute,
            "maxGpus": max_gpus,
            "maxHourlyUsd": None if max_hourly_usd is None else str(max_hourly_usd),
            "maxLeaseSeconds": max_lease_s,
        }
        body = {
            "scopes": [*scopes],
            "label": label,
            "expiresAt": _aware_text(expires_at),
            "limits": without_none(limits) or None,
        }
        reply = await self._connection.call(self._connection.request("POST", "/api/keys", without_none(body)))
        key, secret = _split_secret(reply, "key", "key")
        webhook_secret = key.pop("webhookSecret", None)
        return NewKey(decode(ApiKey, key), secret, Secret(webhook_secret) if webhook_secret else None)

    async def webhook_secret(self, key_id: str = "me") -> WebhookSecret:
        """Return what signs the webhooks of a key. The secret is shown for the own key only."""
        path = f"{_key_path(key_id)}/webhook-secret"
        return _webhook_secret(await self._connection.call(get(path)))

    async def rotate_webhook_secret(self, key_id: str = "me") -> WebhookSecret:
        """Give a key a new webhook secret. The old one signs too for a day."""
        path = f"{_key_path(key_id)}/webhook-secret/rotate"
        return _webhook_secret(await self._connection.call(self._connection.request("POST", path)))

    async def own(self) -> OwnKey:
        """Return what this key may do, and whether a strict budget covers it. For any key."""
        return await self._connection.get(OwnKey, "/api/keys/self")

    async def get(self, key_id: str) -> ApiKey:
        """Return one key without its secret."""
        return await self._connection.get(ApiKey, _key_path(key_id))

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key at once."""
        return await self._connection.change(ApiKey, "DELETE", _key_path(key_id))


class AsyncSecrets(AsyncResource):
    """`herd.secrets`: named secrets for `envs`: `{"HF_TOKEN": {"secret": "hf"}}`."""

    async def list(self) -> Items[SecretName]:
        """Return the secrets that this key may use, by name and without values."""
        return await self._connection.items(SecretName, "secrets", "/api/secrets")

    async def get(self, name: str) -> SecretName:
        """Return one secret without its value."""
        return await self._connection.get(SecretName, _secret_path(name))

    async def set(self, name: str, value: Secret | str, *, shared: bool = False) -> SecretName:
        """Store a value under a name, in place of an older one.

        With `shared` every key may use it. Only an admin may set a shared secret.
        """
        body: Json = {"value": value.reveal() if isinstance(value, Secret) else value} | (
            {"shared": True} if shared else {}
        )
        return await self._connection.change(SecretName, "PUT", _secret_path(name), body)

    async def remove(self, name: str, *, shared: bool = False) -> SecretRemoved:
        """Remove a secret of this key, or a shared one."""
        query = (("shared", "true"),) if shared else ()
        key = self._connection.new_key()
        request = Request("DELETE", _secret_path(name), query, idempotency_key=key)
        return decode(SecretRemoved, await self._connection.call(request))

    async def rotate(self) -> SecretsRotated:
        """Let the server's newest key encrypt all secrets again; for admins."""
        return await self._connection.change(SecretsRotated, "POST", "/api/secrets/rotate")


class AsyncAudit(AsyncResource):
    """`herd.audit`: for admins."""

    def list(
        self, *, order: Literal["asc", "desc"] | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncPaged[AuditEntry]:
        """Iterate over the audit log, newest first; with `order="asc"` oldest first."""
        return self._connection.pages(AuditEntry, "entries", "/api/audit", order=order, limit=page_size)


class AsyncEndpoints(AsyncResource):
    """`herd.webhooks.endpoints`: for admins."""

    async def list(self) -> Items[WebhookEndpoint]:
        """Return all endpoints, oldest first."""
        return await self._connection.items(WebhookEndpoint, "endpoints", "/api/webhooks/endpoints")

    async def add(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        label: str | None = None,
        kind: Literal["webhook", "slack", "discord", "ntfy", "email"] | None = None,
    ) -> NewSecret:
        """Make an endpoint. Only this reply contains its secret.

        `kind` is the format of the events. Only a webhook is signed and has a secret.
        """
        body = {"url": url, "kind": kind, "label": label, "events": None if events is None else [*events]}
        return await self._new_secret("/api/webhooks/endpoints", without_none(body))

    async def get(self, endpoint: str | WebhookEndpoint) -> WebhookEndpoint:
        """Return one endpoint."""
        return await self._connection.get(WebhookEndpoint, _endpoint_path(endpoint))

    async def rotate(self, endpoint: str | WebhookEndpoint) -> NewSecret:
        """Give an endpoint a new secret. The old one signs too for a day."""
        return await self._new_secret(f"{_endpoint_path(endpoint)}/rotate")

    async def enable(self, endpoint: str | WebhookEndpoint) -> WebhookEndpoint:
        """Enable an endpoint again."""
        return await self._connection.change(WebhookEndpoint, "POST", f"{_endpoint_path(endpoint)}/enable")

    async def remove(self, endpoint: str | WebhookEndpoint) -> WebhookEndpointRemoved:
        """Remove an endpoint. Its pending deliveries become dead letters."""
        return await self._connection.change(WebhookEndpointRemoved, "DELETE", _endpoint_path(endpoint))

    async def _new_secret(self, path: str, body: Json | None = None) -> NewSecret:
        reply = await self._connection.call(self._connection.request("POST", path, body))
        if decode(WebhookEndpoint, reply).kind != SIGNED_KIND:
            return NewSecret(decode(WebhookEndpoint, _without_secret(reply)), Secret(""))
        endpoint, secret = _split_secret(reply, "secret", "webhook endpoint")
        return NewSecret(decode(WebhookEndpoint, endpoint), secret)


class AsyncDeliveries(AsyncResource):
    """`herd.webhooks.deliveries`."""

    def list(
        self,
        *,
        state: Literal["pending", "delivered", "dead", "failed"] | None = None,
        instance: InstanceRef | None = None,
        endpoint: str | None = None,
        type: str | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncPaged[Delivery]:
        """Iterate over the deliveries, newest first. `instance` must be an id or an `Instance`."""
        return self._connection.pages(
            Delivery,
            "deliveries",
            "/api/webhooks/deliveries",
            state=state,
            instanceId=None if instance is None else id_or_name(instance),
            endpointId=endpoint,
            type=type,
            limit=page_size,
        )

    async def get(self, delivery: str | Delivery) -> Delivery:
        """Return one delivery with its tries and its payload."""
        return await self._connection.get(Delivery, _delivery_path(delivery))

    async def replay(self, delivery: str | Delivery) -> Delivery:
        """Send a delivery again: same id, same bytes, new signature."""
        return await self._connection.change(Delivery, "POST", f"{_delivery_path(delivery)}/replay")


class AsyncWebhooks(AsyncResource):
    """`herd.webhooks`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.endpoints = AsyncEndpoints(connection)
        self.deliveries = AsyncDeliveries(connection)

    async def replay(
        self,
        since: datetime,
        *,
        state: Literal["failed", "dead"] | None = None,
        endpoint: str | None = None,
    ) -> int:
        """Send all failed deliveries since a moment again. Return their number."""
        body = without_none({"since": _aware_text(since), "state": state, "endpointId": endpoint})
        reply = await self._connection.call(self._connection.request("POST", "/api/webhooks/replay", body))
        return int(reply.get("count", 0))

    async def test(self, url: str | None = None, *, endpoint: str | None = None) -> WebhookTest:
        """Send a signed `webhook.test` now, and return the result."""
        request = Request(
            "POST",
            "/api/webhooks/test",
            body=without_none({"url": url, "endpointId": endpoint}),
            idempotency_key=self._connection.new_key(),
            timeout_s=max(self._connection.timeout_s, WEBHOOK_TEST_TIMEOUT_S),
        )
        return decode(WebhookTest, await self._connection.call(request))


def _aware_text(moment: datetime | None) -> str | None:
    if moment is not None and moment.tzinfo is None:
        raise ValueError("a time without a zone could mean any hour; give an aware datetime")
    return None if moment is None else moment.isoformat()


def _key_path(key_id: str) -> str:
    return f"/api/keys/{path_segment(key_id)}"


def _secret_path(name: str) -> str:
    return f"/api/secrets/{path_segment(name)}"


def _endpoint_path(endpoint: str | WebhookEndpoint) -> str:
    endpoint_id = endpoint if isinstance(endpoint, str) else endpoint.id
    return f"/api/webhooks/endpoints/{path_segment(endpoint_id)}"


def _delivery_path(delivery: str | Delivery) -> str:
    delivery_id = delivery if isinstance(delivery, str) else delivery.id
    return f"/api/webhooks/deliveries/{path_segment(delivery_id)}"


def _without_secret(reply: Json) -> Json:
    """Return a reply without its secret, so that no `raw` holds it."""
    return {name: value for name, value in reply.items() if name != "secret"}


def _split_secret(reply: Json, name: str, what: str) -> tuple[Json, Secret]:
    """Return a reply without its secret, and the secret."""
    rest = {field: value for field, value in reply.items() if field != name}
    secret = reply.get(name)
    if not isinstance(secret, str) or not secret:
        # The reply to a repeated request: the first one was lost.
        raise SecretLost(what, str(reply.get("id")))
    return rest, Secret(secret)


def _webhook_secret(reply: Json) -> WebhookSecret:
    secret = reply.get("secret")
    return WebhookSecret(decode(KeyWebhookSecret, _without_secret(reply)), Secret(secret) if secret else None)
