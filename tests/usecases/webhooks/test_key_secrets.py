"""Each API key has a webhook secret of its own: no tenant can forge or replay an event of another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from standardwebhooks.webhooks import Webhook

from gpuherd.adapters.sql.service_tables import api_key as key_table
from gpuherd.adapters.sql.service_tables import delivery as delivery_table
from gpuherd.adapters.stores.retention_store import SqlRetention
from gpuherd.domain.api_key import ADMIN, ADMIN_ID, Caller, Scope
from gpuherd.domain.errors import Conflict, NotFound, StaleWrite
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.domain.webhooks.webhook_endpoint import KeyRing
from gpuherd.domain.webhooks.webhook_signing import BadSignature, SignedWith, Signer, verify
from gpuherd.usecases.access.manage_keys import IssuedKey
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from tests.support.herd import ROOT_KEY, Herd
from tests.support.webhooks.receivers import DeliveryAttempt, Hooks

DAY = timedelta(days=1)
TICK = timedelta(seconds=1)
ADAS, BOBS = "https://ada.example.com/hook", "https://bob.example.com/hook"
# What every tenant of before knows: WEBHOOK_SECRET, which is the root key too.
COMMON = ROOT_KEY


@pytest.fixture
def hooks(herd: Herd) -> Hooks:
    it = Hooks(herd.clock)
    herd.receiver.instead = it
    return it


def caller_of(made: IssuedKey) -> Caller:
    return Caller(made.key.id, Scope.WRITE)


def own_secret(made: IssuedKey) -> Secret:
    assert made.webhook_secret is not None
    return made.webhook_secret


async def hear(herd: Herd, hooks: Hooks, caller: Caller, url: str = ADAS) -> DeliveryAttempt:
    """Rent as this caller, and return the latest try to send the first event."""
    request = LaunchRequest(f"job-{len(hooks.visits)}", herd.wish, webhook_url=url, caller=caller)
    await herd.launch_request(request)
    await herd.run_jobs_for(TICK)
    return hooks.at(url)[-1]


def fits(visit: DeliveryAttempt, secret: Secret) -> bool:
    """Tell whether a receiver with this secret takes what came for real."""
    assert visit.secrets is not None
    headers = Signer(visit.secrets).headers(visit.event_id, visit.body, visit.at)
    try:
        verify(headers, visit.body, secret, visit.at)
    except BadSignature:
        return False
    return True


def with_common(herd: Herd, *, also: bool = False) -> None:
    """Assemble the service anew, with a WEBHOOK_SECRET."""
    herd.rewire(common_webhook_secrets=(COMMON,), sign_with_common=also)


async def make_old_key(herd: Herd) -> Caller:
    """Make a key as it was before there were such secrets."""
    made = await herd.make_key()
    columns = [it for it in key_table.columns if it.name.startswith("webhook_")]
    forgotten = sa.update(key_table).where(key_table.c.id == made.key.id).values(dict.fromkeys(columns))
    await herd.database.write(lambda c: c.execute(forgotten))
    await herd.refresh_keys()
    return caller_of(made)


async def test_the_events_of_a_keys_instances_are_signed_with_its_own_secret_only(
    herd: Herd, hooks: Hooks
) -> None:
    with_common(herd)
    ada, bob = await herd.make_key(), await herd.make_key()
    visit = await hear(herd, hooks, caller_of(ada))
    assert fits(visit, own_secret(ada))
    # Somebody else's library finds the same.
    theirs = Webhook(own_secret(ada).reveal()).sign(visit.event_id, visit.at, visit.body.decode())
    assert visit.secrets is not None
    assert theirs == Signer(visit.secrets).headers(visit.event_id, visit.body, visit.at)["webhook-signature"]
    assert not fits(visit, own_secret(bob))
    assert not fits(visit, COMMON)


async def test_a_tenant_with_the_common_secret_cannot_derive_the_secret_of_another(
    herd: Herd, hooks: Hooks
) -> None:
    ada, bob = await herd.make_key(), await herd.make_key()
    endpoint = await herd.add_endpoint("https://all.example.com/")
    visit = await hear(herd, hooks, caller_of(ada), ADAS)
    # All that Bob knows: the root, the ids, his own record, and how it is done.
    ring = KeyRing([COMMON])
    assert bob.key.webhook_secret is not None
    guesses = [COMMON, own_secret(bob), ring.secret(replace(endpoint.endpoint, nonce=""))]
    for record in (bob.key.webhook_secret, replace(bob.key.webhook_secret, nonce="")):
        guess = ring.secret_of_key(ada.key.id, record)
        assert guess is not None
        guesses.append(guess)
    guesses.append(ring.secret(replace(endpoint.endpoint, nonce=bob.key.webhook_secret.nonce)))
    for guess in guesses:
        forged = Signer([guess]).headers(visit.event_id, visit.body, visit.at)
        for right in (own_secret(ada), endpoint.secret):
            with pytest.raises(BadSignature):
                verify(forged, visit.body, right, visit.at)


async def test_an_event_of_ones_own_cannot_be_replayed_to_the_receiver_of_another(
    herd: Herd, hooks: Hooks
) -> None:
    ada, bob = await herd.make_key(), await herd.make_key()
    own = await hear(herd, hooks, caller_of(bob), BOBS)
    assert fits(own, own_secret(bob))
    assert not fits(own, own_secret(ada))


async def test_after_a_rotation_both_secrets_sign_for_a_day(herd: Herd, hooks: Hooks) -> None:
    ada = await herd.make_key()
    caller, old = caller_of(ada), own_secret(ada)
    new = (await herd.rotate_webhook_secret(ada.key.id, caller)).secret
    assert new is not None
    assert new != old
    await herd.clock.sleep((DAY - 5 * TICK).total_seconds())
    both = await hear(herd, hooks, caller)
    assert (fits(both, new), fits(both, old)) == (True, True)
    await herd.clock.sleep((5 * TICK).total_seconds())
    one = await hear(herd, hooks, caller)
    assert (fits(one, new), fits(one, old)) == (True, False)


async def test_a_rotation_draws_what_nobody_could_know_before(herd: Herd) -> None:
    ada = await herd.make_key()
    new = await herd.rotate_webhook_secret(ada.key.id, caller_of(ada))
    assert ada.key.webhook_secret is not None
    stolen = ada.key.webhook_secret.rotated(
        KeyRing([COMMON]).newest, ada.key.webhook_secret.nonce, herd.clock.now()
    )
    assert KeyRing([COMMON]).secret_of_key(ada.key.id, stolen) != new.secret


async def test_a_key_from_before_stays_with_the_common_secret_until_it_is_rotated(
    herd: Herd, hooks: Hooks
) -> None:
    with_common(herd)
    caller = await make_old_key(herd)
    # The sender signs with the common one by itself.
    assert (await hear(herd, hooks, caller)).secrets is None
    shown = await herd.show_webhook_secret(caller.key_id, caller)
    assert (shown.signed_with, shown.secret) == (SignedWith.COMMON, None)
    new = (await herd.rotate_webhook_secret(caller.key_id, caller)).secret
    assert new is not None
    both = await hear(herd, hooks, caller)
    assert (fits(both, new), fits(both, COMMON)) == (True, True)
    await herd.clock.sleep(DAY.total_seconds())
    one = await hear(herd, hooks, caller)
    assert (fits(one, new), fits(one, COMMON)) == (True, False)


async def test_the_admin_key_signs_with_the_common_secret_and_is_not_rotated(
    herd: Herd, hooks: Hooks
) -> None:
    assert (await hear(herd, hooks, ADMIN)).secrets is None
    assert (await herd.show_webhook_secret(ADMIN_ID, ADMIN)).signed_with == SignedWith.NOTHING
    with_common(herd)
    assert (await herd.show_webhook_secret(ADMIN_ID, ADMIN)).signed_with == SignedWith.COMMON
    with pytest.raises(Conflict, match="WEBHOOK_SECRET"):
        await herd.rotate_webhook_secret(ADMIN_ID, ADMIN)


async def test_where_it_is_asked_for_the_common_secret_signs_beside_each_keys_own(
    herd: Herd, hooks: Hooks
) -> None:
    with_common(herd, also=True)
    ada = await herd.make_key()
    visit = await hear(herd, hooks, caller_of(ada))
    assert (fits(visit, own_secret(ada)), fits(visit, COMMON)) == (True, True)


async def test_a_test_is_signed_as_the_events_of_the_caller_are(herd: Herd, hooks: Hooks) -> None:
    ada = await herd.make_key()
    await herd.send_test(ADAS, caller_of(ada))
    assert fits(hooks.visits[0], own_secret(ada))


async def test_without_its_root_key_nothing_is_signed_with_another(herd: Herd, hooks: Hooks) -> None:
    ada = await herd.make_key()
    caller = caller_of(ada)
    herd.rewire(webhook_keys=KeyRing([Secret("another root")]))
    await herd.refresh_keys()
    await herd.launch_request(LaunchRequest("job", herd.wish, webhook_url=ADAS, caller=caller))
    await herd.run_jobs_for(TICK)
    assert hooks.visits == []
    assert {row.state for row in herd.rows(delivery_table)} == {DeliveryState.PENDING.value}
    with pytest.raises(Conflict, match="rotate the secret"):
        await herd.send_test(ADAS, caller)
    new = (await herd.rotate_webhook_secret(caller.key_id, caller)).secret
    assert new is not None
    await herd.run_jobs_for(timedelta(minutes=2))
    assert fits(hooks.visits[0], new)


async def delete_and_forget(herd: Herd) -> None:
    """Delete all instances, and let the records of them be pruned."""
    for it in herd.rows(herd.tables.instance):
        await herd.delete(it.id)
    await herd.run_for(timedelta(minutes=2))
    await herd.clock.sleep(DAY.total_seconds())
    assert await SqlRetention(herd.database).prune_instances(herd.clock.now() - TICK)
    assert herd.rows(herd.tables.instance) == []


async def test_a_replay_is_signed_with_the_keys_own_secret_when_the_instance_is_forgotten(
    herd: Herd, hooks: Hooks
) -> None:
    with_common(herd)
    ada, bob = await herd.make_key(), await herd.make_key()
    event_id = (await hear(herd, hooks, caller_of(ada))).event_id
    await delete_and_forget(herd)
    await herd.replay(event_id)
    await herd.run_jobs_for(TICK)
    again = hooks.visits[-1]
    assert again.event_id == event_id
    assert fits(again, own_secret(ada))
    assert not fits(again, own_secret(bob))
    assert not fits(again, COMMON)


async def test_the_webhooks_of_a_forgotten_instance_are_its_keys_to_see_and_to_replay(
    herd: Herd, hooks: Hooks
) -> None:
    ada, bob = await herd.make_key(), await herd.make_key()
    event_id = (await hear(herd, hooks, caller_of(ada))).event_id
    await delete_and_forget(herd)
    find = herd.find_delivery
    assert (await find(event_id, caller_of(ada))).id == event_id
    assert (await find(event_id, ADMIN)).id == event_id
    with pytest.raises(NotFound):
        await find(event_id, caller_of(bob))


async def test_what_belongs_to_a_key_that_is_no_longer_there_is_not_signed_with_the_common_secret(
    herd: Herd, hooks: Hooks
) -> None:
    with_common(herd)
    ada = await herd.make_key()
    removed = sa.delete(key_table).where(key_table.c.id == ada.key.id)
    await herd.database.write(lambda c: c.execute(removed))
    await herd.refresh_keys()
    await herd.launch_request(LaunchRequest("job", herd.wish, webhook_url=ADAS, caller=caller_of(ada)))
    await herd.run_jobs_for(TICK)
    assert hooks.visits == []


async def test_a_key_sees_its_own_secret_and_others_do_not(herd: Herd) -> None:
    ada, bob = await herd.make_key(), await herd.make_key()
    show, rotate = herd.show_webhook_secret, herd.rotate_webhook_secret
    assert (await show(ada.key.id, caller_of(ada))).secret == own_secret(ada)
    for_admins = await show(ada.key.id, ADMIN)
    assert (for_admins.signed_with, for_admins.secret) == (SignedWith.KEY, None)
    for forbidden in (show, rotate):
        with pytest.raises(NotFound):
            await forbidden(ada.key.id, caller_of(bob))
        with pytest.raises(NotFound):
            await forbidden(ADMIN_ID, caller_of(bob))


async def test_of_two_rotations_at_once_one_is_told_to_look_again(herd: Herd) -> None:
    ada = await herd.make_key()
    caller = caller_of(ada)
    await herd.rotate_webhook_secret(ada.key.id, caller)
    assert ada.key.webhook_secret is not None
    audit_record = caller.audit_record("key.rotate_webhook_secret", ada.key.id, herd.clock.now())
    with pytest.raises(StaleWrite):
        await herd.stores.keys.set_webhook_secret(ada.key, ada.key.webhook_secret, audit_record)


async def test_a_key_of_another_replica_that_is_not_yet_known_here_signs_all_the_same(
    herd: Herd, hooks: Hooks
) -> None:
    ada = await herd.make_key()
    # As a process that has not looked since.
    herd.rewire()
    assert fits(await hear(herd, hooks, caller_of(ada)), own_secret(ada))


async def test_what_is_stored_and_logged_is_not_enough_to_sign(herd: Herd) -> None:
    ada = await herd.make_key()
    new = (await herd.rotate_webhook_secret(ada.key.id, caller_of(ada))).secret
    assert new is not None
    stored = repr([herd.rows(table) for table in herd.tables.metadata.sorted_tables])
    for secret in (own_secret(ada), new):
        assert secret.reveal().removeprefix("whsec_") not in stored
    key = await herd.stores.keys.get(ada.key.id)
    assert key.webhook_secret is not None
    assert key.webhook_secret.nonce not in repr(key)
    assert key.webhook_secret.previous_nonce not in repr(key)
