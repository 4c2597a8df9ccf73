"""Tests of webhooks: a few at a time, whoever asks, and whatever becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import pytest

from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.access.secret import Secret
from gpuherd.entrypoints.problems import problem_of
from gpuherd.ports.webhooks import DeliveryResult, WebhookTestResult
from gpuherd.usecases.webhooks.send_test import (
    TESTS_MAX,
    TESTS_OF_A_KEY_MAX,
    SendTestWebhook,
    TooManyTests,
    TooManyTestsOfKey,
)
from tests.support.herd import Herd
from tests.support.keys import make_key

URL = "https://hook.example.com/"


class SilentReceiver:
    """Takes the event, and answers when it is told to."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def send(
        self, url: str, event_id: str, body: bytes, now: datetime, secrets: Sequence[Secret] | None = None
    ) -> DeliveryResult:
        await self.answers.wait()
        return DeliveryResult(True, 200, "ok", "", None, 0.0)


@pytest.fixture
def receiver() -> SilentReceiver:
    return SilentReceiver()


@pytest.fixture
def tester(herd: Herd, receiver: SilentReceiver) -> SendTestWebhook:
    stores, secrets = herd.ports.stores, herd.plane.webhooks.key_secrets
    return SendTestWebhook(
        receiver, herd.notifier, stores.endpoints, herd.endpoint_cache, secrets, herd.clock, herd.ids
    )


async def key_holder(herd: Herd) -> Caller:
    return Caller((await make_key(herd.plane)).key.id, Scope.WRITE)


async def under_way(tester: SendTestWebhook, *callers: Caller) -> list[asyncio.Task[WebhookTestResult]]:
    tasks = [asyncio.create_task(tester.url(URL, it)) for it in callers]
    await asyncio.sleep(0)
    return tasks


async def test_one_key_has_a_few_tests_at_a_time(
    herd: Herd, tester: SendTestWebhook, receiver: SilentReceiver
) -> None:
    ada, bob = await key_holder(herd), await key_holder(herd)
    running = await under_way(tester, *[ada] * TESTS_OF_A_KEY_MAX)
    with pytest.raises(TooManyTestsOfKey) as refused:
        await tester.url(URL, ada)
    assert problem_of(refused.value).status == 429
    assert problem_of(refused.value).retry_after is not None
    # Another key is not concerned, and this one is not either when they have ended.
    running += await under_way(tester, bob)
    receiver.answers.set()
    await asyncio.gather(*running)
    assert (await tester.url(URL, ada)).result.accepted


async def test_there_are_a_few_at_a_time_in_all(herd: Herd, tester: SendTestWebhook) -> None:
    late, *callers = [await key_holder(herd) for _ in range(TESTS_MAX + 1)]
    running = await under_way(tester, *callers)
    with pytest.raises(TooManyTests) as refused:
        await tester.url(URL, late)
    assert problem_of(refused.value).status == 503
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    # Who goes away in the middle leaves the seat.
    assert not tester._running
