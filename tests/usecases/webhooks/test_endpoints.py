"""Endpoints hear of every instance, with a secret of their own that is written down nowhere."""

from __future__ import annotations

from datetime import timedelta

import pytest
from standardwebhooks.webhooks import Webhook

from gpuherd.adapters.sql.service_tables import delivery as delivery_table
from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance.instance_event import ACCOUNT, Event
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState
from gpuherd.domain.webhooks.webhook_endpoint import KeyRing
from gpuherd.domain.webhooks.webhook_signing import Signer, verify
from gpuherd.ports.webhook_port import DeliveryFilter
from gpuherd.usecases.events.manage_webhooks import EndpointCache
from tests.support.herd import ROOT_KEY, Herd
from tests.support.webhooks.receivers import BROKEN, DOWN, GONE, OK, DeliveryAttempt, Hooks

ALL = "https://all.example.com/hook"
SOME = "https://some.example.com/hook?token=canary-in-the-query"
OWN = "https://own.example.com/hook?key=canary-of-the-instance"


@pytest.fixture
def hooks(herd: Herd) -> Hooks:
    it = Hooks(herd.clock)
    herd.receiver.instead = it
    return it


async def rent(herd: Herd, url: str | None = None) -> None:
    await herd.launch(webhook_url=url)
    await herd.run_for(timedelta(minutes=2))


def types(visits: list[DeliveryAttempt]) -> list[str]:
    return [it.event["type"].removeprefix("instance.") for it in visits]


def signed(visit: DeliveryAttempt) -> dict[str, str]:
    """Return the headers that this try had."""
    assert visit.secrets is not None
    return Signer(visit.secrets).headers(visit.event_id, visit.body, visit.at)


def check(visit: DeliveryAttempt, secret: Secret) -> None:
    """Verify with ours and, at the time of the try, with somebody else's library."""
    verify(signed(visit), visit.body, secret, visit.at)
    theirs = Webhook(secret.reveal()).sign(visit.event_id, visit.at, visit.body.decode())
    assert theirs in signed(visit)["webhook-signature"].split(" ")


async def deliveries(herd: Herd) -> list[Delivery]:
    return [await herd.outbox.get(row.id) for row in sorted(herd.rows(delivery_table), key=lambda r: r.id)]


ORPHAN = {
    "cloudInstanceId": "m-1",
    "verdict": "foreign",
    "hourlyPrice": None,
    "productName": None,
    "region": None,
}


async def test_each_endpoint_hears_what_it_asked_for_and_the_instances_own_url_all(
    herd: Herd, hooks: Hooks
) -> None:
    everything = await herd.add_endpoint(ALL)
    some = await herd.add_endpoint(SOME, ("instance.ready", "instance.failed"))
    await rent(herd, OWN)
    assert types(hooks.at(ALL)) == types(hooks.at(OWN)) == ["created", "starting", "running", "ready"]
    assert types(hooks.at(SOME)) == ["ready"]
    assert {it.secrets for it in hooks.at(OWN)} == {None}
    for visit in hooks.at(ALL):
        check(visit, everything.secret)
    check(hooks.at(SOME)[0], some.secret)
    with pytest.raises(Exception, match="no signature fits"):
        verify(signed(hooks.at(ALL)[0]), hooks.at(ALL)[0].body, some.secret, hooks.at(ALL)[0].at)


async def test_an_instance_without_a_url_is_told_to_endpoints_all_the_same(herd: Herd, hooks: Hooks) -> None:
    await herd.add_endpoint(ALL)
    await rent(herd)
    assert len(hooks.at(ALL)) == 4


async def test_the_query_of_an_instances_url_is_not_told_to_endpoints(herd: Herd, hooks: Hooks) -> None:
    await herd.add_endpoint(ALL)
    await rent(herd, OWN)
    assert {it.event["data"]["webhookUrl"] for it in hooks.at(ALL)} == {"https://own.example.com/hook?***"}
    assert {it.event["data"]["webhookUrl"] for it in hooks.at(OWN)} == {OWN}


async def test_an_event_and_its_deliveries_are_written_together(herd: Herd) -> None:
    await herd.add_endpoint(ALL)
    await herd.launch()
    # Nothing has run yet.
    (one,) = await deliveries(herd)
    assert (one.type, one.state, one.url) == ("instance.created", DeliveryState.PENDING, ALL)
    assert f"delivery:{one.id}" in {row.key for row in herd.rows(herd.tables.job)}


@pytest.mark.proves("F53")
async def test_after_a_rotation_both_secrets_verify_for_a_day(herd: Herd, hooks: Hooks) -> None:
    old = await herd.add_endpoint(ALL, ("instance.created",))
    new = await herd.rotate_endpoint(old.endpoint.id)
    assert new.secret.reveal() != old.secret.reveal()
    await herd.launch()
    await herd.run_jobs_for(timedelta(seconds=1))
    check(hooks.visits[0], old.secret)
    check(hooks.visits[0], new.secret)
    await herd.clock.sleep(timedelta(hours=24).total_seconds())
    await herd.launch()
    await herd.run_jobs_for(timedelta(seconds=1))
    assert hooks.visits[-1].secrets == (new.secret,)


@pytest.mark.proves("F53")
async def test_a_secret_that_is_rotated_in_the_middle_of_the_retries_signs_the_next_try(
    herd: Herd, hooks: Hooks
) -> None:
    hooks.answer = lambda _url, _body: BROKEN if len(hooks.visits) < 1 else OK
    old = await herd.add_endpoint(ALL, ("instance.created",))
    await herd.launch()
    await herd.run_jobs_for(timedelta(seconds=1))
    new = await herd.rotate_endpoint(old.endpoint.id)
    await herd.run_jobs_for(timedelta(seconds=10))
    first, second = hooks.visits
    assert (first.event_id, first.body) == (second.event_id, second.body)
    assert first.secrets == (old.secret,)
    assert second.secrets == (new.secret, old.secret)


@pytest.mark.proves("F52")
async def test_410_disables_the_endpoint_until_somebody_enables_it(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda _url, _body: GONE
    made = await herd.add_endpoint(ALL)
    await rent(herd)
    assert len(hooks.visits) == 1
    disabled = await herd.get_endpoint(made.endpoint.id)
    assert (disabled.is_enabled, disabled.disabled_reason) == (False, "the receiver answered 410")
    assert {it.state for it in await deliveries(herd)} == {DeliveryState.DEAD}
    hooks.answer = lambda _url, _body: OK
    await herd.enable_endpoint(made.endpoint.id)
    assert await herd.replay_since(made.endpoint.created_at, DeliveryFilter.DEAD) >= 1
    await herd.run_jobs_for(timedelta(seconds=10))
    assert types(hooks.arrived)[0] == "created"


async def test_a_disabled_endpoint_gets_no_new_deliveries(herd: Herd, hooks: Hooks) -> None:
    made = await herd.add_endpoint(ALL)
    await herd.disable_endpoint(made.endpoint, "for a test")
    await herd.launch()
    assert await deliveries(herd) == []


async def test_what_is_on_its_way_to_a_removed_endpoint_becomes_a_dead_letter(
    herd: Herd, hooks: Hooks
) -> None:
    made = await herd.add_endpoint(ALL)
    await herd.launch()
    await herd.remove_endpoint(made.endpoint.id)
    await herd.run_jobs_for(timedelta(seconds=1))
    (one,) = await deliveries(herd)
    assert (one.state, one.last_error) == (DeliveryState.DEAD, "removed: the endpoint is no longer there")
    assert hooks.visits == []


async def test_another_process_knows_a_new_endpoint_after_its_next_refresh(herd: Herd) -> None:
    other = EndpointCache(herd.endpoints, herd.keys, herd.clock)
    made = await herd.add_endpoint(ALL)
    assert other.current() == ()
    await other.refresh()
    assert other.current() == (made.endpoint,)


@pytest.mark.proves("F48")
async def test_a_receiver_that_is_down_does_not_hold_up_other_receivers_of_the_same_instance(
    herd: Herd, hooks: Hooks
) -> None:
    hooks.answer = lambda url, _body: DOWN if url == ALL else OK
    await herd.add_endpoint(ALL)
    await herd.add_endpoint("https://well.example.com/hook")
    await rent(herd, OWN)
    assert types(hooks.arrived).count("ready") == 2


async def test_account_events_reach_endpoints(herd: Herd) -> None:
    made = await herd.add_endpoint(ALL)
    event = Event(ACCOUNT, 7, "instance.orphan_detected", herd.clock.now(), details=ORPHAN)
    told = herd.account_outbox_entries(event)
    (one,) = told.deliveries
    assert (one.endpoint_id, one.instance_id, one.sequence) == (made.endpoint.id, ACCOUNT, 7)
    assert b'"cloudInstanceId":"m-1"' in one.body
    assert b'"sequence":7' in one.body
    assert [it.instance_id for it in told.jobs] == [None]


async def test_events_that_are_nobodys_business_stay_here(herd: Herd) -> None:
    await herd.add_endpoint(ALL)
    event = Event(ACCOUNT, 1, "instance.planned", herd.clock.now(), details=ORPHAN)
    assert herd.account_outbox_entries(event).deliveries == ()


async def test_no_secret_is_in_the_database(herd: Herd, hooks: Hooks) -> None:
    made = await herd.add_endpoint(ALL)
    again = await herd.rotate_endpoint(made.endpoint.id)
    await rent(herd)
    assert hooks.arrived
    written = herd.stored_bytes()
    assert ALL.encode() in written
    for secret in (made.secret, again.secret, ROOT_KEY):
        text = secret.reveal().removeprefix("whsec_").encode()
        assert text not in written and text[:16] not in written


async def test_what_cannot_be_signed_waits_until_the_secret_is_rotated(herd: Herd, hooks: Hooks) -> None:
    made = await herd.add_endpoint(ALL, ("instance.created",))
    await herd.launch()
    lost = KeyRing([Secret("another root key altogether")])
    herd.lose_webhook_root_key(lost)
    await herd.run_jobs_for(timedelta(minutes=5))
    assert hooks.visits == []
    # A replica that is wrongly configured must not switch off what works elsewhere.
    assert (await herd.get_endpoint(made.endpoint.id)).is_enabled
    rotated = await herd.rotate_endpoint(made.endpoint.id, webhook_keys=lost)
    await herd.run_jobs_for(timedelta(minutes=2))
    (visit,) = hooks.arrived
    assert visit.secrets == (rotated.secret,)


async def test_what_cannot_be_signed_is_given_up_in_the_end(herd: Herd, hooks: Hooks) -> None:
    await herd.add_endpoint(ALL, ("instance.created",))
    await herd.launch()
    herd.lose_webhook_root_key(KeyRing([Secret("another root key altogether")]))
    await herd.clock.sleep(timedelta(hours=96).total_seconds())
    await herd.run_jobs_for(timedelta(minutes=1))
    (one,) = await deliveries(herd)
    assert (one.state, hooks.visits) == (DeliveryState.DEAD, [])
    assert one.last_error == "expired: the root key of the receiver's secret is not here"


async def test_there_is_a_limit_to_endpoints(herd: Herd) -> None:
    for n in range(20):
        await herd.add_endpoint(f"https://example.com/{n}")
    with pytest.raises(Conflict, match="remove one first"):
        await herd.add_endpoint(ALL)
