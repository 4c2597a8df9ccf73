"""What is sealed can be opened with the same key for the same use, and otherwise not at all."""

from __future__ import annotations

import pytest

from gpuherd.adapters.sealer import AesGcmSealer
from gpuherd.domain.errors import SecretsKeyMissing, SecretUnreadable
from gpuherd.domain.secret import Secret

KEY, OTHER = Secret("k" * 32), Secret("o" * 32)


@pytest.mark.parametrize("value", ["", "hf_token", "zwei\nZeilen", "ключ 🔑"])
def test_what_is_sealed_comes_back(value: str) -> None:
    sealed = AesGcmSealer([KEY]).seal(Secret(value), "env/a/A")
    assert AesGcmSealer([KEY]).unseal(sealed, "env/a/A") == Secret(value)
    assert not value or value not in sealed


def test_the_same_value_is_sealed_differently_each_time() -> None:
    sealer = AesGcmSealer([KEY])
    assert sealer.seal(Secret("x"), "a") != sealer.seal(Secret("x"), "a")


def test_another_key_is_named_and_opens_nothing() -> None:
    sealed = AesGcmSealer([KEY]).seal(Secret("canary"), "a")
    with pytest.raises(SecretUnreadable, match="GPUHERD_SECRETS_KEY") as caught:
        AesGcmSealer([OTHER]).unseal(sealed, "a")
    assert sealed.split(".")[1] in caught.value.message
    assert "canary" not in caught.value.message


def test_after_a_change_of_the_key_both_open_and_the_new_one_seals() -> None:
    old, new = AesGcmSealer([KEY]), AesGcmSealer([OTHER])
    both = AesGcmSealer([OTHER, KEY])
    assert both.unseal(old.seal(Secret("x"), "a"), "a") == Secret("x")
    assert new.unseal(both.seal(Secret("x"), "a"), "a") == Secret("x")
    assert both.digests("asked") == (*new.digests("asked"), *old.digests("asked"))


def test_without_a_key_nothing_is_kept_and_what_to_do_is_said() -> None:
    keyless = AesGcmSealer([])
    for refused in (keyless.check, lambda: keyless.seal(Secret("x"), "a"), lambda: keyless.digests("x")):
        with pytest.raises(SecretsKeyMissing, match="GPUHERD_SECRETS_KEY"):
            refused()
    with pytest.raises(SecretUnreadable, match="has none"):
        keyless.unseal(AesGcmSealer([KEY]).seal(Secret("x"), "a"), "a")


def test_it_opens_for_no_other_use() -> None:
    sealer = AesGcmSealer([KEY])
    with pytest.raises(SecretUnreadable, match="was changed"):
        sealer.unseal(sealer.seal(Secret("x"), "env/a/A"), "env/b/A")


@pytest.mark.parametrize("change", [lambda it: it[:-4], lambda it: it[:-3] + "AAA", lambda it: it + "*"])
def test_a_text_that_was_changed_is_not_believed(change) -> None:
    sealer = AesGcmSealer([KEY])
    with pytest.raises(SecretUnreadable):
        sealer.unseal(change(sealer.seal(Secret("some value"), "a")), "a")


@pytest.mark.parametrize("text", ["", "plain", "v2.abc.def"])
def test_what_was_never_sealed_is_refused(text: str) -> None:
    with pytest.raises(SecretUnreadable):
        AesGcmSealer([KEY]).unseal(text, "a")
