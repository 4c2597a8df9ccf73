"""Deliveries over loopback: what arrives, and what each answer is called."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gpuherd import __version__
from gpuherd.adapters.egress.guarded_client import SsrfSafeClient
from gpuherd.adapters.egress.webhook_sender import HttpWebhookSender
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import Signer
from gpuherd.ports.egress_port import EgressFailure, EgressReply, FailureCategory
from gpuherd.ports.webhook_port import DeliveryResult
from tests.adapters.egress.doubles import LOOPBACK_OPEN, TLS, Receiver, StubResolver
from tests.support.fake_clock import FakeClock

SECRET = "plain secret"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BODY = '{"type": "instance.ready",  "data": "ü"}'.encode()


@pytest.fixture
async def client() -> AsyncIterator[SsrfSafeClient]:
    opened = SsrfSafeClient(LOOPBACK_OPEN, StubResolver(), FakeClock(), tls=TLS)
    yield opened
    await opened.close()


def answer(status: int, headers: str = "", body: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\n{headers}content-length: {len(body)}\r\n\r\n{body}".encode()


async def deliver(client: SsrfSafeClient, receiver: Receiver) -> DeliveryResult:
    return await HttpWebhookSender(client, FakeClock()).send(receiver.url, "msg_1", BODY, NOW)


def headers_of(request: bytes) -> dict[str, str]:
    head = request.partition(b"\r\n\r\n")[0].decode()
    lines = [line.partition(": ") for line in head.split("\r\n")[1:]]
    return {name.lower(): value for name, _, value in lines}


async def test_a_signed_event_arrives_with_the_very_bytes_that_were_signed(client: SsrfSafeClient) -> None:
    sender = HttpWebhookSender(client, FakeClock(), Signer([Secret(SECRET)]))
    async with Receiver() as receiver:
        result = await sender.send(receiver.url, "msg_1", BODY, SystemClock().now())
    assert result == DeliveryResult(True, 200, "ok", "the receiver answered 200", None, 0.0)
    sent = receiver.requests[0]
    headers = headers_of(sent)
    assert sent.startswith(b"POST / HTTP/1.1")
    assert sent.partition(b"\r\n\r\n")[2] == BODY
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"] == f"gpuherd/{__version__}"
    assert "authorization" not in headers
    Webhook(SECRET.encode()).verify(BODY, headers)


async def test_every_secret_that_is_given_signs_and_the_installations_own_does_not(
    client: SsrfSafeClient,
) -> None:
    sender = HttpWebhookSender(client, FakeClock(), Signer([Secret(SECRET)]))
    new, old = "the endpoint's new secret", "the endpoint's old secret"
    async with Receiver() as receiver:
        now = SystemClock().now()
        await sender.send(receiver.url, "msg_1", BODY, now, [Secret(new), Secret(old)])
    headers = headers_of(receiver.requests[0])
    for secret in (new, old):
        Webhook(secret.encode()).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET.encode()).verify(BODY, headers)


async def test_without_a_secret_an_event_goes_out_unsigned_but_with_its_id_and_the_time_of_the_try(
    client: SsrfSafeClient,
) -> None:
    sender = HttpWebhookSender(client, FakeClock())
    async with Receiver() as receiver:
        for now in (NOW, NOW + timedelta(days=3)):
            assert (await sender.send(receiver.url, "msg_1", BODY, now)).accepted
    tries = [headers_of(request) for request in receiver.requests]
    assert [it["webhook-id"] for it in tries] == ["msg_1", "msg_1"]
    assert [it["webhook-timestamp"] for it in tries] == ["1767268800", "1767528000"]
    assert not any("webhook-signature" in it for it in tries)


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (200, "ok"),
        (204, "ok"),
        (299, "ok"),
        (301, "redirect"),
        (304, "redirect"),
        (308, "redirect"),
        (400, "http_4xx"),
        (404, "http_4xx"),
        (410, "gone"),
        (429, "throttled"),
        (500, "http_5xx"),
        (502, "throttled"),
        (503, "http_5xx"),
        (504, "throttled"),
        (600, "protocol"),
    ],
)
async def test_each_status_has_its_category(status: int, category: str, client: SsrfSafeClient) -> None:
    async with Receiver(answer(status, "location: http://127.0.0.1:1/\r\n")) as receiver:
        result = await deliver(client, receiver)
    assert (result.accepted, result.status, result.category) == (category == "ok", status, category)
    assert receiver.connections == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("Thu, 01 Jan 2026 12:01:00 GMT", 60.0), ("soon", None), ("999999999", 300.0)],
)
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_receiver_may_ask_for_time(
    status: int, value: str, seconds: float | None, client: SsrfSafeClient
) -> None:
    async with Receiver(answer(status, f"Retry-After: {value}\r\n")) as receiver:
        assert (await deliver(client, receiver)).retry_after_s == seconds


async def test_what_the_receiver_writes_is_never_repeated(client: SsrfSafeClient) -> None:
    reply = answer(500, "x-note: hunter2\r\n", "hunter2" * 9999)
    async with Receiver(reply) as receiver:
        result = await deliver(client, receiver)
    assert "hunter2" not in repr(result)
    assert result.status == 500


@pytest.mark.parametrize(
    ("url", "category"),
    [
        ("http://10.0.0.1/", "blocked_target"),
        ("http://gone.example.com/", "dns"),
        ("nonsense", "blocked_target"),
    ],
)
async def test_a_failure_on_the_way_is_a_result(url: str, category: str, client: SsrfSafeClient) -> None:
    result = await HttpWebhookSender(client, FakeClock()).send(url, "msg_1", BODY, NOW)
    assert (result.accepted, result.status, result.category) == (False, None, category)
    assert 0 < len(result.detail) <= 200


async def test_a_name_that_moved_inside_between_tries_is_refused_at_the_next() -> None:
    resolver = StubResolver({"hook.example.com": [["127.0.0.1"], ["127.0.0.2"]]})
    client = SsrfSafeClient(EgressPolicy.parse("127.0.0.1/32"), resolver, FakeClock())
    sender = HttpWebhookSender(client, FakeClock())
    async with Receiver() as receiver, Receiver(host="127.0.0.2", port=receiver.port) as inner:
        url = f"http://hook.example.com:{receiver.port}/"
        results = [await sender.send(url, "msg_1", BODY, NOW) for _ in range(2)]
        assert [result.category for result in results] == ["ok", "blocked_target"]
        assert (receiver.connections, inner.connections) == (1, 0)
    await client.close()


class FailingDoor:
    """Takes two seconds and fails with a detail that no terminal should print."""

    def __init__(self, clock: FakeClock):
        self._clock = clock
        self.timeout_s = 0.0

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
        max_bytes: int,
    ) -> EgressReply:
        self.timeout_s = timeout_s
        await self._clock.advance(2.0)
        raise EgressFailure(FailureCategory.RESET, "\x1b[2J\n\u202eé" + "x" * 500)


async def test_a_failure_has_its_time_and_a_detail_that_is_safe_to_show() -> None:
    clock = FakeClock()
    client = FailingDoor(clock)
    result = await HttpWebhookSender(client, clock).send("http://hook.example.com/", "msg_1", BODY, NOW)
    assert client.timeout_s == 15.0
    assert result.elapsed_s == pytest.approx(2.0)
    assert len(result.detail) == 200
    assert result.detail.isascii() and result.detail.isprintable()
