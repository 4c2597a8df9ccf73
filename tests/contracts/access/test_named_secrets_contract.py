"""Named secrets on both databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuherd.adapters.stores.access_store import SqlNamedSecrets
from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.secret import NamedSecret
from tests.contracts.conftest import MEMORY
from tests.support.fake_clock import START

ONE = NamedSecret("mine", "hf", "v1.key.sealed", START, START)
RECORD = ADMIN.audit_record("secret.set", "hf", START)


@pytest.fixture
def secrets(request: pytest.FixtureRequest, database_url: str) -> SqlNamedSecrets:
    if database_url == MEMORY:
        pytest.skip("no store in memory has secrets")
    kept: SqlNamedSecrets = request.getfixturevalue("store").secrets
    return kept


async def test_a_secret_is_kept_by_owner_and_name(secrets: SqlNamedSecrets) -> None:
    assert await secrets.put(ONE, RECORD) == ONE
    other = replace(ONE, owner="other", sealed="v1.key.other")
    await secrets.put(other, RECORD)
    assert await secrets.find("mine", "hf") == ONE
    assert await secrets.list_of("other") == (other,)
    assert await secrets.find("mine", "nothing") is None


async def test_a_change_keeps_when_it_was_made(secrets: SqlNamedSecrets) -> None:
    await secrets.put(ONE, RECORD)
    later = START + timedelta(hours=1)
    changed = replace(ONE, sealed="v1.key.new", created_at=later, changed_at=later)
    assert await secrets.put(changed, RECORD) == replace(changed, created_at=START)


async def test_the_same_value_sealed_anew_does_not_undo_a_change(secrets: SqlNamedSecrets) -> None:
    await secrets.put(ONE, RECORD)
    assert await secrets.reseal(ONE, "v1.new.sealed")
    assert await secrets.list_all() == (replace(ONE, sealed="v1.new.sealed"),)
    # Somebody has set it since `ONE` was read.
    assert not await secrets.reseal(ONE, "v1.new.again")
    assert await secrets.find("mine", "hf") == replace(ONE, sealed="v1.new.sealed")


async def test_what_is_removed_is_gone_and_told_once(secrets: SqlNamedSecrets) -> None:
    await secrets.put(ONE, RECORD)
    assert await secrets.remove("mine", "hf", RECORD)
    assert not await secrets.remove("mine", "hf", RECORD)
    assert await secrets.list_of("mine") == ()
