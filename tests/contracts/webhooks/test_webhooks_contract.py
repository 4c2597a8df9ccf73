"""What the ports `DeliveryLog` and `WebhookEndpoints` promise, on both databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.job import JobStatus
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind, WebhookEndpoint
from gpuherd.ports.instance_port import Change
from gpuherd.ports.webhook_port import DeliveryFilter, DeliveryQuery
from tests.support.builders import a_delivery, a_sending_job, an_instance
from tests.support.fake_clock import START
from tests.support.sql.databases import Store

DAY = timedelta(days=1)
DELIVERED: dict[str, Any] = {"state": DeliveryState.DELIVERED, "tries": 1}
DEAD: dict[str, Any] = {"state": DeliveryState.DEAD, "tries": 10}


@pytest.fixture(autouse=True)
def _sql_only(store: object) -> None:
    if not isinstance(store, Store):
        pytest.skip("these ports are kept in SQL only")


async def put(store: Store, *deliveries: Delivery) -> None:
    await store.instances.add(Change(an_instance(), deliveries=deliveries))


async def ids(store: Store, **query: object) -> list[str]:
    page = await store.deliveries.page(DeliveryQuery(**query))  # type: ignore[arg-type]
    return [it.id for it in page.deliveries]


class TestDeliveryLog:
    async def test_a_list_is_newest_first_and_its_cursor_leads_through_it(self, store: Store) -> None:
        all_of_them = [a_delivery(sequence=n) for n in range(1, 8)]
        await put(store, *all_of_them)
        seen: list[Delivery] = []
        query = DeliveryQuery(limit=3)
        while True:
            page = await store.deliveries.page(query)
            assert page.total == 7
            seen += page.deliveries
            if page.next_cursor is None:
                break
            query = replace(query, cursor=page.next_cursor)
        assert seen == all_of_them[::-1]
        page = await store.deliveries.page(DeliveryQuery(limit=3, oldest_first=True))
        assert list(page.deliveries) == all_of_them[:3]
        query = DeliveryQuery(limit=9, oldest_first=True, cursor=page.next_cursor)
        assert list((await store.deliveries.page(query)).deliveries) == all_of_them[3:]

    async def test_filters(self, store: Store) -> None:
        new = a_delivery(sequence=1)
        waiting = a_delivery(sequence=2, tries=1, endpoint_id="ep_1")
        done = a_delivery(sequence=3, type="instance.ready", **DELIVERED)
        dead = a_delivery(sequence=4, created_at=START + DAY, **DEAD)
        await put(store, new, waiting, done, dead)
        assert await ids(store, state=DeliveryFilter.PENDING) == [waiting.id, new.id]
        assert await ids(store, state=DeliveryFilter.FAILED) == [dead.id, waiting.id]
        assert await ids(store, state=DeliveryFilter.DEAD) == [dead.id]
        assert await ids(store, state=DeliveryFilter.DELIVERED) == [done.id]
        assert await ids(store, endpoint_id="ep_1") == [waiting.id]
        assert await ids(store, type="instance.ready") == [done.id]
        assert await ids(store, since=START + DAY) == [dead.id]
        assert len(await ids(store, instance_id=new.instance_id)) == 4
        assert await ids(store, instance_id="another") == []

    async def test_the_own_ones_of_a_key_are_found_also_when_their_instance_is_forgotten(
        self, store: Store
    ) -> None:
        adas = a_delivery(sequence=1, owner="ada")
        to_endpoint = a_delivery(sequence=3, endpoint_id="ep_1")
        bobs = a_delivery(2, sequence=4, owner="bob")
        gone = an_instance(owner="ada", status=Status.DELETED, settled=True)
        await store.instances.add(Change(gone, deliveries=(adas, to_endpoint)))
        await store.instances.add(Change(an_instance(2, owner="bob"), deliveries=(bobs,)))
        for _ in ("there", "forgotten"):
            assert await ids(store, owner="ada") == [adas.id]
            assert await ids(store, owner="bob") == [bobs.id]
            await store.retention.prune_instances(START + DAY)
        with pytest.raises(NotFound):
            await store.instances.get(gone.id)
        for it, owner in ((adas, "ada"), (to_endpoint, None)):
            assert (await store.outbox.get(it.id)).owner == owner

    async def test_what_is_reopened_is_written_with_its_job_and_never_its_bytes(self, store: Store) -> None:
        dead = a_delivery(**DEAD)
        await put(store, dead)
        reset_for_replay = dead.reset_for_replay(START + DAY)
        await store.deliveries.reopen([(replace(reset_for_replay, body=b"other"), a_sending_job(dead))])
        assert await store.outbox.get(dead.id) == reset_for_replay
        assert (await store.jobs.get(a_sending_job(dead).id)).status is JobStatus.PENDING

    async def test_one_that_has_a_job_is_only_made_due_at_once(self, store: Store) -> None:
        waiting = a_delivery(tries=3, next_at=START + DAY)
        job = replace(a_sending_job(waiting), delay=DAY)
        await store.instances.add(Change(an_instance(), deliveries=(waiting,), jobs=(job,)))
        other = a_sending_job(waiting, "again")
        await store.deliveries.reopen([(waiting.reset_for_replay(START), other)])
        assert await store.outbox.get(waiting.id) == waiting
        assert (await store.jobs.get(job.id)).next_retry_at == START
        with pytest.raises(NotFound):
            await store.jobs.get(other.id)

    async def test_old_ones_are_forgotten_each_state_in_its_own_time(self, store: Store) -> None:
        fates: dict[str, tuple[bool, dict[str, Any]]] = {
            "delivered long ago": (True, {**DELIVERED, "tried_at": START}),
            "delivered lately": (False, {**DELIVERED, "tried_at": START + 20 * DAY}),
            "dead for a while": (False, {**DEAD, "tried_at": START + 5 * DAY}),
            "dead for long": (True, {**DEAD, "tried_at": START}),
            "dead without a try": (True, {**DEAD}),
            "still waiting": (False, {"tries": 1, "tried_at": START}),
        }
        rows = [a_delivery(sequence=n, **it) for n, (_, it) in enumerate(fates.values(), start=1)]
        await put(store, *rows)
        assert await store.deliveries.prune(START + 10 * DAY, START + 2 * DAY) == 3
        kept = [it.id for it, (gone, _) in zip(rows, fates.values(), strict=True) if not gone]
        assert await ids(store, oldest_first=True) == kept


def an_endpoint(n: int = 1, **changes: object) -> WebhookEndpoint:
    fields = {"id": f"ep_{n}", "url": "https://example.com/hook", "created_at": START, "root": "0a1b"}
    return WebhookEndpoint(**{**fields, **changes})  # type: ignore[arg-type]


class TestWebhookEndpoints:
    async def test_what_is_added_is_found_with_all_it_has(self, store: Store) -> None:
        full = an_endpoint(
            2,
            events=("instance.created", "instance.ready"),
            label="büro",
            generation=3,
            rotated_at=START,
            previous_root="ffff",
            disabled_at=START,
            disabled_reason="the receiver answered 410",
            kind=EndpointKind.DISCORD,
        )
        await store.endpoints.add(full)
        await store.endpoints.add(an_endpoint(1))
        assert await store.endpoints.list_all() == (an_endpoint(1), full)
        assert await store.endpoints.get("ep_2") == full

    async def test_a_change_is_written_over_what_it_was_made_from_and_nothing_else(
        self, store: Store
    ) -> None:
        first = an_endpoint()
        await store.endpoints.add(first)
        rotated = first.rotated("beef", "fresh", START)
        await store.endpoints.change(first, rotated)
        with pytest.raises(StaleWrite):
            await store.endpoints.change(first, first.disabled("late", START))
        assert await store.endpoints.get(first.id) == rotated

    async def test_an_unknown_endpoint_is_not_found_under_the_right_code(self, store: Store) -> None:
        nobody = an_endpoint(9)
        for call in (
            store.endpoints.get(nobody.id),
            store.endpoints.remove(nobody.id),
            store.endpoints.change(nobody, nobody),
        ):
            with pytest.raises(NotFound) as caught:
                await call
            assert caught.value.code == "WEBHOOK_ENDPOINT_NOT_FOUND"

    async def test_what_is_removed_is_gone(self, store: Store) -> None:
        await store.endpoints.add(an_endpoint())
        await store.endpoints.remove("ep_1")
        assert await store.endpoints.list_all() == ()
