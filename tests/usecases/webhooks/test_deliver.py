"""Webhooks on their way: what a receiver hears, in which order, and for how long it is waited for."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.adapters.sql.service_tables import delivery as delivery_table
from gpuherd.domain.backoff import DELAYS_S
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.job import Done, Snooze
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState
from gpuherd.ports.instance_port import Change
from gpuherd.ports.webhook_port import DeliveryResult, DeliveryUpdate
from tests.support.builders import a_delivery, a_running_instance
from tests.support.herd import Herd
from tests.support.webhooks.receivers import BROKEN, DOWN, GONE, MISSING, MOVED, OK, Hooks

URL = "https://hook.example.com/one"
BODY = b'{"type":"instance.created","data":{"sequence":1}}'
OTHER = "https://other.example.com/two"


@pytest.fixture
def hooks(herd: Herd) -> Hooks:
    it = Hooks(herd.clock)
    herd.receiver.instead = it
    return it


async def rent(herd: Herd, url: str = URL) -> Instance:
    """Rent a machine and let it become usable; its webhooks go out on the way."""
    instance = await herd.launch(webhook_url=url)
    await herd.run_for(timedelta(minutes=2))
    return await herd.get(instance.id)


async def put(herd: Herd, n: int = 1, **changes: Any) -> Delivery:
    """Put one webhook on its way; nothing else happens to its instance."""
    one = a_delivery(n, **{"url": URL, "created_at": herd.clock.now(), "body": BODY, **changes})
    jobs = (herd.delivery_job(one),)
    await herd.instances.add(Change(a_running_instance(n), deliveries=(one,), jobs=jobs))
    return one


async def deliveries(herd: Herd) -> list[Delivery]:
    return [await herd.outbox.get(row.id) for row in sorted(herd.rows(delivery_table), key=lambda r: r.id)]


@pytest.mark.proves("F48")
async def test_a_receiver_that_is_down_for_three_days_hears_everything_once_and_in_order(
    herd: Herd, hooks: Hooks
) -> None:
    hooks.answer = lambda _url, _body: DOWN
    await rent(herd)
    await herd.run_jobs_for(timedelta(days=3))
    assert not hooks.arrived
    hooks.answer = lambda _url, _body: OK
    await herd.run_jobs_for(timedelta(hours=24))
    heard = hooks.arrived
    assert [it.event["type"] for it in heard] == [
        "instance.created",
        "instance.starting",
        "instance.running",
        "instance.ready",
    ]
    assert [it.sequence for it in heard] == sorted({it.sequence for it in heard})
    assert len({it.event_id for it in heard}) == len(heard)
    # The same id always comes with the same bytes.
    assert len({(it.event_id, it.body) for it in hooks.visits}) == len(heard)
    # Once one of them has arrived, nobody waits for a schedule that goes on for hours.
    assert heard[-1].at - heard[0].at < timedelta(seconds=5)


@pytest.mark.proves("F51")
async def test_the_order_holds_whenever_the_receiver_comes_back(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda _url, _body: DOWN
    for hour in (2, 13, 19):
        await rent(herd)
        await herd.run_jobs_for(timedelta(hours=hour))
    hooks.answer = lambda _url, _body: OK
    await herd.run_jobs_for(timedelta(hours=25))
    by_instance: dict[str, list[int]] = {}
    for visit in hooks.arrived:
        by_instance.setdefault(visit.event["data"]["instanceId"], []).append(visit.sequence)
    assert len(by_instance) == 3
    assert all(len(it) == 4 and it == sorted(it) for it in by_instance.values()), by_instance


async def test_an_event_that_always_fails_does_not_hold_up_those_after_it(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda _url, body: BROKEN if b"instance.created" in body[:40] else OK
    await rent(herd)
    assert [it.event["type"] for it in hooks.arrived] == [
        "instance.starting",
        "instance.running",
        "instance.ready",
    ]


async def test_a_repeat_is_not_held_up_by_an_earlier_event_that_always_fails(
    herd: Herd, hooks: Hooks
) -> None:
    bad = {"n": 0}

    def answer(_url: str, body: bytes) -> DeliveryResult:
        if b"instance.created" in body[:40]:
            return BROKEN
        bad["n"] += b"instance.ready" in body[:40]
        return BROKEN if b"instance.ready" in body[:40] and bad["n"] == 1 else OK

    hooks.answer = answer
    await rent(herd)
    assert hooks.arrived[-1].event["type"] == "instance.ready"
    (created, *_) = await deliveries(herd)
    # It was looked at once more before that repeat, but outside of its schedule.
    assert created.tries < len(created.log)


@pytest.mark.proves("F51")
async def test_a_later_event_does_not_overtake_one_that_was_never_tried(herd: Herd, hooks: Hooks) -> None:
    first = a_delivery(sequence=1, url=URL, body=BODY)
    second = a_delivery(sequence=2, url=URL, body=BODY)
    jobs = tuple(herd.delivery_job(it) for it in (first, second))
    await herd.instances.add(Change(a_running_instance(), deliveries=(first, second), jobs=jobs))
    outcome = await herd.run_job(jobs[1].id)
    assert isinstance(outcome, Snooze)
    await herd.book.snooze(jobs[1].id, outcome.delay)
    assert hooks.visits == []
    await herd.run_job(jobs[0].id)
    await herd.run_job(jobs[1].id)
    assert [it.event_id for it in hooks.arrived] == [first.id, second.id]


@pytest.mark.proves("F48")
async def test_ten_tries_on_the_schedule_and_then_a_dead_letter(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda _url, _body: MISSING
    one = await put(herd)
    await herd.run_jobs_for(timedelta(days=5))
    created = await herd.outbox.get(one.id)
    assert (created.state, created.tries, created.next_at) == (DeliveryState.DEAD, 10, None)
    assert created.last_error == "http_4xx: the receiver answered 404"
    times = [it.at for it in hooks.visits if it.event_id == created.id]
    waits = [(after - before).total_seconds() for before, after in itertools.pairwise(times)]
    assert len(waits) == len(DELAYS_S)
    gaps = list(zip(DELAYS_S, waits, strict=True))
    assert all(0.79 * planned <= wait <= 1.21 * planned for planned, wait in gaps[:-1])
    # Whatever the jitter was: a receiver that is back after three days is still asked.
    assert sum(waits) >= sum(DELAYS_S) and waits[-1] >= 0.79 * DELAYS_S[-1]


async def test_every_try_is_kept_with_time_status_class_and_duration(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda _url, _body: BROKEN
    hooks.takes_s = lambda _: 2.0
    await put(herd)
    await herd.run_jobs_for(timedelta(minutes=2))
    (created,) = await deliveries(herd)
    assert [(it.outcome, it.status, it.duration_ms) for it in created.log] == [("http_5xx", 500, 2000)] * 2
    assert created.tried_at == created.log[-1].at > created.log[0].at


@pytest.mark.proves("F52")
async def test_a_redirect_is_a_failure(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda _url, _body: MOVED
    await put(herd)
    await herd.run_jobs_for(timedelta(seconds=30))
    (created,) = await deliveries(herd)
    assert (created.state, created.tries, created.last_status) == (DeliveryState.PENDING, 2, 302)


@pytest.mark.proves("F52")
async def test_a_receiver_that_asks_for_time_gets_it(herd: Herd, hooks: Hooks) -> None:
    busy = DeliveryResult(False, 429, "throttled", "the receiver answered 429", 120.0, 0.0)
    hooks.answer = lambda _url, _body: busy if len(hooks.visits) < 1 else OK
    await put(herd)
    await herd.run_jobs_for(timedelta(minutes=5))
    first, second = hooks.visits
    assert timedelta(seconds=120) <= second.at - first.at < timedelta(seconds=121)


async def test_410_ends_all_deliveries_to_the_url_of_that_instance_and_no_other(
    herd: Herd, hooks: Hooks
) -> None:
    hooks.answer = lambda url, _body: GONE if url == URL else OK
    await rent(herd)
    await rent(herd, OTHER)
    assert len(hooks.at(URL)) == 1
    assert len(hooks.at(OTHER)) == 4
    mine = [it for it in await deliveries(herd) if it.url == URL]
    assert [(it.state, it.tries) for it in mine] == [(DeliveryState.DEAD, 1)] + [(DeliveryState.DEAD, 0)] * 3
    assert mine[1].last_error == "gone: the receiver answered 410 to an earlier event"


@pytest.mark.proves("F50")
async def test_a_crash_between_delivery_and_mark_sends_the_same_id_and_bytes_again(
    herd: Herd, hooks: Hooks
) -> None:
    await put(herd)
    (row,) = [it for it in herd.rows(herd.tables.job) if it.kind == "send_webhook"]
    written = herd.outbox.record_try

    async def crash(update: DeliveryUpdate) -> None:
        raise KeyboardInterrupt

    herd.outbox.record_try = crash  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await herd.run_job(row.id)
    herd.outbox.record_try = written  # type: ignore[method-assign]
    herd.queue.recover()
    assert isinstance(await herd.run_job(row.id), Done)
    first, second = hooks.visits
    assert (first.event_id, first.body) == (second.event_id, second.body)


async def test_a_delivery_that_waits_for_an_ejected_host_uses_up_no_try(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda _url, _body: DOWN
    for n in range(6):
        await put(herd, n)
    await herd.run_jobs_for(timedelta(seconds=20))
    # Five failures in a row, and the host is left alone.
    assert len(hooks.visits) == 5
    assert sorted(it.tries for it in await deliveries(herd)) == [0, 1, 1, 1, 1, 1]
    hooks.answer = lambda _url, _body: OK
    await herd.run_jobs_for(timedelta(minutes=1))
    assert {it.state for it in await deliveries(herd)} == {DeliveryState.DELIVERED}
    assert Counter(it.tries for it in await deliveries(herd)) == {1: 1, 2: 5}


async def test_an_ejected_host_is_nobody_elses_trouble(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda url, _body: DOWN if url == URL else OK
    for n in range(6):
        await put(herd, n)
    await herd.run_jobs_for(timedelta(seconds=10))
    began = herd.clock.now()
    await put(herd, 7, url=OTHER)
    await herd.run_jobs_for(timedelta(seconds=5))
    assert hooks.arrived[0].url == OTHER
    assert hooks.arrived[0].at - began < timedelta(seconds=1)


async def test_nothing_waits_for_ever_for_a_host_that_stays_away(herd: Herd, hooks: Hooks) -> None:
    for _ in range(5):
        herd.gate.try_acquire("hook.example.com")
        herd.gate.release("hook.example.com", succeeded=False, seconds=1.0)
    now = herd.clock.now()
    old = await put(herd, 1, created_at=now - timedelta(hours=96))
    young = await put(herd, 2, created_at=now - timedelta(hours=95))
    await herd.run_jobs_for(timedelta(seconds=1))
    given_up = await herd.outbox.get(old.id)
    assert (given_up.state, given_up.last_error) == (
        DeliveryState.DEAD,
        "expired: the receiver's host has failed too often lately",
    )
    assert (await herd.outbox.get(young.id)).state is DeliveryState.PENDING
    assert hooks.visits == []


async def test_the_last_try_comes_when_the_time_is_over(herd: Herd, hooks: Hooks) -> None:
    hooks.answer = lambda _url, _body: MISSING
    late = await put(herd, tries=6, created_at=herd.clock.now() - timedelta(hours=95))
    await herd.run_jobs_for(timedelta(hours=2))
    assert [it.at - hooks.visits[0].at for it in hooks.visits] == [timedelta(0), timedelta(hours=1)]
    assert (await herd.outbox.get(late.id)).state is DeliveryState.DEAD


async def test_a_replay_asks_a_url_again_that_was_gone_and_opens_it_for_what_follows(
    herd: Herd, hooks: Hooks
) -> None:
    hooks.answer = lambda _url, _body: GONE
    instance = await rent(herd)
    hooks.answer = lambda _url, _body: OK
    never_sent = (await deliveries(herd))[1]
    await herd.replay(never_sent.id)
    await herd.run_jobs_for(timedelta(seconds=5))
    assert (await herd.outbox.get(never_sent.id)).state is DeliveryState.DELIVERED
    await herd.stop(instance.id)
    await herd.run_for(timedelta(minutes=2))
    assert hooks.arrived[-1].event["type"] == "instance.exited"


async def test_a_look_before_its_time_also_hears_how_long_to_wait(herd: Herd, hooks: Hooks) -> None:
    busy = DeliveryResult(False, 503, "http_5xx", "the receiver answered 503", 300.0, 0.0)
    hooks.answer = lambda _url, _body: MISSING
    one = await put(herd)
    await herd.run_jobs_for(timedelta(seconds=2))
    planned = (await herd.outbox.get(one.id)).next_at
    hooks.answer = lambda _url, _body: busy
    await herd.replay(one.id)
    await herd.run_jobs_for(timedelta(seconds=1))
    after = await herd.outbox.get(one.id)
    assert (after.tries, len(after.log)) == (1, 2)
    assert planned is not None and after.next_at is not None
    assert after.next_at > planned + timedelta(minutes=4)
