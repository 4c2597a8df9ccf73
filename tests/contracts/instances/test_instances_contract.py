"""What the port `Instances` promises about remembering, finding and listing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.ports.instance_port import Change, InstanceQuery
from tests.support.builders import (
    PRODUCT,
    a_delivery,
    a_reconcile_job,
    a_running_instance,
    an_attempt,
    an_event,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import START
from tests.support.sql.databases import Store, all_at_once


async def add(store: Store, *instances: Instance) -> None:
    for it in instances:
        await store.instances.add(Change(it))


async def walk(store: Store, query: InstanceQuery) -> list[str]:
    """Follow the cursor to the end and return all ids in the order in which they came."""
    seen: list[str] = []
    while True:
        page = await store.instances.page(query)
        seen += [it.id for it in page.instances]
        if page.next_cursor is None:
            return seen
        query = replace(query, cursor=page.next_cursor)


async def numbers(store: Store, **query: object) -> list[int]:
    """Return the numbers of the instances on a page."""
    page = await store.instances.page(InstanceQuery(**query))  # type: ignore[arg-type]
    assert page.total == len(page.instances)
    return [int(it.key) for it in page.instances]


class TestInstances:
    async def test_what_was_added_is_returned_and_found(self, store: Store) -> None:
        instance = an_instance(labels={"team": "vision"})
        assert await store.instances.add(Change(instance)) == instance
        assert await store.instances.get(instance.id) == instance

    async def test_an_unknown_id_is_not_found_under_the_right_code(self, store: Store) -> None:
        with pytest.raises(NotFound) as caught:
            await store.instances.get("inst_nobody")
        assert caught.value.code == "INSTANCE_NOT_FOUND"
        assert await store.instances.events("inst_nobody") == ()
        assert await store.instances.attempts("inst_nobody") == ()

    async def test_everything_of_a_change_is_written_with_the_instance(self, store: Store) -> None:
        first, second = an_event(sequence=1), an_event(sequence=2, type="instance.planned")
        change = Change(
            an_instance(),
            events=(first, second),
            attempt=an_attempt(),
            deliveries=(a_delivery(),),
            jobs=(a_reconcile_job(),),
        )
        await store.instances.add(change)
        assert await store.instances.events(instance_id(1)) == (first, second)
        assert await store.instances.attempts(instance_id(1)) == (an_attempt(),)
        assert await store.outbox.get(a_delivery().id) == a_delivery()
        assert (await store.jobs.get(a_reconcile_job().id)).instance_id == instance_id(1)

    async def test_events_come_in_their_order_whatever_the_order_of_writing(self, store: Store) -> None:
        shuffled = [an_event(sequence=n) for n in (3, 1, 10, 2)]
        await store.instances.add(Change(an_instance(), events=tuple(shuffled)))
        assert [it.sequence for it in await store.instances.events(instance_id(1))] == [1, 2, 3, 10]

    async def test_an_id_cannot_be_taken_twice(self, store: Store) -> None:
        await add(store, an_instance(name="first"))
        before = await store.everything()
        with pytest.raises(sa.exc.IntegrityError):
            await add(store, an_instance(name="second"))
        assert await store.everything() == before

    async def test_a_change_that_fails_half_way_leaves_nothing(self, store: Store) -> None:
        """The jobs come last, so all the rest was written before the failure."""
        await add(store, an_instance(1))
        await store.jobs.enqueue([a_reconcile_job(1)])
        before = await store.everything()
        clashing_job = a_reconcile_job(2, id=a_reconcile_job(1).id)
        change = Change(
            an_instance(2, labels={"a": "b"}),
            events=(an_event(2),),
            attempt=an_attempt(2),
            deliveries=(a_delivery(2),),
            jobs=(a_reconcile_job(2, name="fine", key="other"), clashing_job),
        )
        with pytest.raises(sa.exc.IntegrityError):
            await store.instances.add(change)
        assert await store.everything() == before

    async def test_two_events_with_one_number_are_refused_with_all_that_goes_with_them(
        self, store: Store
    ) -> None:
        twice = (an_event(sequence=1), an_event(sequence=1, type="instance.ready"))
        change = Change(an_instance(), events=twice, deliveries=(a_delivery(),), jobs=(a_reconcile_job(),))
        with pytest.raises(sa.exc.IntegrityError):
            await store.instances.add(change)
        assert not any((await store.everything()).values())


class TestFindingByName:
    async def test_all_that_bear_the_name_come_newest_first(self, store: Store) -> None:
        await add(store, *(an_instance(n, name="train") for n in (1, 3, 2)), an_instance(4, name="other"))
        assert [int(it.key) for it in await store.instances.find_named("train")] == [3, 2, 1]

    async def test_deleted_ones_are_left_out_and_failed_ones_are_not(self, store: Store) -> None:
        await add(
            store,
            an_instance(1, name="train", status=Status.DELETED),
            an_instance(2, name="train", status=Status.FAILED),
        )
        assert [int(it.key) for it in await store.instances.find_named("train")] == [2]

    @pytest.mark.parametrize("other", ["Train", "train ", "trai_", "tr%", ""])
    async def test_only_the_exact_name_counts(self, store: Store, other: str) -> None:
        await add(store, an_instance(name="train"))
        assert await store.instances.find_named(other) == ()


class TestPages:
    async def test_a_page_shows_what_has_changed_since_the_last_one(self, store: Store) -> None:
        await add(store, an_instance(1), an_instance(2))
        first = await store.instances.page(InstanceQuery())
        assert await store.instances.page(InstanceQuery()) == first
        changed = replace(first.instances[1], status=Status.FAILED, reason="out of order")
        await store.instances.update(Change(changed))
        shown = (await store.instances.page(InstanceQuery())).instances
        assert [it.reason for it in shown] == [first.instances[0].reason, "out of order"]
        assert shown[1] == await store.instances.get(changed.id)

    async def test_all_are_counted_under_their_status(self, store: Store) -> None:
        assert set((await store.instances.count_by_status()).values()) == {0}
        await add(store, an_instance(1), an_instance(2), an_instance(3, status=Status.EXITED))
        counted = await store.instances.count_by_status()
        assert set(counted) == set(Status)
        assert (counted[Status.CREATING], counted[Status.EXITED], counted[Status.READY]) == (2, 1, 0)

    async def test_an_empty_store_has_one_empty_page(self, store: Store) -> None:
        page = await store.instances.page(InstanceQuery())
        assert (page.instances, page.total, page.next_cursor) == ((), 0, None)

    async def test_a_page_is_newest_first_and_knows_the_total(self, store: Store) -> None:
        await add(store, *(an_instance(n) for n in (2, 1, 3)))
        page = await store.instances.page(InstanceQuery(limit=2))
        assert [int(it.key) for it in page.instances] == [3, 2]
        assert page.total == 3
        rest = await store.instances.page(InstanceQuery(limit=2, cursor=page.next_cursor))
        assert [int(it.key) for it in rest.instances] == [1]
        assert (rest.total, rest.next_cursor) == (3, None)

    async def test_a_page_that_is_just_full_is_the_last(self, store: Store) -> None:
        await add(store, an_instance(1), an_instance(2))
        assert (await store.instances.page(InstanceQuery(limit=2))).next_cursor is None

    async def test_filters_choose_by_status_name_and_label(self, store: Store) -> None:
        await add(
            store,
            an_instance(1, name="a", status=Status.RUNNING, labels={"team": "x", "run": "1"}),
            an_instance(2, name="a", status=Status.FAILED, labels={"team": "y"}),
            an_instance(3, name="b", status=Status.RUNNING, labels={"team": "x"}),
            an_instance(4, name="b", status=Status.DELETED, labels={"other": "x"}),
        )
        assert await numbers(store) == [4, 3, 2, 1]
        assert await numbers(store, statuses=(Status.RUNNING,)) == [3, 1]
        assert await numbers(store, statuses=(Status.FAILED, Status.DELETED)) == [4, 2]
        assert await numbers(store, name="a") == [2, 1]
        assert await numbers(store, label=("team", "x")) == [3, 1]
        assert await numbers(store, label=("team", "z")) == []
        assert await numbers(store, name="a", label=("team", "x"), statuses=(Status.RUNNING,)) == [1]
        assert await numbers(store, name="a", label=("team", "x"), statuses=(Status.FAILED,)) == []

    @pytest.mark.parametrize("limit", [7, 100])
    async def test_a_walk_shows_each_of_250_instances_once(self, store: Store, limit: int) -> None:
        await all_at_once(250, lambda n: store.instances.add(Change(an_instance(n))))
        seen = await walk(store, InstanceQuery(limit=limit))
        assert seen == [instance_id(n) for n in reversed(range(250))]

    async def test_a_walk_is_not_disturbed_by_instances_that_are_added_meanwhile(self, store: Store) -> None:
        await all_at_once(250, lambda n: store.instances.add(Change(an_instance(n))))
        query, seen, newest = InstanceQuery(limit=30), [], 250
        while True:
            page = await store.instances.page(query)
            seen += [int(it.key) for it in page.instances]
            for _ in range(5):
                await add(store, an_instance(newest))
                newest += 1
            if page.next_cursor is None:
                break
            query = replace(query, cursor=page.next_cursor)
        assert seen == list(reversed(range(250)))

    async def test_a_filtered_walk_shows_each_match_once(self, store: Store) -> None:
        await all_at_once(
            60, lambda n: store.instances.add(Change(an_instance(n, labels={"parity": str(n % 2)})))
        )
        seen = await walk(store, InstanceQuery(limit=7, label=("parity", "1")))
        assert seen == [instance_id(n) for n in reversed(range(60)) if n % 2]


class TestReadyTimes:
    async def test_they_are_the_seconds_from_wish_to_use_latest_first(self, store: Store) -> None:
        await add(
            store,
            a_running_instance(1, ready_at=START + timedelta(seconds=90)),
            a_running_instance(2, ready_at=START + timedelta(seconds=200.25)),
            a_running_instance(3, ready_at=None),
        )
        assert await store.instances.ready_times_s(PRODUCT) == [200.25, 90.0]
        assert await store.instances.ready_times_s("A100") == []

    async def test_they_are_of_what_was_rented_however_it_was_wished_for(self, store: Store) -> None:
        at_first = a_running_instance(2, wish=LaunchSpec("4090", "101"), rental=None, ready_at=None)
        rented = a_running_instance(2, wish=LaunchSpec("4090", "101"), ready_at=START + timedelta(seconds=5))
        adopted = a_running_instance(3, wish=LaunchSpec(PRODUCT, "101"), rental=None)
        await add(store, a_running_instance(1, wish=LaunchSpec("4090", "101")), at_first, adopted)
        leased = await store.instance_leases.acquire(at_first.id, None)
        assert leased is not None
        await store.instance_leases.save(leased, Change(rented))
        assert await store.instances.ready_times_s(PRODUCT) == [5.0, 0.0]
        assert await store.instances.ready_times_s("4090") == []
        assert (await store.instances.get(rented.id)).wish.product_name == "4090"

    async def test_only_the_latest_fifty_are_asked(self, store: Store) -> None:
        await all_at_once(
            60,
            lambda n: store.instances.add(
                Change(a_running_instance(n, ready_at=START + timedelta(seconds=n)))
            ),
        )
        assert await store.instances.ready_times_s(PRODUCT) == [float(n) for n in reversed(range(10, 60))]
