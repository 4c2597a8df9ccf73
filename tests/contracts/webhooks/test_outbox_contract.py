"""What the ports `Outbox` and `Flags` promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.api_key import ADMIN_ID
from gpuherd.domain.errors import NotFound
from gpuherd.domain.job import JobStatus, NewJob, delivery_key
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState
from gpuherd.ports.instance_port import Change
from gpuherd.ports.job_port import JobQuery
from gpuherd.ports.webhook_port import DeliveryUpdate, WakesNext
from tests.support.builders import a_delivery, an_instance
from tests.support.fake_clock import START
from tests.support.sql.databases import Store, all_at_once


class TestOutbox:
    async def put(self, store: Store, *deliveries: Delivery) -> None:
        await store.instances.add(Change(an_instance(), deliveries=deliveries))

    async def test_an_unknown_delivery_is_not_found_under_the_right_code(self, store: Store) -> None:
        with pytest.raises(NotFound) as caught:
            await store.outbox.get("msg_nobody")
        assert caught.value.code == "DELIVERY_NOT_FOUND"

    async def test_a_save_writes_how_a_try_went_and_never_the_bytes(self, store: Store) -> None:
        await self.put(store, a_delivery(sequence=1), a_delivery(sequence=2))
        tried = replace(
            a_delivery(sequence=1),
            state=DeliveryState.DELIVERED,
            tries=3,
            delivered_at=START,
            last_status=204,
            last_error="http_5xx: answered 503",
        )
        await store.outbox.save(replace(tried, body=b"other bytes"))
        assert await store.outbox.get(tried.id) == tried
        assert await store.outbox.get(a_delivery(sequence=2).id) == a_delivery(sequence=2)

    async def earlier(self, store: Store, it: Delivery) -> Delivery | None:
        queued = await store.outbox.queued(it.id)
        assert queued.delivery == it
        return queued.earlier

    async def test_what_is_queued_is_not_found_under_the_right_code(self, store: Store) -> None:
        with pytest.raises(NotFound) as caught:
            await store.outbox.queued("msg_nobody")
        assert caught.value.code == "DELIVERY_NOT_FOUND"

    async def test_the_first_goes_first(self, store: Store) -> None:
        first, second, third = (a_delivery(sequence=n) for n in (1, 2, 3))
        await self.put(store, first, second, third)
        assert await self.earlier(store, first) is None
        assert await self.earlier(store, second) == first
        assert await self.earlier(store, third) == first

    async def test_one_that_was_never_tried_comes_before_an_earlier_one_that_waits(
        self, store: Store
    ) -> None:
        waiting, untried, third = (a_delivery(sequence=n, tries=n == 1) for n in (1, 2, 3))
        await self.put(store, waiting, untried, third)
        assert await self.earlier(store, third) == untried

    @pytest.mark.parametrize(
        "settled",
        [
            pytest.param({"tries": 1, "state": DeliveryState.DELIVERED}, id="delivered"),
            pytest.param({"tries": 10, "state": DeliveryState.DEAD}, id="given up"),
            pytest.param({"state": DeliveryState.DEAD}, id="given up untried"),
        ],
    )
    async def test_what_is_settled_stands_before_nobody(
        self, store: Store, settled: dict[str, object]
    ) -> None:
        first, second = a_delivery(sequence=1), a_delivery(sequence=2)
        await self.put(store, first, second)
        await store.outbox.save(replace(first, **settled))  # type: ignore[arg-type]
        assert await self.earlier(store, second) is None

    async def test_other_instances_do_not_wait(self, store: Store) -> None:
        await self.put(store, a_delivery(1, sequence=1))
        other = a_delivery(2, sequence=2)
        await store.instances.add(Change(an_instance(2), deliveries=(other,)))
        assert await self.earlier(store, other) is None

    async def test_other_receivers_of_the_same_instance_do_not_wait(self, store: Store) -> None:
        first = a_delivery(sequence=1)
        other_url = a_delivery(sequence=2, url="https://example.com/other")
        endpoint = a_delivery(sequence=3, endpoint_id="ep_1")
        await self.put(store, first, other_url, endpoint)
        assert await self.earlier(store, other_url) is None
        assert await self.earlier(store, endpoint) is None

    async def test_the_earliest_of_those_that_wait_for_another_try_is_found(self, store: Store) -> None:
        one, two, three = (a_delivery(sequence=n, tries=1) for n in (1, 2, 3))
        other = a_delivery(sequence=4, endpoint_id="ep_1", tries=1)
        await self.put(store, one, two, three, other)
        assert await self.earlier(store, three) == one
        assert await self.earlier(store, one) is None
        assert await self.earlier(store, other) is None
        await store.outbox.save(replace(one, state=DeliveryState.DELIVERED))
        assert await self.earlier(store, three) == two

    async def test_all_that_wait_for_the_same_receiver_are_found_oldest_first(self, store: Store) -> None:
        mine, later, untried = (a_delivery(sequence=n, tries=n < 3) for n in (1, 2, 3))
        await self.put(store, untried, later, mine)
        elsewhere = a_delivery(2, tries=1, url="https://example.com/other")
        of_another = a_delivery(3, tries=1)
        await store.instances.add(Change(an_instance(2), deliveries=(elsewhere,)))
        await store.instances.add(Change(an_instance(3), deliveries=(of_another,)))
        assert list(await store.outbox.waiting_with(mine, 10)) == [later, of_another]
        assert list(await store.outbox.waiting_with(mine, 1)) == [later]
        assert list(await store.outbox.waiting_with(later, 10)) == [mine, of_another]

    async def test_a_url_is_gone_after_a_410_until_it_accepts_something(self, store: Store) -> None:
        refused = a_delivery(sequence=1, state=DeliveryState.DEAD, last_status=410, tried_at=START)
        skipped = a_delivery(sequence=2, state=DeliveryState.DEAD)
        one = a_delivery(sequence=3)
        elsewhere = a_delivery(sequence=4, url="https://example.com/other")
        to_endpoint = a_delivery(sequence=5, endpoint_id="ep_1")
        refused_by_endpoint = replace(refused, id="msg_refused_by_endpoint", endpoint_id="ep_1", sequence=6)
        await self.put(store, refused, skipped, one, elsewhere, to_endpoint, refused_by_endpoint)
        of_another = a_delivery(2, sequence=3)
        await store.instances.add(Change(an_instance(2), deliveries=(of_another,)))
        assert await self.is_gone(store, one)
        for not_concerned in (elsewhere, to_endpoint, of_another):
            assert not await self.is_gone(store, not_concerned)
        accepted: dict[str, Any] = {"state": DeliveryState.DELIVERED, "last_status": 200}
        later = START + timedelta(seconds=1)
        await store.outbox.save(replace(skipped, tried_at=later, **accepted))
        assert not await self.is_gone(store, one)

    async def owner(self, store: Store, it: Delivery) -> str:
        return (await store.outbox.queued(it.id)).owner

    async def test_what_signs_is_told_by_the_delivery_and_no_save_changes_it(self, store: Store) -> None:
        own = a_delivery(sequence=1, owner="ada")
        from_before = a_delivery(sequence=2)
        nobodys = a_delivery(2, sequence=1)
        await store.instances.add(Change(an_instance(owner="bob"), deliveries=(own, from_before, nobodys)))
        await store.outbox.save(replace(own, owner="bob", tries=1))
        assert await store.outbox.get(own.id) == replace(own, tries=1)
        assert await self.owner(store, own) == "ada"
        # Where it does not tell, the instance does; and what belongs to none is the admin's.
        assert await self.owner(store, from_before) == "bob"
        assert await self.owner(store, nobodys) == ADMIN_ID

    async def is_gone(self, store: Store, it: Delivery) -> bool:
        return (await store.outbox.queued(it.id)).is_gone


class TestRecordTry:
    """A try, the end of its job and the wakeup of the next are one transaction."""

    def job(self, it: Delivery) -> NewJob:
        return NewJob(f"job_{it.id}", "send_webhook", delivery_key(it.id), {"deliveryId": it.id})

    async def put(self, store: Store, *deliveries: Delivery, without_job: Sequence[Delivery] = ()) -> None:
        later = timedelta(minutes=5)
        jobs = tuple(replace(self.job(it), delay=later) for it in deliveries if it not in without_job)
        await store.instances.add(Change(an_instance(), deliveries=deliveries, jobs=jobs))

    async def due(self, store: Store) -> set[str]:
        pending = (await store.jobs.page(JobQuery(status=JobStatus.PENDING))).jobs
        now = store.clock.now()
        return {it.payload["deliveryId"] for it in pending if it.next_retry_at and it.next_retry_at <= now}

    async def test_a_delivered_one_ends_its_job_and_wakes_the_next(self, store: Store) -> None:
        one, two, three = (a_delivery(sequence=n) for n in (1, 2, 3))
        await self.put(store, three, two, one, a_delivery(sequence=4, endpoint_id="ep_1"))
        delivered = one.accepted(START)
        update = DeliveryUpdate(delivered, self.job(one).id, wakes_next=WakesNext.ALWAYS)
        assert await store.outbox.record_try(update) is None
        assert await store.outbox.get(one.id) == delivered
        assert (await store.jobs.get(self.job(one).id)).status is JobStatus.COMPLETED
        assert await self.due(store) == {two.id}

    async def test_a_dead_letter_fails_its_job(self, store: Store) -> None:
        one = a_delivery(sequence=1)
        await self.put(store, one)
        await store.outbox.record_try(DeliveryUpdate(one.dead_lettered(), self.job(one).id, "gone: 410"))
        ended = await store.jobs.get(self.job(one).id)
        assert (ended.status, ended.attempts, ended.error) == (JobStatus.FAILED, 1, "gone: 410")
        assert (await store.outbox.get(one.id)).state is DeliveryState.DEAD

    async def test_one_that_was_only_tried_keeps_its_job(self, store: Store) -> None:
        one = a_delivery(sequence=1)
        await self.put(store, one)
        await store.outbox.record_try(DeliveryUpdate(replace(one, tries=1)))
        assert (await store.jobs.get(self.job(one).id)).status is JobStatus.PENDING

    @pytest.mark.parametrize(
        ("wakes_next", "due"), [(WakesNext.ALWAYS, True), (WakesNext.IF_DUE, False), (WakesNext.NEVER, False)]
    )
    async def test_one_whose_schedule_says_later_is_woken_only_if_asked(
        self, store: Store, wakes_next: WakesNext, due: bool
    ) -> None:
        one = a_delivery(sequence=1)
        two = a_delivery(sequence=2, tries=1, next_at=store.clock.now() + timedelta(minutes=5))
        await self.put(store, one, two)
        await store.outbox.record_try(DeliveryUpdate(replace(one, tries=1), wakes_next=wakes_next))
        assert await self.due(store) == ({two.id} if due else set())

    async def test_one_that_waits_only_for_its_order_is_woken(self, store: Store) -> None:
        one, two = a_delivery(sequence=1), a_delivery(sequence=2)
        await self.put(store, one, two)
        await store.outbox.record_try(DeliveryUpdate(replace(one, tries=1), wakes_next=WakesNext.IF_DUE))
        assert await self.due(store) == {two.id}

    async def test_settled_ones_are_passed_over(self, store: Store) -> None:
        one, two, three = (a_delivery(sequence=n) for n in (1, 2, 3))
        await self.put(store, one, two, three)
        await store.outbox.save(two.dead_lettered())
        await store.outbox.record_try(DeliveryUpdate(one.accepted(START), wakes_next=WakesNext.ALWAYS))
        assert await self.due(store) == {three.id}

    async def test_the_next_one_is_returned_if_it_has_no_job(self, store: Store) -> None:
        one, two = a_delivery(sequence=1), a_delivery(sequence=2)
        await self.put(store, one, two, without_job=[two])
        update = DeliveryUpdate(one.accepted(START), wakes_next=WakesNext.ALWAYS)
        assert await store.outbox.record_try(update) == two

    async def test_others_are_woken_or_get_a_job(self, store: Store) -> None:
        one, two, three = (a_delivery(sequence=n) for n in (1, 2, 3))
        await self.put(store, one, two, three, without_job=[three])
        wakes = (self.job(two), self.job(three))
        await store.outbox.record_try(DeliveryUpdate(one.accepted(START), wakes=wakes))
        assert await self.due(store) == {two.id, three.id}


class TestFlags:
    async def test_a_flag_is_none_until_put_and_after_it_was_taken_down(self, store: Store) -> None:
        assert await store.flags.get("creates_blocked") is None
        await store.flags.put("creates_blocked", "weil: ∞")
        assert await store.flags.get("creates_blocked") == "weil: ∞"
        await store.flags.put("creates_blocked", "other")
        assert await store.flags.get("creates_blocked") == "other"
        assert await store.flags.get("creates") is None
        await store.flags.put("creates_blocked", None)
        await store.flags.put("creates_blocked", None)
        assert await store.flags.get("creates_blocked") is None

    async def test_the_first_of_several_that_is_up_is_told(self, store: Store) -> None:
        assert await store.flags.first("one", "two") is None
        await store.flags.put("two", "second")
        assert await store.flags.first("one", "two") == "second"
        await store.flags.put("one", "first")
        assert await store.flags.first("one", "two") == "first"
        assert await store.flags.first("two", "one") == "second"

    async def test_a_swap_is_made_only_where_the_old_value_still_is(self, store: Store) -> None:
        assert not await store.flags.swap("intent", "one", "two")
        assert await store.flags.swap("intent", None, "one")
        assert not await store.flags.swap("intent", None, "two")
        assert not await store.flags.swap("intent", "other", "two")
        assert not await store.flags.swap("intent", "other", None)
        assert await store.flags.get("intent") == "one"
        assert await store.flags.swap("intent", "one", "two")
        assert await store.flags.swap("intent", "two", None)
        assert await store.flags.get("intent") is None

    async def test_an_empty_text_is_not_none(self, store: Store) -> None:
        await store.flags.put("note", "")
        assert await store.flags.get("note") == ""

    async def test_ensure_keeps_what_was_there_first(self, store: Store, other_store: Store) -> None:
        assert store.flags.ensure("installation", "aaaa") == "aaaa"
        assert other_store.flags.ensure("installation", "bbbb") == "aaaa"
        assert await store.flags.get("installation") == "aaaa"

    async def test_two_processes_that_put_at_once_both_succeed(
        self, store: Store, other_store: Store
    ) -> None:
        flags = (store.flags, other_store.flags)
        for key in (f"flag-{n}" for n in range(10)):
            answers = await all_at_once(10, lambda n: flags[n % 2].put(key, f"value {n}"))  # noqa: B023
            assert answers == [None] * 10
            assert (await store.flags.get(key) or "").startswith("value ")
