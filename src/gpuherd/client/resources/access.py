"""Who may come in and who is told: keys, webhook endpoints, deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from gpuherd.client.effects import Effects
from gpuherd.client.errors import SecretLost
from gpuherd.client.methods import Resource, api_method, paginated
from gpuherd.client.models.access import (
    ApiKey,
    AuditEntry,
    Delivery,
    KeyWebhookSecret,
    NewKey,
    NewSecret,
    OwnKey,
    SecretName,
    SecretRemoved,
    SecretsRotated,
    WebhookEndpoint,
    WebhookEndpointRemoved,
    WebhookSecret,
    WebhookTest,
)
from gpuherd.client.paging import Items, PageReader, items_of
from gpuherd.client.resources.instances import PAGE, Ref, word_of
from gpuherd.client.transport.wire import Json, Request, get, path_segment
from gpuherd.client.wish import Usd
from gpuherd.domain.access.secret import Secret

Scope = Literal["read", "write", "admin"]
# The receiver has 15 s to answer a test.
TEST_TIMEOUT_S = 40.0
# The only kind of endpoint that has a secret.
SIGNED_KIND = "webhook"


class KeyMethods(Resource):
    """`herd.keys`: for admins, but for `own` and the webhook secret."""

    @api_method
    def list(self) -> Effects[Items[ApiKey]]:
        """Return all keys, oldest first, revoked ones too."""
        return items_of((yield from self._caller.call(get("/api/keys"))), "keys", ApiKey.of)

    @api_method
    def create(
        self,
        scopes: Sequence[Scope],
        *,
        label: str | None = None,
        expires_at: datetime | None = None,
        requests_per_minute: int | None = None,
        max_gpus: int | None = None,
        max_hourly_usd: Usd | None = None,
        max_lease_s: int | None = None,
    ) -> Effects[NewKey]:
        """Make a key. It is in what this returns, and nowhere else."""
        limits = {
            "requestsPerMinute": requests_per_minute,
            "maxGpus": max_gpus,
            "maxHourlyUsd": None if max_hourly_usd is None else str(max_hourly_usd),
            "maxLeaseSeconds": max_lease_s,
        }
        body: Json = {
            "scopes": [*scopes],
            "label": label,
            "expiresAt": _iso(expires_at),
            "limits": _without_none(limits) or None,
        }
        answer = yield from self._caller.change("POST", "/api/keys", _without_none(body))
        key, secret = _split_secret(answer, "key", "key")
        webhook_secret = key.pop("webhookSecret", None)
        return NewKey(ApiKey.of(key), secret, Secret(webhook_secret) if webhook_secret else None)

    @api_method
    def webhook_secret(self, key_id: str = "me") -> Effects[WebhookSecret]:
        """Return what signs the webhooks of a key. Any key may ask about itself; only then it is shown."""
        path = f"/api/keys/{path_segment(key_id)}/webhook-secret"
        return _webhook_secret((yield from self._caller.call(get(path))))

    @api_method
    def rotate_webhook_secret(self, key_id: str = "me") -> Effects[WebhookSecret]:
        """Give a key a new webhook secret; for a day the old one signs too."""
        path = f"/api/keys/{path_segment(key_id)}/webhook-secret/rotate"
        return _webhook_secret((yield from self._caller.change("POST", path)))

    @api_method
    def own(self) -> Effects[OwnKey]:
        """Return what this key may, and whether a strict budget covers what it rents. For any key."""
        return OwnKey.of((yield from self._caller.call(get("/api/keys/self"))))

    @api_method
    def get(self, key_id: str) -> Effects[ApiKey]:
        """Return one key, without what would let anybody in."""
        return ApiKey.of((yield from self._caller.call(get(f"/api/keys/{path_segment(key_id)}"))))

    @api_method
    def revoke(self, key_id: str) -> Effects[ApiKey]:
        """Make a key invalid, at once."""
        return ApiKey.of((yield from self._caller.change("DELETE", f"/api/keys/{path_segment(key_id)}")))


class SecretMethods(Resource):
    """`herd.secrets`: those that your key may use; name one in `envs`: `{"HF_TOKEN": {"secret": "hf"}}`."""

    @api_method
    def list(self) -> Effects[Items[SecretName]]:
        """Return the secrets by name, without their values."""
        return items_of((yield from self._caller.call(get("/api/secrets"))), "secrets", SecretName.of)

    @api_method
    def get(self, name: str) -> Effects[SecretName]:
        """Return what is known of one, which is not its value."""
        return SecretName.of((yield from self._caller.call(get(_secret_path(name)))))

    @api_method
    def set(self, name: str, value: Secret | str, *, shared: bool = False) -> Effects[SecretName]:
        """Keep a value under a name, in place of the one that was there.

        With `shared` every key may use it; only an admin may set such a one.
        """
        body: Json = {"value": value.reveal() if isinstance(value, Secret) else value}
        if shared:
            body["shared"] = True
        return SecretName.of((yield from self._caller.change("PUT", _secret_path(name), body)))

    @api_method
    def remove(self, name: str, *, shared: bool = False) -> Effects[SecretRemoved]:
        """Forget a secret of your key, or one of all."""
        query = (("shared", "true"),) if shared else ()
        asked = Request("DELETE", _secret_path(name), query, idempotency_key=self._caller.new_key())
        return SecretRemoved.of((yield from self._caller.call(asked)))

    @api_method
    def rotate(self) -> Effects[SecretsRotated]:
        """Have the server's newest key seal all secrets again; for admins."""
        return SecretsRotated.of((yield from self._caller.change("POST", "/api/secrets/rotate")))


def _secret_path(name: str) -> str:
    return f"/api/secrets/{path_segment(name)}"


class EndpointMethods(Resource):
    """`herd.webhooks.endpoints`: for admins."""

    @api_method
    def list(self) -> Effects[Items[WebhookEndpoint]]:
        """Return all endpoints, oldest first."""
        answer = yield from self._caller.call(get("/api/webhooks/endpoints"))
        return items_of(answer, "endpoints", WebhookEndpoint.of)

    @api_method
    def add(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        label: str | None = None,
        kind: Literal["webhook", "slack", "discord", "ntfy", "email"] | None = None,
    ) -> Effects[NewSecret]:
        """Make an endpoint. Its secret is in what this returns, and nowhere else.

        `kind` says how events are written; only a webhook is signed, and has a secret.
        """
        said = {"url": url, "kind": kind, "label": label}
        body = _without_none({**said, "events": None if events is None else [*events]})
        return _new_secret((yield from self._caller.change("POST", "/api/webhooks/endpoints", body)))

    @api_method
    def get(self, endpoint: str | WebhookEndpoint) -> Effects[WebhookEndpoint]:
        """Return one endpoint."""
        return WebhookEndpoint.of((yield from self._caller.call(get(_endpoint(endpoint)))))

    @api_method
    def rotate(self, endpoint: str | WebhookEndpoint) -> Effects[NewSecret]:
        """Give it a new secret; for a day the old one signs too."""
        return _new_secret((yield from self._caller.change("POST", f"{_endpoint(endpoint)}/rotate")))

    @api_method
    def enable(self, endpoint: str | WebhookEndpoint) -> Effects[WebhookEndpoint]:
        """Switch it on again."""
        path = f"{_endpoint(endpoint)}/enable"
        return WebhookEndpoint.of((yield from self._caller.change("POST", path)))

    @api_method
    def remove(self, endpoint: str | WebhookEndpoint) -> Effects[WebhookEndpointRemoved]:
        """Remove it; what is still on its way there becomes a dead letter."""
        return WebhookEndpointRemoved.of((yield from self._caller.change("DELETE", _endpoint(endpoint))))


class DeliveryMethods(Resource):
    """`herd.webhooks.deliveries`."""

    @paginated
    def list(
        self,
        *,
        state: Literal["pending", "delivered", "dead", "failed"] | None = None,
        instance: Ref | None = None,
        endpoint: str | None = None,
        type: str | None = None,
        page_size: int = PAGE,
    ) -> PageReader[Delivery]:
        """Go through the deliveries, newest first; `instance` must be an id or an `Instance`."""
        query = get(
            "/api/webhooks/deliveries",
            state=state,
            instanceId=None if instance is None else word_of(instance),
            endpointId=endpoint,
            type=type,
            limit=page_size,
        )
        return PageReader(query, "deliveries", Delivery.of)

    @api_method
    def get(self, delivery: str | Delivery) -> Effects[Delivery]:
        """Return one, with its tries and what it says."""
        return Delivery.of((yield from self._caller.call(get(_delivery(delivery)))))

    @api_method
    def replay(self, delivery: str | Delivery) -> Effects[Delivery]:
        """Send it again: the same id and bytes, a new signature."""
        return Delivery.of((yield from self._caller.change("POST", f"{_delivery(delivery)}/replay")))


class WebhookMethods(Resource):
    """`herd.webhooks`."""

    @api_method
    def replay(
        self,
        since: datetime,
        *,
        state: Literal["failed", "dead"] | None = None,
        endpoint: str | None = None,
    ) -> Effects[int]:
        """Send everything again that was made since then and failed; return how many that are."""
        body = _without_none({"since": _iso(since), "state": state, "endpointId": endpoint})
        answer = yield from self._caller.change("POST", "/api/webhooks/replay", body)
        return int(answer.get("count", 0))

    @api_method
    def test(self, url: str | None = None, *, endpoint: str | None = None) -> Effects[WebhookTest]:
        """Send a signed `webhook.test` now, and return how it went."""
        body = _without_none({"url": url, "endpointId": endpoint})
        timeout_s = max(self._caller.timeout_s, TEST_TIMEOUT_S)
        return WebhookTest.of((yield from self._caller.change("POST", "/api/webhooks/test", body, timeout_s)))


class AuditMethods(Resource):
    """`herd.audit`: for admins."""

    @paginated
    def list(
        self, *, order: Literal["asc", "desc"] | None = None, page_size: int = PAGE
    ) -> PageReader[AuditEntry]:
        """Go through who did what, newest first; with `order="asc"` oldest first."""
        return PageReader(get("/api/audit", order=order, limit=page_size), "entries", AuditEntry.of)


def _endpoint(endpoint: str | WebhookEndpoint) -> str:
    word = endpoint if isinstance(endpoint, str) else endpoint.id
    return f"/api/webhooks/endpoints/{path_segment(word)}"


def _delivery(delivery: str | Delivery) -> str:
    return f"/api/webhooks/deliveries/{path_segment(delivery if isinstance(delivery, str) else delivery.id)}"


def _new_secret(answer: Json) -> NewSecret:
    if WebhookEndpoint.of(answer).kind != SIGNED_KIND:
        unsigned = {name: value for name, value in answer.items() if name != "secret"}
        return NewSecret(WebhookEndpoint.of(unsigned), Secret(""))
    endpoint, secret = _split_secret(answer, "secret", "webhook endpoint")
    return NewSecret(WebhookEndpoint.of(endpoint), secret)


def _split_secret(answer: Json, name: str, what: str) -> tuple[Json, Secret]:
    """Return an answer without its secret, so that no `raw` holds it, and the secret."""
    rest = {field: value for field, value in answer.items() if field != name}
    secret = answer.get(name)
    if not isinstance(secret, str) or not secret:
        # The answer to a repeated request: the first one was lost.
        raise SecretLost(what, str(answer.get("id")))
    return rest, Secret(secret)


def _webhook_secret(answer: Json) -> WebhookSecret:
    rest = {name: value for name, value in answer.items() if name != "secret"}
    secret = answer.get("secret")
    return WebhookSecret(KeyWebhookSecret.of(rest), Secret(secret) if secret else None)


def _iso(moment: datetime | None) -> str | None:
    if moment is not None and moment.tzinfo is None:
        raise ValueError("a time without a zone could mean any hour; give an aware datetime")
    return None if moment is None else moment.isoformat()


def _without_none(body: Json) -> Json:
    return {name: value for name, value in body.items() if value is not None}
