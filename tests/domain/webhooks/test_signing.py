"""Signatures, checked both ways against the independent `standardwebhooks` library."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import BadSignature, Signer, verify

KEY = bytes(range(24))
WHSEC = "whsec_" + base64.b64encode(KEY).decode()
PLAIN = "a plain sécret"
BODY = '{"type":"instance.ready","data":{"name":"ü"}}'.encode()
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def other_side(secret: str) -> Webhook:
    """Return the independent verifier; it takes a secret without the prefix as raw bytes only."""
    return Webhook(secret if secret.startswith("whsec_") else secret.encode())


@pytest.mark.parametrize("secret", [WHSEC, PLAIN, "12345678", WHSEC.rstrip("=")])
def test_the_other_library_accepts_our_signature(secret: str) -> None:
    # It looks at the real clock itself, so this test cannot use another one.
    headers = Signer([Secret(secret)]).headers("msg_1", BODY, SystemClock().now())
    assert other_side(secret).verify(BODY, headers)["type"] == "instance.ready"
    with pytest.raises(WebhookVerificationError):
        other_side(secret).verify(BODY + b" ", headers)


@pytest.mark.parametrize("secret", [WHSEC, PLAIN])
def test_we_accept_the_signature_of_the_other_library(secret: str) -> None:
    signature = other_side(secret).sign("msg_1", NOW, BODY.decode())
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(NOW.timestamp())),
        "Webhook-Signature": signature,
    }
    verify(headers, BODY, Secret(secret), NOW)


@given(st.binary(max_size=200), st.binary(min_size=24, max_size=64))
def test_what_we_sign_we_accept(body: bytes, key: bytes) -> None:
    secret = Secret("whsec_" + base64.b64encode(key).decode())
    verify(Signer([secret]).headers("msg_1", body, NOW), body, secret, NOW)


def test_the_vector_of_the_specification_fits() -> None:
    secret = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    moment = datetime.fromtimestamp(1614265330, UTC)
    headers = Signer([secret]).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', moment)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


ALTERED = {
    "id": {"webhook-id": "msg_2"},
    "timestamp": {"webhook-timestamp": str(int(NOW.timestamp()) + 1)},
    "signature": {"webhook-signature": "v1," + base64.b64encode(bytes(32)).decode()},
    "version": {"webhook-signature": "v2,x"},
    "empty signature": {"webhook-signature": ""},
    "signature that is no text": {"webhook-signature": "v1,\udcff"},
    "timestamp that is no number": {"webhook-timestamp": "now"},
    "timestamp with a sign": {"webhook-timestamp": f"+{int(NOW.timestamp())}"},
    "huge timestamp": {"webhook-timestamp": "9" * 400},
}


def test_an_altered_header_is_refused(subtests: pytest.Subtests) -> None:
    for what in list(ALTERED):
        with subtests.test(what=what):
            headers = Signer([Secret(WHSEC)]).headers("msg_1", BODY, NOW)
            with pytest.raises(BadSignature):
                verify({**headers, **ALTERED[what]}, BODY, Secret(WHSEC), NOW)


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_refused(missing: str) -> None:
    headers = Signer([Secret(WHSEC)]).headers("msg_1", BODY, NOW)
    del headers[missing]
    with pytest.raises(BadSignature):
        verify(headers, BODY, Secret(WHSEC), NOW)


def test_another_body_or_secret_is_refused() -> None:
    headers = Signer([Secret(WHSEC)]).headers("msg_1", BODY, NOW)
    with pytest.raises(BadSignature):
        verify(headers, BODY + b" ", Secret(WHSEC), NOW)
    with pytest.raises(BadSignature):
        verify(headers, BODY, Secret(PLAIN), NOW)


def test_only_a_message_from_now_is_accepted(subtests: pytest.Subtests) -> None:
    for age_s, fresh in [(0, True), (300, True), (301, False), (-300, True), (-301, False)]:
        with subtests.test(age_s=age_s, fresh=fresh):
            headers = Signer([Secret(WHSEC)]).headers("msg_1", BODY, NOW)
            later = NOW + timedelta(seconds=age_s)
            if fresh:
                verify(headers, BODY, Secret(WHSEC), later)
            else:
                with pytest.raises(BadSignature):
                    verify(headers, BODY, Secret(WHSEC), later)


def test_during_a_rotation_either_secret_verifies() -> None:
    headers = Signer([Secret(WHSEC), Secret(PLAIN)]).headers("msg_1", BODY, NOW)
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (WHSEC, PLAIN):
        verify(headers, BODY, Secret(secret), NOW)


def test_a_bad_secret_is_refused_without_being_shown(subtests: pytest.Subtests) -> None:
    for secret in [
        "",
        "whsec_",
        "whsec_!!!!",
        "whsec_!!!!" + base64.b64encode(KEY).decode(),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
    ]:
        with subtests.test(secret=secret):
            with pytest.raises(ValueError) as caught:
                Signer([Secret(secret)])
            assert secret in {"", "whsec_"} or secret not in str(caught.value)


def test_signing_without_a_secret_is_refused() -> None:
    with pytest.raises(ValueError):
        Signer([])


def test_an_event_id_that_could_confuse_is_refused(subtests: pytest.Subtests) -> None:
    for event_id in ["", "a.b", "a b", "a\r\nb", "ü", "x" * 256]:
        with subtests.test(event_id=event_id), pytest.raises(ValueError):
            Signer([Secret(WHSEC)]).headers(event_id, BODY, NOW)


def test_a_signer_does_not_show_its_keys() -> None:
    signer = Signer([Secret(PLAIN)])
    assert PLAIN not in f"{signer} {signer!r}"
