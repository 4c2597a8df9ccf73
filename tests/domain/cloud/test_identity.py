"""A database belongs to one cloud: who may use it, and what is said to others."""

from __future__ import annotations

import pytest

from gpuherd.domain.cloud.account_identity import (
    SIMULATOR,
    CloudClaim,
    CloudIdentity,
    account_digest,
    judge_claim,
    refusal_words,
)
from gpuherd.domain.secret import Secret

NOVITA = CloudIdentity(simulated=False, base_url="https://api.novita.ai")
PROXY = CloudIdentity(simulated=False, base_url="https://proxy.example")


@pytest.mark.parametrize("holds_records", [True, False])
@pytest.mark.parametrize("cloud", [SIMULATOR, NOVITA])
def test_its_own_cloud_may_always_use_it(cloud: CloudIdentity, holds_records: bool) -> None:
    assert judge_claim(cloud, cloud, holds_records=holds_records) is CloudClaim.MATCHES


@pytest.mark.parametrize(("stored", "asked"), [(SIMULATOR, NOVITA), (NOVITA, SIMULATOR), (NOVITA, PROXY)])
def test_another_cloud_is_refused_as_soon_as_anything_is_on_record(
    stored: CloudIdentity, asked: CloudIdentity
) -> None:
    assert judge_claim(stored, asked, holds_records=True) is CloudClaim.REFUSED
    assert judge_claim(stored, asked, holds_records=False) is CloudClaim.TAKES


@pytest.mark.parametrize("holds_records", [True, False])
def test_one_of_a_version_that_did_not_tell_takes_the_cloud_of_its_next_start(holds_records: bool) -> None:
    assert judge_claim(None, NOVITA, holds_records=holds_records) is CloudClaim.TAKES


@pytest.mark.parametrize(
    ("stored", "asked", "todo"),
    [
        (SIMULATOR, NOVITA, "GPUHERD_DATABASE_URL"),
        (NOVITA, SIMULATOR, "GPUHERD_DATABASE_URL"),
        (NOVITA, PROXY, "gpuherd db rebind"),
    ],
)
def test_the_refusal_names_both_clouds_and_the_way_out(
    stored: CloudIdentity, asked: CloudIdentity, todo: str
) -> None:
    words = refusal_words(stored, asked, "/data/gpuherd.db")
    assert all(it in words for it in ("/data/gpuherd.db", stored.words, asked.words, todo))


def test_an_account_is_known_again_by_its_key_and_only_with_the_same_salt() -> None:
    assert account_digest("salt", Secret("sk_1")) == account_digest("salt", Secret("sk_1"))
    assert account_digest("salt", Secret("sk_1")) != account_digest("salt", Secret("sk_2"))
    assert account_digest("salt", Secret("sk_1")) != account_digest("other", Secret("sk_1"))
    assert "sk_1" not in account_digest("salt", Secret("sk_1"))
