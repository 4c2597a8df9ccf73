"""A webhook is believed only if somebody who knows the secret has sent it now."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook

from gpuherd.client.client_errors import BadConfiguration, WebhookInvalid
from gpuherd.client.webhook_verification import verify_webhook
from gpuherd.domain.secret import Secret
from tests.client.support.server import NOW, InstantClock, details

SECRET = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LTAxMjM0NTY3"
EVENT = {
    "type": "instance.ready",
    "timestamp": "2026-05-01T12:00:00.000000Z",
    "data": {**details("running"), "sequence": 4},
}
BODY = json.dumps(EVENT).encode()


def signed(body: bytes = BODY, at: datetime = NOW, secret: str = SECRET) -> dict[str, str]:
    """Sign with the library of the standard, not with our own code."""
    return {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": Webhook(secret).sign("msg_1", at, body.decode()),
    }


def verified(headers: dict[str, str], body: Any = BODY, secret: Any = SECRET, **options: Any) -> Any:
    return verify_webhook(headers, body, secret, clock=InstantClock(), **options)


@pytest.mark.parametrize("secret", [SECRET, Secret(SECRET)])
def test_a_genuine_message_is_a_typed_event(secret: str | Secret) -> None:
    event = verified(signed(), secret=secret)
    assert (event.id, event.type, event.sequence) == ("msg_1", "instance.ready", 4)
    assert event.timestamp == datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert (event.instance.id, event.instance.usable) == ("inst_1", True)
    assert event.raw == EVENT


def test_an_event_of_the_account_has_no_instance() -> None:
    body = json.dumps({**EVENT, "data": {"instanceId": None, "sequence": 1, "reason": "x"}}).encode()
    event = verified(signed(body), body)
    assert (event.instance, event.sequence, event.raw["data"]["reason"]) == (None, 1, "x")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, BODY),
        (signed(), BODY.replace(b"ready", b"faked")),
        ({**signed(), "Webhook-Id": "msg_2"}, BODY),
        (signed(secret="whsec_" + "A" * 32), BODY),
        (signed(at=NOW - timedelta(seconds=301)), BODY),
        (signed(at=NOW + timedelta(seconds=301)), BODY),
        (signed(b"[]"), b"[]"),
        (signed(b"not json"), b"not json"),
        (
            signed(b'{"type":"x","timestamp":"never","data":{}}'),
            b'{"type":"x","timestamp":"never","data":{}}',
        ),
    ],
)
def test_everything_else_is_not_believed(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(WebhookInvalid) as caught:
        verified(headers, body)
    assert SECRET not in str(caught.value)


def test_the_tolerance_can_be_chosen() -> None:
    old = signed(at=NOW - timedelta(seconds=90))
    assert verified(old, tolerance_s=120).id == "msg_1"
    with pytest.raises(WebhookInvalid):
        verified(old, tolerance_s=60)


def test_a_decoded_body_is_refused_because_it_is_not_what_was_signed() -> None:
    with pytest.raises(TypeError, match="bytes"):
        verified(signed(), BODY.decode())


@pytest.mark.parametrize("secret", ["", "whsec_canary!", "whsec_Y2FuYXJ5"])
def test_a_secret_that_is_none_is_a_wrong_setting(secret: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        verified(signed(), secret=secret)
    assert not secret or secret not in str(caught.value)
