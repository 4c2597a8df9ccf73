"""Notices over loopback: what Slack, Discord and ntfy get, and what their answers mean."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from gpuherd import __version__
from gpuherd.adapters.egress.guarded_client import SsrfSafeClient
from gpuherd.adapters.egress.people_notifier import ChatAndMailNotifier
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind, WebhookEndpoint
from gpuherd.ports.webhook_port import DeliveryResult
from tests.adapters.egress.doubles import LOOPBACK_OPEN, TLS, Receiver, StubResolver
from tests.adapters.webhooks.test_sender import answer, headers_of
from tests.domain.notifications.hostile_words import HOSTILE_WORDS
from tests.domain.notifications.test_notice import event
from tests.support.fake_clock import FakeClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CHATS = [EndpointKind.SLACK, EndpointKind.DISCORD, EndpointKind.NTFY]
BODY = json.dumps(event()).encode()


@pytest.fixture
async def client() -> AsyncIterator[SsrfSafeClient]:
    opened = SsrfSafeClient(LOOPBACK_OPEN, StubResolver(), FakeClock(), tls=TLS)
    yield opened
    await opened.close()


def endpoint(kind: EndpointKind, url: str) -> WebhookEndpoint:
    return WebhookEndpoint("ep_1", url, NOW, "root", kind=kind)


async def notify(client: SsrfSafeClient, kind: EndpointKind, url: str, body: bytes = BODY) -> DeliveryResult:
    return await ChatAndMailNotifier(client, FakeClock()).notify(endpoint(kind, url), "msg_1", body, NOW)


def posted(receiver: Receiver) -> tuple[str, Any]:
    head, _, body = receiver.requests[-1].partition(b"\r\n\r\n")
    return head.split(b" ")[1].decode(), json.loads(body)


@pytest.mark.parametrize(
    ("kind", "path", "asked", "holds"),
    [
        (EndpointKind.SLACK, "services/T/B/x", "/services/T/B/x", lambda it: it["blocks"][0]["text"]["text"]),
        (
            EndpointKind.DISCORD,
            "api/webhooks/1/x?thread_id=2",
            "/api/webhooks/1/x?thread_id=2",
            lambda it: it["embeds"][0]["title"],
        ),
        (EndpointKind.NTFY, "herd?auth=QmVhcmVy", "/?auth=QmVhcmVy", lambda it: it["title"]),
    ],
)
async def test_each_kind_is_told_in_its_own_way(
    kind: EndpointKind, path: str, asked: str, holds: Callable[[Any], str], client: SsrfSafeClient
) -> None:
    async with Receiver() as receiver:
        result = await notify(client, kind, f"{receiver.url}{path}")
    assert result == DeliveryResult(True, 200, "ok", "the receiver answered 200", None, 0.0)
    where, said = posted(receiver)
    assert (where, holds(said)) == (asked, "trainer is ready")
    headers = headers_of(receiver.requests[0])
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["user-agent"] == f"gpuherd/{__version__}"
    # Nobody there verifies anything, and none of them may learn what we know.
    assert not {"authorization", "cookie", "webhook-signature"} & set(headers)


async def test_whatever_a_name_holds_arrives_as_valid_json(
    client: SsrfSafeClient, subtests: pytest.Subtests
) -> None:
    for kind, word in product(CHATS, HOSTILE_WORDS):
        with subtests.test(kind=kind, word=word):
            body = json.dumps(event("instance.failed", name=word, statusReason=word)).encode()
            async with Receiver() as receiver:
                assert (await notify(client, kind, f"{receiver.url}topic", body)).accepted
            assert len(receiver.requests) == 1 and posted(receiver)[1]


async def test_each_answer_has_its_category(client: SsrfSafeClient, subtests: pytest.Subtests) -> None:
    for kind, status, said, category in [
        (EndpointKind.SLACK, 200, "ok", "ok"),
        (EndpointKind.SLACK, 404, "no_service", "gone"),
        (EndpointKind.SLACK, 404, "channel_not_found", "gone"),
        (EndpointKind.SLACK, 410, "channel_is_archived", "gone"),
        (EndpointKind.SLACK, 403, "team_disabled", "gone"),
        (EndpointKind.SLACK, 403, "invalid_token", "gone"),
        (EndpointKind.SLACK, 404, "<html>not here</html>", "http_4xx"),
        (EndpointKind.SLACK, 400, "invalid_payload", "http_4xx"),
        (EndpointKind.SLACK, 403, "action_prohibited", "http_4xx"),
        (EndpointKind.SLACK, 500, "rollup_error", "http_5xx"),
        (EndpointKind.DISCORD, 204, "", "ok"),
        (EndpointKind.DISCORD, 404, '{"message": "Unknown Webhook", "code": 10015}', "gone"),
        (EndpointKind.DISCORD, 401, '{"message": "Invalid Webhook Token", "code": 50027}', "gone"),
        (EndpointKind.DISCORD, 400, '{"message": "Cannot send an empty message", "code": 50006}', "http_4xx"),
        (EndpointKind.DISCORD, 404, "no_service", "http_4xx"),
        (EndpointKind.DISCORD, 404, '[{"code": 10015}]', "http_4xx"),
        (EndpointKind.DISCORD, 404, '{"code": [10015]}', "http_4xx"),
        (EndpointKind.NTFY, 200, "{}", "ok"),
        (EndpointKind.NTFY, 404, "no_service", "http_4xx"),
        (EndpointKind.NTFY, 403, '{"code": 40301, "error": "forbidden"}', "http_4xx"),
        (EndpointKind.NTFY, 410, "", "gone"),
        (EndpointKind.NTFY, 429, '{"code": 42901}', "throttled"),
    ]:
        with subtests.test(kind=kind, status=status, said=said, category=category):
            text = answer(status, body="" if status == 204 else said)
            async with Receiver(text) as receiver:
                result = await notify(client, kind, f"{receiver.url}topic")
            assert (result.accepted, result.status, result.category) == (category == "ok", status, category)
            # Nothing is shown of what they write, but for words that we know.
            assert "html" not in result.detail and "Unknown" not in result.detail


@pytest.mark.parametrize(
    ("kind", "headers", "said", "seconds"),
    [
        (EndpointKind.SLACK, "retry-after: 30\r\n", "", 30.0),
        (EndpointKind.SLACK, "", '{"retry_after": 7}', None),
        (EndpointKind.DISCORD, "retry-after: 2\r\n", '{"retry_after": 1.5}', 2.0),
        (EndpointKind.DISCORD, "", '{"message": "slow down", "retry_after": 1.5, "global": false}', 1.5),
        (EndpointKind.DISCORD, "", '{"retry_after": "1e9"}', None),
        (EndpointKind.DISCORD, "", '{"retry_after": 99999999}', 300.0),
        (EndpointKind.DISCORD, "", "[", None),
    ],
)
async def test_they_may_ask_for_time(
    kind: EndpointKind, headers: str, said: str, seconds: float | None, client: SsrfSafeClient
) -> None:
    async with Receiver(answer(429, headers, said)) as receiver:
        result = await notify(client, kind, f"{receiver.url}topic")
    assert (result.category, result.retry_after_s) == ("throttled", seconds)


@pytest.mark.parametrize("kind", CHATS)
async def test_a_target_inside_is_refused_at_the_connect_too(kind: EndpointKind) -> None:
    async with Receiver() as receiver:
        # As if its row had been changed in the database, or its name led here.
        table = {"chat.example.com": [["127.0.0.1"]]}
        closed = SsrfSafeClient(EgressPolicy(), StubResolver(table), FakeClock(), tls=TLS)
        for url in (f"{receiver.url}topic", f"http://chat.example.com:{receiver.port}/topic"):
            assert (await notify(closed, kind, url)).category == "blocked_target"
        await closed.close()
    assert receiver.connections == 0


@pytest.mark.parametrize("kind", CHATS)
async def test_a_redirect_is_not_followed(kind: EndpointKind, client: SsrfSafeClient) -> None:
    async with Receiver() as inside, Receiver(answer(302, f"location: {inside.url}\r\n")) as receiver:
        assert (await notify(client, kind, f"{receiver.url}topic")).category == "redirect"
    assert inside.connections == 0


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        (EndpointKind.NTFY, "https://ntfy.example.com/"),
        (EndpointKind.NTFY, "https://[ntfy.example.com/x"),
        (EndpointKind.SLACK, "https://[slack.example.com/x"),
        (EndpointKind.EMAIL, "mailto:ops@[127.0.0.1]"),
        (EndpointKind.EMAIL, "mailto:ops@example.com\r\nBcc: x@example.com"),
    ],
)
async def test_a_row_that_was_changed_to_nonsense_is_a_blocked_target(
    kind: EndpointKind, url: str, client: SsrfSafeClient
) -> None:
    assert (await notify(client, kind, url)).category == "blocked_target"


async def test_without_a_mail_server_mail_waits(client: SsrfSafeClient) -> None:
    result = await notify(client, EndpointKind.EMAIL, "mailto:ops@example.com")
    assert (result.accepted, result.category) == (False, "not_configured")
    assert "GPUHERD_SMTP_URL" in result.detail
