"""Webhook endpoints, secrets of keys, test sends and replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Iterable,
    Iterator,
)
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import structlog
from pydantic_core import to_json

from gpuherd.contract.webhook_models import TestEventBody, TestEventData
from gpuherd.domain.api_key import (
    ADMIN_ID,
    SYSTEM_CALLER,
    ApiKey,
    Caller,
)
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import (
    Conflict,
    GpuherdError,
    NotFound,
    StaleWrite,
)
from gpuherd.domain.instance.instance_event import WEBHOOK_TEST
from gpuherd.domain.job import NewJob
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_delivery import DELIVERY_ID_PREFIX, Delivery
from gpuherd.domain.webhooks.webhook_endpoint import (
    ID_PREFIX,
    EndpointKind,
    EndpointWithSecret,
    KeyRing,
    WebhookEndpoint,
    default_events,
)
from gpuherd.domain.webhooks.webhook_signing import ShownKeySecret, SignedWith
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.webhook_port import (
    DeliveryFilter,
    DeliveryQuery,
    WebhookEndpoints,
    WebhookTestResult,
)
from gpuherd.usecases.services import Services

log = structlog.get_logger()


class EndpointCache:
    """The endpoints as of the last refresh. A change of this replica is known at once, a change of another
    replica soon."""

    def __init__(self, endpoints: WebhookEndpoints, keys: KeyRing, clock: Clock):
        self._endpoints = endpoints
        self._keys = keys
        self._clock = clock
        self._known: tuple[WebhookEndpoint, ...] = ()

    def current(self) -> tuple[WebhookEndpoint, ...]:
        """Return the endpoints without a wait."""
        return self._known

    async def refresh(self) -> None:
        """Read the endpoints again. While the store is away, the known endpoints stay known."""
        self._known = await self._endpoints.list_all()

    async def find(self, endpoint_id: str) -> WebhookEndpoint | None:
        """Return an endpoint as the store holds it, or None if it was removed."""
        try:
            return await self._endpoints.get(endpoint_id)
        except NotFound:
            return None

    def secrets(self, endpoint: WebhookEndpoint) -> tuple[Secret, ...]:
        """Return the secrets that sign for an endpoint now; none if the root key is lost."""
        return self._keys.signing_secrets(endpoint, self._clock.now())

    async def disable(self, endpoint: WebhookEndpoint, reason: str) -> None:
        """Disable an endpoint until an admin enables it, unless it was changed or removed meanwhile."""
        try:
            await self._endpoints.change(endpoint, endpoint.disabled(reason, self._clock.now()))
        except (NotFound, StaleWrite):
            return
        log.warning("webhook.endpoint_disabled", endpoint_id=endpoint.id, reason=reason)
        await self.refresh()


# Each endpoint adds a row and a job to every event, in the transaction of the event.
ENDPOINTS_MAX = 20


async def create_endpoint(
    services: Services,
    url: str,
    events: tuple[str, ...] = (),
    label: str = "",
    *,
    kind: EndpointKind = EndpointKind.WEBHOOK,
    caller: Caller = SYSTEM_CALLER,
) -> EndpointWithSecret:
    """Add an endpoint. It receives the events from now on."""
    if kind is EndpointKind.EMAIL and not services.notifier.sends_mail:
        raise Conflict(
            "this server has no mail server to send by; its operator sets GPUHERD_SMTP_URL and "
            "GPUHERD_SMTP_FROM, and restarts it",
            code="EMAIL_NOT_CONFIGURED",
        )
    if len(await services.stores.endpoints.list_all()) >= ENDPOINTS_MAX:
        raise Conflict(
            f"there are {ENDPOINTS_MAX} endpoints already; remove one first",
            code="TOO_MANY_WEBHOOK_ENDPOINTS",
        )
    endpoint = WebhookEndpoint(
        id=services.ids.new(ID_PREFIX),
        url=url,
        created_at=services.clock.now(),
        root=services.rules.webhook_keys.newest,
        events=events or default_events(kind),
        label=label,
        nonce=services.ids.secret_nonce(),
        kind=kind,
    )
    audit_record = _audit_record(services, caller, "create", endpoint.id, after=endpoint.shown_url)
    await services.stores.endpoints.add(endpoint, audit_record)
    await services.endpoint_cache.refresh()
    log.info("webhook.endpoint_added", endpoint_id=endpoint.id, kind=kind.value)
    return EndpointWithSecret(
        endpoint, services.rules.webhook_keys.secret(endpoint) if kind.is_signed else Secret("")
    )


async def delete_endpoint(services: Services, endpoint_id: str, *, caller: Caller = SYSTEM_CALLER) -> None:
    """Remove an endpoint. Its deliveries under way become dead letters."""
    await services.stores.endpoints.remove(
        endpoint_id, _audit_record(services, caller, "remove", endpoint_id)
    )
    await services.endpoint_cache.refresh()
    log.info("webhook.endpoint_removed", endpoint_id=endpoint_id)


async def rotate_endpoint(
    services: Services, endpoint_id: str, *, caller: Caller = SYSTEM_CALLER
) -> EndpointWithSecret:
    """Give an endpoint a new secret. For a day the former secret signs too."""
    before = await services.stores.endpoints.get(endpoint_id)
    if not before.kind.is_signed:
        raise Conflict(
            f"nothing is signed for an endpoint of the kind {before.kind}, so it has no secret; "
            "to change its address, add it anew and remove this one",
            code="ENDPOINT_NOT_SIGNED",
        )
    after = before.rotated(
        services.rules.webhook_keys.newest, services.ids.secret_nonce(), services.clock.now()
    )
    generations = (str(before.generation), str(after.generation))
    await _save_change(
        services, before, after, _audit_record(services, caller, "rotate", endpoint_id, *generations)
    )
    log.info("webhook.endpoint_rotated", endpoint_id=endpoint_id, generation=after.generation)
    return EndpointWithSecret(after, services.rules.webhook_keys.secret(after))


async def reenable_endpoint(
    services: Services, endpoint_id: str, *, caller: Caller = SYSTEM_CALLER
) -> WebhookEndpoint:
    """Enable an endpoint again."""
    before = await services.stores.endpoints.get(endpoint_id)
    audit_record = _audit_record(services, caller, "enable", endpoint_id, before.disabled_reason)
    await _save_change(services, before, before.enabled(), audit_record)
    return before.enabled()


def _audit_record(
    services: Services, caller: Caller, what: str, endpoint_id: str, before: str = "", after: str = ""
) -> AuditRecord:
    return caller.audit_record(f"webhook_endpoint.{what}", endpoint_id, services.clock.now(), before, after)


async def _save_change(
    services: Services, before: WebhookEndpoint, after: WebhookEndpoint, audit_record: AuditRecord
) -> None:
    await services.stores.endpoints.change(before, after, audit_record)
    await services.endpoint_cache.refresh()


def is_secret_known(services: Services, endpoint: WebhookEndpoint) -> bool:
    """Return True if the secret of an endpoint can still be derived. If not, only a rotation helps."""
    return services.rules.webhook_keys.knows(endpoint) or not endpoint.kind.is_signed


# These own instances, but are not in the table of keys.
_NO_KEYS = frozenset({ADMIN_ID, SYSTEM_CALLER.key_id})


async def key_signing_secrets(services: Services, key_id: str) -> tuple[Secret, ...] | None:
    """Return the secrets that sign for a key now: None for the common secret alone, () if the key or the root
    key is lost.

    A key signs with its own secret, so that no tenant can forge or replay events of another. The admin key of
    the settings signs with the common secret (WEBHOOK_SECRET).
    """
    if key_id in _NO_KEYS:
        return None
    # A key that another replica has made just now is not yet in the cache.
    key = services.key_cache.find(key_id) or await _find_key(services, key_id)
    # guard: nor when the key is no longer there
    if key is None:
        return ()
    if key.webhook_secret is None:
        return None
    now, record = services.clock.now(), key.webhook_secret
    # guard: each key signs with its own secret
    own = services.rules.webhook_keys.key_signing_secrets(key_id, record, now)
    if not own:
        # guard: what cannot be signed with a key's own secret is not sent with the common one
        return ()
    also_common = services.rules.sign_with_common or record.follows_common(now)
    # guard: the common secret signs for a key with its own only where that was asked for
    return own + (services.rules.common_webhook_secrets if also_common else ())


async def show_key_secret(services: Services, key_id: str, caller: Caller) -> ShownKeySecret:
    """Return what signs for a key, with the secret if it is the key of the caller."""
    key = await _seen_by(services, key_id, caller)
    # guard: only the key itself is shown its secret
    return _shown_secret(
        services, key_id if key is None else key.id, key, with_secret=caller.key_id == key_id
    )


async def rotate_key_secret(services: Services, key_id: str, caller: Caller) -> ShownKeySecret:
    """Give a key a new secret, or its first one. For a day the former secret signs too."""
    key = await _seen_by(services, key_id, caller)
    if key is None:
        raise Conflict(
            "the admin key of the settings signs with WEBHOOK_SECRET; change that, and restart",
            code="WEBHOOK_SECRET_COMMON",
        )
    now, before = services.clock.now(), key.webhook_secret
    nonce = services.ids.secret_nonce()
    after = (
        services.rules.webhook_keys.new_key_secret(nonce, rotated_at=now)
        if before is None
        else before.rotated(services.rules.webhook_keys.newest, nonce, now)
    )
    generations = ("common" if before is None else str(before.generation), str(after.generation))
    audit_record = caller.audit_record("key.rotate_webhook_secret", key.id, now, *generations)
    await services.stores.keys.set_webhook_secret(key, after, audit_record)
    await services.key_cache.refresh()
    log.info("key.webhook_secret_rotated", key_id=key.id, generation=after.generation)
    return _shown_secret(services, key.id, replace(key, webhook_secret=after), with_secret=True)


async def _seen_by(services: Services, key_id: str, caller: Caller) -> ApiKey | None:
    """Return the key; None for the admin key, `NotFound` if the caller may not see the key."""
    # guard: nobody rotates the secret of another key
    if not caller.may_see(key_id):
        raise NotFound(f"there is no key {key_id!r}", code="KEY_NOT_FOUND")
    return None if key_id == ADMIN_ID else await services.stores.keys.get(key_id)


async def _find_key(services: Services, key_id: str) -> ApiKey | None:
    try:
        return await services.stores.keys.get(key_id)
    except NotFound:
        return None


def _shown_secret(
    services: Services, key_id: str, key: ApiKey | None, *, with_secret: bool
) -> ShownKeySecret:
    record = None if key is None else key.webhook_secret
    if record is None:
        return ShownKeySecret(
            key_id, SignedWith.COMMON if services.rules.common_webhook_secrets else SignedWith.NOTHING
        )
    secret = services.rules.webhook_keys.secret_of_key(key_id, record) if with_secret else None
    return ShownKeySecret(key_id, SignedWith.KEY, record, secret)


# The request waits for the receiver, up to 15 s, for mail 30 s.
TESTS_MAX = 8


TESTS_OF_A_KEY_MAX = 2
RETRY_AFTER_S = 5.0


class TooManyTests(GpuherdError):
    """This server runs as many tests as it allows."""

    code = "TOO_MANY_WEBHOOK_TESTS"
    retry_after_s = RETRY_AFTER_S


class TooManyTestsOfKey(GpuherdError):
    """This key runs as many tests as it may."""

    code = "TOO_MANY_WEBHOOK_TESTS"
    retry_after_s = RETRY_AFTER_S


class WebhookTestLimit:
    """Lets a few tests run at a time, for each key and in all. The others are rejected, not queued."""

    def __init__(self) -> None:
        self._running = Counter[str]()

    @contextmanager
    def seat(self, key_id: str) -> Iterator[None]:
        """Hold one of the seats, or raise `TooManyTests` or `TooManyTestsOfKey`."""
        if self._running[key_id] >= TESTS_OF_A_KEY_MAX:
            raise TooManyTestsOfKey(
                f"{TESTS_OF_A_KEY_MAX} tests of this key are under way; wait for one to end"
            )
        if self._running.total() >= TESTS_MAX:
            raise TooManyTests(f"{TESTS_MAX} tests are under way here; try again in a moment")
        self._running[key_id] += 1
        try:
            yield
        finally:
            self._running[key_id] -= 1
            if not self._running[key_id]:
                del self._running[key_id]


async def send_test_to_url(services: Services, url: str, caller: Caller) -> WebhookTestResult:
    """Send a signed test event to an address that an instance of the caller could name as its webhook."""
    with services.webhook_tests.seat(caller.key_id):
        secrets = await key_signing_secrets(services, caller.key_id)
        if secrets == ():
            raise Conflict(
                "the root key of your webhook secret is lost; rotate the secret first",
                code="WEBHOOK_SECRET_LOST",
            )
        return await _send_test(services, url, None, secrets)


async def send_test_to_endpoint(services: Services, endpoint_id: str, caller: Caller) -> WebhookTestResult:
    """Send a signed test event to an endpoint, enabled or not; `NotFound` if there is none."""
    with services.webhook_tests.seat(caller.key_id):
        return await _try_endpoint(services, endpoint_id)


async def _try_endpoint(services: Services, endpoint_id: str) -> WebhookTestResult:
    endpoint = await services.stores.endpoints.get(endpoint_id)
    if not endpoint.kind.is_signed:
        return await _notify_test(services, endpoint)
    secrets = services.endpoint_cache.secrets(endpoint)
    if not secrets:
        raise Conflict(
            "the root key of this endpoint's secret is lost; rotate the secret first",
            code="WEBHOOK_SECRET_LOST",
        )
    return await _send_test(services, endpoint.url, endpoint.id, secrets)


async def _send_test(
    services: Services, url: str, endpoint_id: str | None, secrets: tuple[Secret, ...] | None
) -> WebhookTestResult:
    now, event_id = services.clock.now(), services.ids.new(DELIVERY_ID_PREFIX)
    body = _test_event(endpoint_id, now)
    return WebhookTestResult(
        event_id, url, await services.webhook_sender.send(url, event_id, body, now, secrets)
    )


async def _notify_test(services: Services, endpoint: WebhookEndpoint) -> WebhookTestResult:
    now, event_id = services.clock.now(), services.ids.new(DELIVERY_ID_PREFIX)
    body = _test_event(endpoint.id, now)
    result = await services.notifier.notify(endpoint, event_id, body, now)
    return WebhookTestResult(event_id, endpoint.shown_url, result)


def _test_event(endpoint_id: str | None, now: datetime) -> bytes:
    data = TestEventData(endpoint_id=endpoint_id, message="a test of gpuherd's webhooks; nothing happened")
    return to_json(TestEventBody(type=WEBHOOK_TEST, timestamp=now, data=data))


REPLAY_BATCH = 100


async def replay_delivery(services: Services, delivery_id: str) -> Delivery:
    """Send one delivery again, in any state, and return it; `NotFound` if there is none.

    A delivery that waits for its next try is only brought forward.
    """
    delivery = await services.stores.outbox.get(delivery_id)
    await services.stores.deliveries.reopen(_again(services, [delivery]))
    return await services.stores.outbox.get(delivery_id)


async def replay_since(
    services: Services, moment: datetime, state: DeliveryFilter, endpoint_id: str | None = None
) -> int:
    """Send all deliveries again that were made since then and failed or were given up; return how many."""
    query = DeliveryQuery(state, endpoint_id=endpoint_id, since=moment, limit=REPLAY_BATCH, oldest_first=True)
    replayed = 0
    while True:
        page = await services.stores.deliveries.page(query)
        await services.stores.deliveries.reopen(_again(services, page.deliveries))
        replayed += len(page.deliveries)
        if page.next_cursor is None:
            return replayed
        query = replace(query, cursor=page.next_cursor)


def _again(services: Services, deliveries: Iterable[Delivery]) -> list[tuple[Delivery, NewJob]]:
    now = services.clock.now()
    return [(it.reset_for_replay(now), services.job_factory.delivery_job(it)) for it in deliveries]
