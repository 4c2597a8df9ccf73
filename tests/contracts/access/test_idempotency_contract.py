"""What the port `Instances` promises about claims: one Idempotency-Key, one instance."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from gpuherd.domain.errors import IdempotencyKeyReused
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.ports.instance_port import Change
from tests.support.builders import a_delivery, a_reconcile_job, an_event, an_instance, instance_id
from tests.support.sql.databases import Store, all_at_once

CLAIM = IdempotencyClaim("key-of-ada", "run-7", "fingerprint-1")
OTHER_BODY = replace(CLAIM, fingerprint="fingerprint-2")


def launch(n: int) -> Change:
    return Change(
        an_instance(n), events=(an_event(n),), deliveries=(a_delivery(n),), jobs=(a_reconcile_job(n),)
    )


class TestClaims:
    async def test_a_claim_is_unknown_until_somebody_makes_it(self, store: Store) -> None:
        assert await store.instances.claimed(CLAIM) is None
        await store.instances.add(launch(1), CLAIM)
        assert await store.instances.claimed(CLAIM) == an_instance(1)

    async def test_the_same_claim_again_gives_the_first_instance_and_writes_nothing(
        self, store: Store
    ) -> None:
        first = await store.instances.add(launch(1), CLAIM)
        before = await store.everything()
        assert await store.instances.add(launch(2), CLAIM) == first
        assert await store.everything() == before

    async def test_a_repeated_claim_shows_the_instance_as_it_is_now(self, store: Store) -> None:
        await store.instances.add(launch(1), CLAIM)
        leased = await store.instance_leases.acquire(instance_id(1), None)
        assert leased is not None
        await store.instance_leases.save(leased, Change(replace(leased.instance, status=Status.STARTING)))
        repeated = await store.instances.add(launch(2), CLAIM)
        assert (repeated.id, repeated.status) == (instance_id(1), Status.STARTING)

    @pytest.mark.proves("F25")
    async def test_another_body_under_the_same_key_is_a_mismatch_and_changes_nothing(
        self, store: Store
    ) -> None:
        await store.instances.add(launch(1), CLAIM)
        before = await store.everything()
        with pytest.raises(IdempotencyKeyReused):
            await store.instances.add(launch(2), OTHER_BODY)
        with pytest.raises(IdempotencyKeyReused):
            await store.instances.claimed(OTHER_BODY)
        assert await store.everything() == before

    async def test_the_same_key_in_another_scope_is_another_claim(self, store: Store) -> None:
        await store.instances.add(launch(1), CLAIM)
        other = replace(CLAIM, scope="key-of-bob", fingerprint="fingerprint-2")
        assert (await store.instances.add(launch(2), other)).id == instance_id(2)

    @pytest.mark.proves("F1")
    async def test_a_launch_that_failed_leaves_its_claim_free(self, store: Store) -> None:
        broken = replace(launch(1), events=(an_event(1), an_event(1)))
        with pytest.raises(sa.exc.IntegrityError):
            await store.instances.add(broken, CLAIM)
        assert await store.instances.claimed(CLAIM) is None
        assert (await store.instances.add(launch(2), CLAIM)).id == instance_id(2)

    async def test_fifty_at_once_with_one_claim_are_one_instance(self, store: Store) -> None:
        answers = await all_at_once(50, lambda n: store.instances.add(launch(n), CLAIM))
        assert len({it.id for it in answers}) == 1
        everything = await store.everything()
        for table in ("instance", "claim", "event", "delivery", "job"):
            assert len(everything[table]) == 1, table

    async def test_fifty_at_once_with_many_bodies_are_one_instance_and_mismatches(self, store: Store) -> None:
        answers = await all_at_once(
            50, lambda n: store.instances.add(launch(n), replace(CLAIM, fingerprint=f"body {n % 5}"))
        )
        accepted = {it.id for it in answers if isinstance(it, Instance)}
        assert len(accepted) == 1
        assert sum(isinstance(it, IdempotencyKeyReused) for it in answers) == 40
        assert len((await store.everything())["instance"]) == 1

    @pytest.mark.proves("F26")
    async def test_two_processes_at_once_with_one_claim_are_one_instance(
        self, store: Store, other_store: Store
    ) -> None:
        for claim in (replace(CLAIM, key=f"key-{n}") for n in range(10)):
            offset = int(claim.key.removeprefix("key-")) * 10
            processes = (store, other_store)
            answers = await all_at_once(
                10,
                lambda n: processes[n % 2].instances.add(launch(offset + n), claim),  # noqa: B023
            )
            assert len({it.id for it in answers}) == 1
        assert len((await store.everything())["instance"]) == 10

    async def test_claims_of_two_processes_in_opposite_order_do_not_get_in_each_others_way(
        self, store: Store, other_store: Store
    ) -> None:
        """Each process commits a batch; on PostgreSQL two batches may wait for each other in a circle."""
        claims = [replace(CLAIM, key=f"key-{n}") for n in range(40)]

        async def add(n: int) -> Instance:
            # The first process goes up, the second comes down.
            mine, place = (store, n) if n < 40 else (other_store, 79 - n)
            return await mine.instances.add(launch(n), claims[place])

        answers = await all_at_once(80, add)
        assert [it for it in answers if isinstance(it, BaseException)] == []
        assert {answers[n].id for n in range(40)} == {answers[79 - n].id for n in range(40)}
        assert len((await store.everything())["instance"]) == 40
