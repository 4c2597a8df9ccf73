"""Webhook endpoints, secrets of keys, test sends and replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

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
from gpuherd.ports.access_port import ApiKeys
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.webhook_port import (
    DeliveryFilter,
    DeliveryLog,
    DeliveryPage,
    DeliveryQuery,
    Notifier,
    Outbox,
    WebhookEndpoints,
    WebhookSender,
    WebhookTestResult,
)
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.views.service_view import compact

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
        """Return True if its secret can still be derived; if not, only a rotation helps."""
        return self.keys.knows(endpoint) or not endpoint.kind.is_signed


# They own instances, and are in no table.
_NO_KEYS = frozenset({ADMIN_ID, SYSTEM_CALLER.key_id})


@dataclass(frozen=True)
class KeyWebhookSecrets:
    """A key signs with its own secret, so that no tenant can forge or replay events of another.

    The admin key of the settings, and keys from before there were such secrets, go on with the common one
    (WEBHOOK_SECRET); `also_common` lets that one sign beside the own ones of all keys.
    """

    keys: ApiKeys
    # The keys as they are remembered here, and how to learn them anew.
    known_key: Callable[[str], ApiKey | None]
    refresh_keys: Callable[[], Awaitable[None]]
    ring: KeyRing
    clock: Clock
    ids: Ids
    common: tuple[Secret, ...] = ()
    also_common: bool = False

    async def signing(self, key_id: str) -> tuple[Secret, ...] | None:
        """Return what signs for a key now: None for the common one alone, () if key or root are lost."""
        if key_id in _NO_KEYS:
            return None
        # A key that another replica has made just now is not yet in the cache.
        key = self.known_key(key_id) or await self._find(key_id)
        # guard: nor when the key is no longer there
        if key is None:
            return ()
        if key.webhook_secret is None:
            return None
        now, record = self.clock.now(), key.webhook_secret
        # guard: each key signs with its own secret
        own = self.ring.key_signing_secrets(key_id, record, now)
        if not own:
            # guard: what cannot be signed with a key's own secret is not sent with the common one
            return ()
        # guard: the common secret signs for a key with its own only where that was asked for
        return own + (self.common if self.also_common or record.follows_common(now) else ())

    async def show(self, key_id: str, caller: Caller) -> ShownKeySecret:
        """Return what signs for a key, with the secret if the caller has that very key."""
        key = await self._seen_by(key_id, caller)
        # guard: only the key itself is shown its secret
        return self._shown(key_id if key is None else key.id, key, with_secret=caller.key_id == key_id)

    async def rotate(self, key_id: str, caller: Caller) -> ShownKeySecret:
        """Give a key a new secret, or its first one; for a day what has signed before signs too."""
        key = await self._seen_by(key_id, caller)
        if key is None:
            raise Conflict(
                "the admin key of the settings signs with WEBHOOK_SECRET; change that, and restart",
                code="WEBHOOK_SECRET_COMMON",
            )
        now, before = self.clock.now(), key.webhook_secret
        nonce = self.ids.secret_nonce()
        after = (
            self.ring.new_key_secret(nonce, rotated_at=now)
            if before is None
            else before.rotated(self.ring.newest, nonce, now)
        )
        generations = ("common" if before is None else str(before.generation), str(after.generation))
        audit_record = caller.audit_record("key.rotate_webhook_secret", key.id, now, *generations)
        await self.keys.set_webhook_secret(key, after, audit_record)
        await self.refresh_keys()
        log.info("key.webhook_secret_rotated", key_id=key.id, generation=after.generation)
        return self._shown(key.id, replace(key, webhook_secret=after), with_secret=True)

    async def _seen_by(self, key_id: str, caller: Caller) -> ApiKey | None:
        """Return the key; None for the admin key, `NotFound` where the caller may not know of it."""
        # guard: nobody rotates the secret of another key
        if not caller.may_see(key_id):
            raise NotFound(f"there is no key {key_id!r}", code="KEY_NOT_FOUND")
        return None if key_id == ADMIN_ID else await self.keys.get(key_id)

    async def _find(self, key_id: str) -> ApiKey | None:
        try:
            return await self.keys.get(key_id)
        except NotFound:
            return None

    def _shown(self, key_id: str, key: ApiKey | None, *, with_secret: bool) -> ShownKeySecret:
        record = None if key is None else key.webhook_secret
        if record is None:
            return ShownKeySecret(key_id, SignedWith.COMMON if self.common else SignedWith.NOTHING)
        secret = self.ring.secret_of_key(key_id, record) if with_secret else None
        return ShownKeySecret(key_id, SignedWith.KEY, record, secret)


# The request waits for the receiver, up to 15 s, for mail 30 s: more at once are hardly tests.
TESTS_MAX = 8


TESTS_OF_A_KEY_MAX = 2
RETRY_AFTER_S = 5.0


class TooManyTests(GpuherdError):
    """This server has as many tests under way as it will."""

    code = "TOO_MANY_WEBHOOK_TESTS"
    retry_after_s = RETRY_AFTER_S


class TooManyTestsOfKey(GpuherdError):
    """This key has as many tests under way as it may."""

    code = "TOO_MANY_WEBHOOK_TESTS"
    retry_after_s = RETRY_AFTER_S


@dataclass(frozen=True)
class SendTestWebhook:
    """The event goes the same guarded way, with the same signature, as every other.

    Behind a bulkhead: a few at a time for each key and in all, and no queue for the others.
    """

    sender: WebhookSender
    notifier: Notifier
    endpoints: WebhookEndpoints
    endpoint_cache: EndpointCache
    key_secrets: KeyWebhookSecrets
    clock: Clock
    ids: Ids
    _running: Counter[str] = field(default_factory=Counter)

    async def url(self, url: str, caller: Caller) -> WebhookTestResult:
        """Send one to an address that the caller's instances may bring along."""
        with self._seat(caller.key_id):
            secrets = await self.key_secrets.signing(caller.key_id)
            if secrets == ():
                raise Conflict(
                    "the root key of your webhook secret is lost; rotate the secret first",
                    code="WEBHOOK_SECRET_LOST",
                )
            return await self._send(url, None, secrets)

    async def endpoint(self, endpoint_id: str, caller: Caller) -> WebhookTestResult:
        """Send one to an endpoint, disabled or not; `NotFound` if there is none."""
        with self._seat(caller.key_id):
            return await self._try_endpoint(endpoint_id)

    @contextmanager
    def _seat(self, key_id: str) -> Iterator[None]:
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

    async def _try_endpoint(self, endpoint_id: str) -> WebhookTestResult:
        endpoint = await self.endpoints.get(endpoint_id)
        if not endpoint.kind.is_signed:
            return await self._notify(endpoint)
        secrets = self.endpoint_cache.secrets(endpoint)
        if not secrets:
            raise Conflict(
                "the root key of this endpoint's secret is lost; rotate the secret first",
                code="WEBHOOK_SECRET_LOST",
            )
        return await self._send(endpoint.url, endpoint.id, secrets)

    async def _send(
        self, url: str, endpoint_id: str | None, secrets: tuple[Secret, ...] | None
    ) -> WebhookTestResult:
        now, event_id = self.clock.now(), self.ids.new(DELIVERY_ID_PREFIX)
        body = _test_event(endpoint_id, now)
        return WebhookTestResult(event_id, url, await self.sender.send(url, event_id, body, now, secrets))

    async def _notify(self, endpoint: WebhookEndpoint) -> WebhookTestResult:
        now, event_id = self.clock.now(), self.ids.new(DELIVERY_ID_PREFIX)
        body = _test_event(endpoint.id, now)
        result = await self.notifier.notify(endpoint, event_id, body, now)
        return WebhookTestResult(event_id, endpoint.shown_url, result)


def _test_event(endpoint_id: str | None, now: datetime) -> bytes:
    data = TestEventData(endpoint_id=endpoint_id, message="a test of gpuherd's webhooks; nothing happened")
    return compact(TestEventBody(type=WEBHOOK_TEST, timestamp=now, data=data))


REPLAY_BATCH = 100


@dataclass(frozen=True)
class ReplayWebhooks:
    """One that still waits for its next try is only brought forward."""

    outbox: Outbox
    log: DeliveryLog
    job_factory: JobFactory
    clock: Clock

    async def one(self, delivery_id: str) -> Delivery:
        """Replay one delivery, whatever became of it, and return it; `NotFound` if there is none."""
        delivery = await self.outbox.get(delivery_id)
        await self.log.reopen(self._again([delivery]))
        return await self.outbox.get(delivery_id)

    async def since(self, moment: datetime, state: DeliveryFilter, endpoint_id: str | None = None) -> int:
        """Replay all that was made since then and failed, or was given up; return how many."""
        query = DeliveryQuery(
            state, endpoint_id=endpoint_id, since=moment, limit=REPLAY_BATCH, oldest_first=True
        )
        replayed = 0
        while True:
            page = await self.log.page(query)
            await self.log.reopen(self._again(page.deliveries))
            replayed += len(page.deliveries)
            if page.next_cursor is None:
                return replayed
            query = replace(query, cursor=page.next_cursor)

    def _again(self, deliveries: Iterable[Delivery]) -> list[tuple[Delivery, NewJob]]:
        now = self.clock.now()
        return [(it.reset_for_replay(now), self.job_factory.delivery_job(it)) for it in deliveries]


@dataclass(frozen=True)
class ListDeliveries:
    """Newest first, page by page."""

    log: DeliveryLog

    async def __call__(self, query: DeliveryQuery) -> DeliveryPage:
        return await self.log.page(query)
