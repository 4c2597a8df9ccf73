"""What a key looks like, and what it may do."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.api_key import (
    ADMIN,
    SYSTEM_CALLER,
    ApiKey,
    Caller,
    Scope,
    digest_of,
    new_key,
    new_key_id,
)
from tests.support.fake_clock import START
from tests.support.keys import key_id_in

KEY = ApiKey("adaadaad", digest_of(b"x").hex(), "", (Scope.READ,), START)


@given(st.integers(0, 2**40 - 1), st.integers(0, 2**256 - 1))
def test_a_key_has_its_id_its_secret_and_a_checksum(id_bits: int, secret_bits: int) -> None:
    key_id = new_key_id(id_bits)
    text = new_key(key_id, secret_bits).reveal()
    assert re.fullmatch(r"ghk_[0-9a-z]{8}_[0-9A-Za-z]{49}", text)
    assert key_id_in(text) == key_id


@given(st.integers(0, 2**40 - 1), st.integers(0, 2**256 - 1), st.integers(0, 61), st.sampled_from("aZ09_"))
def test_a_mistyped_key_is_known_as_such(id_bits: int, secret_bits: int, place: int, char: str) -> None:
    text = new_key(new_key_id(id_bits), secret_bits).reveal()
    wrong = text[:place] + char + text[place + 1 :]
    assert (key_id_in(wrong) is None) == (wrong != text)


@given(st.integers(0, 2**256 - 1), st.integers(0, 2**256 - 1))
def test_two_secrets_are_two_keys(one: int, other: int) -> None:
    keys = {new_key("adaadaad", bits).reveal() for bits in (one, other)}
    assert len(keys) == (1 if one == other else 2)


def test_a_key_does_not_show_itself() -> None:
    assert str(new_key("adaadaad", 7)) == "***"


def test_admin_includes_write_includes_read() -> None:
    order = [Scope.READ, Scope.WRITE, Scope.ADMIN]
    for i, wide in enumerate(order):
        assert [wide.includes(it) for it in order] == [n <= i for n in range(3)]
    assert replace(KEY, scopes=(Scope.WRITE, Scope.READ)).scope is Scope.WRITE
    assert replace(KEY, scopes=(Scope.READ, Scope.ADMIN)).scope is Scope.ADMIN


def test_a_key_is_valid_until_it_expires_or_is_revoked(subtests: pytest.Subtests) -> None:
    for key, valid in [
        (KEY, True),
        (replace(KEY, expires_at=START + timedelta.resolution), True),
        (replace(KEY, expires_at=START), False),
        (replace(KEY, revoked_at=START - timedelta(days=1)), False),
        (replace(KEY, revoked_at=START + timedelta(days=1)), False),
    ]:
        with subtests.test(key=key, valid=valid):
            assert key.is_valid(START) is valid


def test_only_an_admin_sees_what_is_not_his() -> None:
    ada = Caller("adaadaad", Scope.WRITE)
    assert (ada.owner, ada.may_see("adaadaad"), ada.may_see("bobbobbo")) == ("adaadaad", True, False)
    for admin in (ADMIN, SYSTEM_CALLER, Caller("bobbobbo", Scope.ADMIN)):
        assert (admin.owner, admin.may_see("adaadaad")) == (None, True)
