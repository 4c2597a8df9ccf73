"""A receiver that takes its time takes nobody else's: workers side by side, on a clock that jumps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuherd.ports.instance_port import Change
from gpuherd.usecases.events.record_event import NewEvent
from tests.support.builders import a_delivery, a_running_instance
from tests.support.herd import Herd
from tests.support.webhooks.receivers import OK, Hooks, send_side_by_side

SLOW = "https://slow.example.com/hook"
BODY = b'{"type":"instance.created","data":{"sequence":1}}'


async def put(herd: Herd, n: int, url: str) -> None:
    one = a_delivery(n, url=url, body=BODY, created_at=herd.clock.now())
    jobs = (herd.delivery_job(one),)
    await herd.instances.add(Change(a_running_instance(n), deliveries=(one,), jobs=jobs))


@pytest.mark.proves("F49")
async def test_a_slow_host_delays_nobody_and_gets_two_at_a_time(herd: Herd) -> None:
    hooks = Hooks(herd.clock, takes_s=lambda url: 14.9 if url == SLOW else 0.005)
    herd.receiver.instead = hooks
    # More than there are workers, and all of them due before the others.
    for n in range(40):
        await put(herd, n, SLOW)
    for n in range(40, 60):
        await put(herd, n, f"https://quick-{n}.example.com/hook")
    began = herd.clock.now()
    await send_side_by_side(herd, timedelta(seconds=2), slots=16)
    quick = [it for it in hooks.visits if it.url != SLOW]
    assert len(quick) == 20
    assert max(it.at - began for it in quick) < timedelta(seconds=1)
    assert hooks.most_inside["slow.example.com"] == 2


async def test_a_slow_host_hears_everything_in_the_end(herd: Herd) -> None:
    hooks = Hooks(herd.clock, lambda _url, _body: OK, lambda _: 14.9)
    herd.receiver.instead = hooks
    for n in range(6):
        await put(herd, n, SLOW)
    await send_side_by_side(herd, timedelta(seconds=90), slots=16, step_s=0.5)
    assert len({it.event_id for it in hooks.arrived}) == len(hooks.arrived) == 6


async def test_a_burst_to_a_quick_host_is_over_in_a_moment(herd: Herd) -> None:
    hooks = Hooks(herd.clock, takes_s=lambda _: 0.005)
    herd.receiver.instead = hooks
    for n in range(100):
        await put(herd, n, "https://quick.example.com/hook")
    began = herd.clock.now()
    await send_side_by_side(herd, timedelta(seconds=4), slots=16)
    assert len(hooks.arrived) == 100
    assert max(it.at for it in hooks.arrived) - began < timedelta(seconds=3)


async def test_who_waits_for_an_earlier_event_sleeps_until_it_is_called(herd: Herd) -> None:
    hooks = Hooks(herd.clock, takes_s=lambda _: 10.0)
    herd.receiver.instead = hooks
    events = tuple(a_delivery(sequence=n, url=SLOW, body=BODY) for n in (1, 2, 3, 4))
    jobs = tuple(map(herd.delivery_job, events))
    await herd.instances.add(Change(a_running_instance(), deliveries=events, jobs=jobs))
    began = herd.clock.now()
    runs = await send_side_by_side(herd, timedelta(seconds=45), step_s=0.1)
    assert [it.event_id for it in hooks.arrived] == [it.id for it in events]
    assert hooks.arrived[-1].at - began < timedelta(seconds=41)
    assert runs < 20


async def test_a_crowd_before_a_slow_host_does_not_keep_the_workers_busy(herd: Herd) -> None:
    hooks = Hooks(herd.clock, takes_s=lambda _: 14.9)
    herd.receiver.instead = hooks
    for n in range(30):
        await put(herd, n, SLOW)
    runs = await send_side_by_side(herd, timedelta(seconds=14), step_s=0.05)
    assert hooks.most_inside["slow.example.com"] == len(hooks.visits) == 2
    # Each came back a few times, at ever longer intervals.
    assert runs < 30 * 8


async def test_events_of_one_change_take_one_run_each(herd: Herd) -> None:
    hooks = Hooks(herd.clock, takes_s=lambda _: 0.1)
    herd.receiver.instead = hooks
    instance = replace(a_running_instance(), webhook_url=SLOW)
    change = herd.change(
        instance, NewEvent("instance.running"), NewEvent("instance.ready"), NewEvent("instance.exited")
    )
    await herd.instances.add(change)
    runs = await send_side_by_side(herd, timedelta(seconds=2))
    assert [it.event_id for it in hooks.arrived] == [it.id for it in change.deliveries]
    assert runs == 3
