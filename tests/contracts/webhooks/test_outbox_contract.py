"""What the ports `Outbox` and `Flags` promise."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.errors import NotFound
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryState
from gpuherd.ports.instances import Change
from tests.support.builders import a_delivery, an_instance
from tests.support.databases import Store, all_at_once
from tests.support.fake_clock import START


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

    async def test_the_first_goes_first(self, store: Store) -> None:
        first, second, third = (a_delivery(sequence=n) for n in (1, 2, 3))
        await self.put(store, first, second, third)
        assert await store.outbox.is_next(first)
        assert not await store.outbox.is_next(second)
        assert not await store.outbox.is_next(third)

    @pytest.mark.parametrize(
        "tried",
        [
            pytest.param({"tries": 1}, id="tried once and waiting"),
            pytest.param({"tries": 1, "state": DeliveryState.DELIVERED}, id="delivered"),
            pytest.param({"tries": 10, "state": DeliveryState.DEAD}, id="given up"),
            pytest.param({"state": DeliveryState.DEAD}, id="given up untried"),
        ],
    )
    async def test_the_next_goes_when_the_earlier_one_was_tried(
        self, store: Store, tried: dict[str, object]
    ) -> None:
        first, second = a_delivery(sequence=1), a_delivery(sequence=2)
        await self.put(store, first, second)
        await store.outbox.save(replace(first, **tried))  # type: ignore[arg-type]
        assert await store.outbox.is_next(second)

    async def test_other_instances_do_not_wait(self, store: Store) -> None:
        await self.put(store, a_delivery(1, sequence=1))
        other = a_delivery(2, sequence=2)
        await store.instances.add(Change(an_instance(2), deliveries=(other,)))
        assert await store.outbox.is_next(other)

    async def test_other_receivers_of_the_same_instance_do_not_wait(self, store: Store) -> None:
        first = a_delivery(sequence=1)
        other_url = a_delivery(sequence=2, url="https://example.com/other")
        endpoint = a_delivery(sequence=3, endpoint_id="ep_1")
        await self.put(store, first, other_url, endpoint)
        assert await store.outbox.is_next(other_url)
        assert await store.outbox.is_next(endpoint)

    async def test_the_earliest_of_those_that_wait_for_another_try_is_found(self, store: Store) -> None:
        one, two, three = (a_delivery(sequence=n, tries=1) for n in (1, 2, 3))
        other = a_delivery(sequence=4, endpoint_id="ep_1", tries=1)
        await self.put(store, one, two, three, other)
        assert await store.outbox.waiting_before(three) == one
        assert await store.outbox.waiting_before(one) is None
        assert await store.outbox.waiting_before(other) is None
        await store.outbox.save(replace(one, state=DeliveryState.DELIVERED))
        assert await store.outbox.waiting_before(three) == two
        await store.outbox.save(replace(two, tries=0))
        assert await store.outbox.waiting_before(three) is None

    async def test_the_earliest_pending_one_behind_it_is_found(self, store: Store) -> None:
        one, two, three = (a_delivery(sequence=n) for n in (1, 2, 3))
        await self.put(store, three, two, one, a_delivery(sequence=4, endpoint_id="ep_1"))
        assert await store.outbox.next_after(one) == two
        assert await store.outbox.next_after(three) is None
        await store.outbox.save(replace(two, state=DeliveryState.DEAD))
        assert await store.outbox.next_after(one) == three

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
        await self.put(store, refused, skipped, one)
        assert await store.outbox.is_gone(one)
        assert not await store.outbox.is_gone(replace(one, url="https://example.com/other"))
        assert not await store.outbox.is_gone(replace(one, instance_id="another"))
        assert not await store.outbox.is_gone(replace(one, endpoint_id="ep_1"))
        accepted: dict[str, Any] = {"state": DeliveryState.DELIVERED, "last_status": 200}
        later = START + timedelta(seconds=1)
        await store.outbox.save(replace(skipped, tried_at=later, **accepted))
        assert not await store.outbox.is_gone(one)


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
