"""Secrets of endpoints come from a root key, and from what is stored: neither alone is enough."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_endpoint import KeyRing, WebhookEndpoint
from gpuherd.domain.webhooks.webhook_signing import Signer, verify

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = Secret("the old root key"), Secret("the new root key")
DAY = timedelta(days=1)


def an_endpoint(ring: KeyRing, **changes: object) -> WebhookEndpoint:
    fields = {"id": "ep_1", "url": "https://example.com/", "created_at": NOW, "root": ring.newest}
    return WebhookEndpoint(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_secret_is_always_the_same_and_can_sign() -> None:
    ring = KeyRing([OLD])
    secret = ring.secret(an_endpoint(ring))
    assert secret.reveal().startswith("whsec_")
    assert secret == KeyRing([Secret(OLD.reveal())]).secret(an_endpoint(ring))
    verify(Signer([secret]).headers("msg_1", b"{}", NOW), b"{}", secret, NOW)


@given(st.lists(st.tuples(st.text(min_size=1), st.integers(1, 99)), min_size=2, unique=True))
def test_each_endpoint_and_generation_has_its_own(subjects: list[tuple[str, int]]) -> None:
    ring = KeyRing([OLD])
    made = {ring.secret(an_endpoint(ring, id=id_, generation=n)).reveal() for id_, n in subjects}
    assert len(made) == len(subjects)


def test_another_root_gives_another_secret() -> None:
    old, new = KeyRing([OLD]), KeyRing([NEW])
    assert old.newest != new.newest
    assert old.secret(an_endpoint(old)) != new.secret(an_endpoint(new))


def test_a_new_root_does_not_change_the_secret_of_an_endpoint_that_is_there() -> None:
    before, after = KeyRing([OLD]), KeyRing([NEW, OLD])
    endpoint = an_endpoint(before)
    assert after.newest == KeyRing([NEW]).newest
    assert after.signing_secrets(endpoint, NOW) == (before.secret(endpoint),)


def test_a_rotation_moves_an_endpoint_to_the_new_root_and_both_sign_for_a_day() -> None:
    before, after = KeyRing([OLD]), KeyRing([NEW, OLD])
    endpoint = an_endpoint(before)
    rotated = endpoint.rotated(after.newest, "fresh", NOW)
    both = (after.secret(rotated), before.secret(endpoint))
    assert after.signing_secrets(rotated, NOW + DAY - timedelta(microseconds=1)) == both
    assert after.signing_secrets(rotated, NOW + DAY) == both[:1]


def test_an_endpoint_from_before_there_were_nonces_keeps_its_secret() -> None:
    ring = KeyRing([OLD])
    # As the version before has derived it.
    assert ring.secret(an_endpoint(ring)).reveal() == "whsec_eFMrBMBcj/lNbVnojhYsqqAMDBEGwW8vmJK93S7vq6o="
    assert ring.secret(an_endpoint(ring, nonce="some")) != ring.secret(an_endpoint(ring))


def test_a_lost_root_signs_nothing_rather_than_something_else() -> None:
    endpoint = an_endpoint(KeyRing([OLD]))
    ring = KeyRing([NEW])
    assert not ring.knows(endpoint)
    assert ring.signing_secrets(endpoint, NOW) == ()
    with pytest.raises(KeyError):
        ring.secret(endpoint)
    rotated = endpoint.rotated(ring.newest, "fresh", NOW)
    assert ring.signing_secrets(rotated, NOW) == (ring.secret(rotated),)


def test_the_fingerprint_gives_nothing_away() -> None:
    ring = KeyRing([OLD])
    assert OLD.reveal() not in repr(an_endpoint(ring))
    assert ring.newest not in ring.secret(an_endpoint(ring)).reveal()


def test_there_must_be_a_root() -> None:
    with pytest.raises(ValueError, match="root key"):
        KeyRing([])


def test_an_endpoint_wants_all_types_or_those_it_named_while_it_is_enabled() -> None:
    every = an_endpoint(KeyRing([OLD]))
    some = replace(every, events=("instance.ready",))
    assert every.wants("instance.created") and some.wants("instance.ready")
    assert not some.wants("instance.created")
    disabled = some.disabled("gone", NOW)
    assert not disabled.wants("instance.ready")
    assert disabled.disabled("later", NOW + DAY) == disabled
    assert disabled.enabled() == some
