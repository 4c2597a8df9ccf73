"""Sends one test event right away, and says how it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from gpuherd.clock import Clock, Ids
from gpuherd.contract.webhook import TestEventBody, TestEventData
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.errors import Conflict, GpuherdError
from gpuherd.domain.instance.events import WEBHOOK_TEST
from gpuherd.domain.webhooks.delivery import DELIVERY_ID_PREFIX
from gpuherd.domain.webhooks.endpoint import WebhookEndpoint
from gpuherd.ports.webhooks import (
    Notifier,
    WebhookEndpoints,
    WebhookSender,
    WebhookTestResult,
)
from gpuherd.usecases.compact_json import compact
from gpuherd.usecases.webhooks.endpoints import EndpointCache
from gpuherd.usecases.webhooks.key_secrets import KeyWebhookSecrets

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
