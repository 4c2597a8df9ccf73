"""What those who wait for capacity share, on every store."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.cloud.capacity_line import OfferRest
from gpuherd.domain.cloud.offer import BillingMode, OfferKey
from gpuherd.domain.instance.instance import Goal, Instance, Status, Waiting, WaitingFor
from gpuherd.ports.instance_port import Change
from tests.support.builders import an_instance
from tests.support.fake_clock import START

HK = OfferKey("4090", "CN-HK-01", BillingMode.SPOT)
MINUTE = timedelta(minutes=1)


def waiting(name: str, since: timedelta, **changes: Any) -> Instance:
    return an_instance(
        **{
            "id": f"inst_{name}",
            "status": Status.CREATING,
            "goal": Goal.RUNNING,
            "cloud_id": None,
            "rental": None,
            "waiting_for": Waiting(WaitingFor.CAPACITY, "sold out", START),
            "line_since": START + since,
            **changes,
        }
    )


async def test_the_line_holds_who_waits_the_oldest_first(store: Any) -> None:
    for it in (
        waiting("young", 2 * MINUTE),
        waiting("old", MINUTE),
        waiting("called", MINUTE, waiting_for=None),
        waiting("gone", MINUTE, goal=Goal.DELETED),
        waiting("new", MINUTE, line_since=None),
    ):
        await store.instances.add(Change(it))
    line, rests = await store.capacity.load()
    assert [it.id for it in line] == ["inst_old", "inst_young"]
    assert line[0].line_since == START + MINUTE
    assert list(rests) == []


async def test_who_has_got_something_leaves_the_line(store: Any) -> None:
    it = await store.instances.add(Change(waiting("old", MINUTE)))
    await store.instances.update(Change(replace(it, line_since=None, waiting_for=None)))
    assert (await store.capacity.load())[0] in ([], ())


async def test_a_change_of_one_in_line_is_seen_at_the_next_look(store: Any, other_store: Any) -> None:
    old = await store.instances.add(Change(waiting("old", MINUTE)))
    await store.instances.add(Change(waiting("young", 2 * MINUTE)))
    await store.capacity.load()
    await other_store.instances.update(Change(replace(old, reason="still waiting")))
    line, _ = await store.capacity.load()
    assert [(it.id, it.reason) for it in line] == [
        ("inst_old", "still waiting"),
        ("inst_young", line[1].reason),
    ]
    assert line[0].version == old.version + 1


async def test_a_refusal_is_remembered_over_the_one_before_until_it_is_forgotten(store: Any) -> None:
    other = HK._replace(billing_mode=BillingMode.ON_DEMAND)
    await store.capacity.remember(OfferRest(HK, 1, START, "none left"))
    await store.capacity.remember(OfferRest(HK, 2, START + MINUTE, "still none"))
    await store.capacity.remember(OfferRest(other, 1, START, "none left"))
    rests = {it.key: it for it in (await store.capacity.load())[1]}
    assert rests == {
        HK: OfferRest(HK, 2, START + MINUTE, "still none"),
        other: OfferRest(other, 1, START, "none left"),
    }
    assert await store.capacity.prune(START + MINUTE) == 1
    await store.capacity.forget(HK)
    await store.capacity.forget(HK)
    assert list((await store.capacity.load())[1]) == []


@pytest.mark.proves("C4")
async def test_another_process_sees_both(store: Any, other_store: Any) -> None:
    await store.instances.add(Change(waiting("old", MINUTE)))
    await store.capacity.remember(OfferRest(HK, 1, START, "none left"))
    line, rests = await other_store.capacity.load()
    assert ([it.id for it in line], [it.key for it in rests]) == (["inst_old"], [HK])


async def test_places_where_machines_were_taken_back_are_known_to_all_and_forgotten_in_time(
    store: Any, other_store: Any
) -> None:
    hour = timedelta(hours=1)
    there, elsewhere = (OfferKey("p", region, BillingMode.SPOT) for region in ("a", "b"))
    await store.capacity.note_reclaim(there, START)
    await store.capacity.note_reclaim(there, START + 2 * hour)
    await store.capacity.note_reclaim(elsewhere, START)
    assert await other_store.capacity.reclaimed_since(START + hour) == {there: START + 2 * hour}
    assert await store.capacity.reclaimed_since(START) == {there: START + 2 * hour}, (
        "what is old is forgotten"
    )
