"""The claim of a database for a cloud, on both databases."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.rental_tables import installation, instance, orphan
from gpuherd.adapters.sql.service_tables import replica
from gpuherd.adapters.stores.installation_store import ClaimedCloud, claim_cloud, unbind_cloud
from gpuherd.domain.cloud.account_identity import (
    SIMULATOR,
    CloudClaim,
    CloudIdentity,
    account_flag,
)
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.secret import Secret
from gpuherd.ports.instance_port import Change
from tests.support.builders import an_instance
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import Store, sqlalchemy_url

NOVITA = CloudIdentity(simulated=False, base_url="https://api.novita.ai")
PROXY = CloudIdentity(simulated=False, base_url="https://proxy.example")
KEY, OTHER_KEY = Secret("sk_one"), Secret("sk_two")
TIMEOUT = timedelta(seconds=10)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return sqlalchemy_url(request.getfixturevalue("fresh_postgres"))
    path = tmp_path / "gpuherd.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), path)
    return f"sqlite:///{path}"


def claim(store: Store, cloud: CloudIdentity, key: Secret = KEY) -> ClaimedCloud:
    store.flags.ensure("installation", "1a2b3c4d")
    return claim_cloud(store.database, cloud, key, store.clock.now(), TIMEOUT)


async def add(store: Store, it: Instance) -> None:
    await store.instances.add(Change(it))


def a_wish() -> Instance:
    return replace(an_instance(), cloud_id=None, status=Status.CREATING, settled=False)


def an_ended_one() -> Instance:
    return replace(an_instance(), cloud_id=None, goal=Goal.DELETED, status=Status.DELETED, settled=True)


async def test_the_first_cloud_keeps_it(store: Store) -> None:
    assert claim(store, NOVITA).claim is CloudClaim.TAKES
    await add(store, a_wish())
    again = claim(store, NOVITA)
    assert (again.claim, again.account_confirmed) == (CloudClaim.MATCHES, True)


@pytest.mark.parametrize(("first", "then"), [(SIMULATOR, NOVITA), (NOVITA, SIMULATOR), (NOVITA, PROXY)])
async def test_another_cloud_is_refused_while_anything_is_on_record(
    store: Store, first: CloudIdentity, then: CloudIdentity
) -> None:
    claim(store, first)
    assert claim(store, then).claim is CloudClaim.TAKES, "nothing was on record"
    claim(store, first)
    await add(store, an_ended_one())
    before = await store.everything()
    refused = claim(store, then)
    assert (refused.claim, refused.belongs_to) == (CloudClaim.REFUSED, first)
    assert await store.everything() == before


async def test_another_cloud_is_refused_beside_a_live_replica(store: Store, store_clock: FakeClock) -> None:
    claim(store, NOVITA)
    now = store_clock.now()
    row = {"id": "rep_1", "role": "all", "version": "1", "place": "here:1", "started_at": now, "seen_at": now}
    await store.run(sa.insert(replica).values(row))
    assert claim(store, SIMULATOR).claim is CloudClaim.REFUSED
    await store_clock.advance(60)
    assert claim(store, SIMULATOR).claim is CloudClaim.TAKES


async def test_an_order_about_an_orphan_belongs_to_its_cloud_too(store: Store) -> None:
    claim(store, NOVITA)
    now = store.clock.now()
    await store.run(
        sa.insert(orphan).values(
            cloud_id="m1", verdict="foreign", first_seen_at=now, judged_at=now, ordered="delete",
            ordered_by="admin", version=1, doc="{}",
        )
    )  # fmt: skip
    assert claim(store, SIMULATOR).claim is CloudClaim.REFUSED


async def test_another_key_is_not_believed_while_anything_depends_on_the_account(store: Store) -> None:
    claim(store, NOVITA)
    await add(store, a_wish())
    assert not claim(store, NOVITA, OTHER_KEY).account_confirmed
    assert claim(store, NOVITA, KEY).account_confirmed, "the key that was there before still is"


async def test_another_key_is_believed_where_nothing_depends_on_it(store: Store) -> None:
    claim(store, NOVITA)
    await add(store, an_ended_one())
    assert claim(store, NOVITA, OTHER_KEY).account_confirmed


async def test_a_confirmed_key_stays_confirmed(store: Store) -> None:
    claim(store, NOVITA)
    await add(store, a_wish())
    other = claim(store, NOVITA, OTHER_KEY)
    await store.flags.put(account_flag(other.account), "by somebody")
    assert claim(store, NOVITA, OTHER_KEY).account_confirmed
    assert claim(store, NOVITA, KEY).account_confirmed


async def test_one_of_an_older_version_with_something_in_it_takes_the_cloud_but_not_the_account(
    store: Store,
) -> None:
    await add(store, a_wish())
    claimed = claim(store, NOVITA)
    assert (claimed.claim, claimed.account_confirmed) == (CloudClaim.TAKES, False)


async def test_after_a_rebind_the_next_cloud_takes_it_and_its_account_is_confirmed_anew(store: Store) -> None:
    claim(store, NOVITA)
    await add(store, a_wish())
    assert unbind_cloud(store.database) == NOVITA
    claimed = claim(store, PROXY)
    assert (claimed.claim, claimed.account_confirmed) == (CloudClaim.TAKES, False)
    assert len(await store.rows(instance)) == 1


async def test_what_is_simulated_stays_with_the_simulator(store: Store) -> None:
    claim(store, SIMULATOR)
    await add(store, a_wish())
    assert unbind_cloud(store.database) == SIMULATOR
    assert claim(store, NOVITA).claim is CloudClaim.REFUSED


async def test_no_key_is_written_down(store: Store) -> None:
    claim(store, NOVITA)
    assert not any("sk_one" in row.value for row in await store.rows(installation))
