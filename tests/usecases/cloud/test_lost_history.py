"""A store that loses its newest part under a running service, as a promoted standby or a recovery does."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.ports.instance_port import Change, InstanceQuery
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.observe_cloud import KNOWN_RECHECK_S
from tests.support.builders import a_list
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

MINUTE = timedelta(minutes=1)


class Past:
    """The database as it was at some moment; `bring_back` loses everything since then."""

    def __init__(self, herd: Herd):
        self._herd = herd
        self._then = herd.stored_bytes()

    def bring_back(self, *, notice: bool = True) -> None:
        self._herd.restore_bytes(self._then)
        if notice:
            # As the next connection to the server does.
            self._herd.history.declare_lost("of a test")


async def a_rental_under_way(herd: Herd) -> tuple[Instance, Past]:
    """Rent, and return the past in which nobody had done so."""
    await herd.look()
    instance = await herd.launch()
    past = Past(herd)
    await herd.run_jobs_for(timedelta(milliseconds=1))
    assert herd.rows(herd.tables.attempt)
    return instance, past


class TestRenting:
    @pytest.mark.proves("F34")
    async def test_nothing_is_rented_before_the_account_was_seen_again(
        self, herd: Herd, world: World
    ) -> None:
        instance, past = await a_rental_under_way(herd)
        past.bring_back()
        await herd.run_jobs_for(MINUTE)
        assert len(world.machines) == 1
        assert herd.rows(herd.tables.attempt) == []
        settled = await herd.settle(instance)
        assert (settled.status, settled.cloud_id) == (Status.RUNNING, next(iter(world.machines)))
        assert len(world.machines) == 1

    @pytest.mark.proves("R2")
    @pytest.mark.parametrize(
        "late",
        [
            Fault(FaultKind.LIST_LAG, count=1, seconds=100),
            Fault(FaultKind.LATE_COMMIT, count=1, seconds=100),
        ],
        ids=["listed late", "made late"],
    )
    async def test_a_machine_that_can_only_be_seen_later_is_waited_for(
        self, herd: Herd, world: World, late: Fault
    ) -> None:
        world.faults.add(late)
        instance, past = await a_rental_under_way(herd)
        past.bring_back()
        settled = await herd.settle(instance)
        assert settled.status is Status.RUNNING
        assert list(world.machines) == [settled.cloud_id]

    @pytest.mark.proves("R2")
    @pytest.mark.parametrize("lag_s", [0, 100], ids=["listed at once", "listed late"])
    async def test_a_machine_whose_create_call_was_lost_goes_with_its_instance(
        self, herd: Herd, world: World, lag_s: float
    ) -> None:
        world.faults.add(Fault(FaultKind.LIST_LAG, count=1, seconds=lag_s))
        instance, past = await a_rental_under_way(herd)
        past.bring_back()
        await herd.delete(instance.id)
        deleted = await herd.settle(instance)
        assert deleted.status is Status.DELETED
        assert not world.alive()

    async def test_what_was_never_rented_is_deleted_once_that_is_sure(self, herd: Herd) -> None:
        await herd.look()
        instance = await herd.launch()
        Past(herd).bring_back()
        await herd.delete(instance.id)
        await herd.run_for(MINUTE)
        assert (await herd.get(instance.id)).status is Status.DELETING
        assert (await herd.settle(instance)).status is Status.DELETED

    async def test_a_machine_whose_create_call_was_lost_is_bound_even_at_the_deadline(
        self, herd: Herd, world: World
    ) -> None:
        instance, past = await a_rental_under_way(herd)
        past.bring_back()
        await herd.clock.sleep((instance.deadline - herd.clock.now()).total_seconds() + 1)
        failed = await herd.settle(instance)
        assert (failed.status, failed.cloud_id) == (Status.FAILED, next(iter(world.machines)))
        assert not world.alive()

    async def test_what_was_never_rented_is_rented_once_that_is_sure(self, herd: Herd, world: World) -> None:
        await herd.look()
        instance = await herd.launch()
        Past(herd).bring_back()
        await herd.run_for(SettlingPolicy().settle)
        assert not world.machines
        assert "create call" in (await herd.get(instance.id)).reason
        settled = await herd.settle(instance)
        assert (settled.status, list(world.machines)) == (Status.RUNNING, [settled.cloud_id])

    async def test_a_wish_from_after_the_loss_waits_for_one_look_only(self, herd: Herd, world: World) -> None:
        await herd.settle(await herd.launch("before"))
        Past(herd).bring_back()
        await herd.clock.sleep(1)
        await herd.launch("after")
        await herd.run_jobs_for(MINUTE)
        assert len(world.machines) == 1
        await herd.run_for(timedelta(seconds=10))
        assert len(world.machines) == 2

    async def test_an_answer_that_comes_after_the_loss_is_still_written_down(
        self, herd: Herd, world: World
    ) -> None:
        await herd.look()
        instance = await herd.launch()
        create = herd.cloud.create_machine

        async def lose_meanwhile(order: Any) -> str:
            cloud_id = await create(order)
            # Only the intent: the lease was there before.
            herd.database.write_now(
                lambda c: [
                    c.execute(sa.delete(herd.tables.attempt)),
                    c.execute(sa.update(herd.tables.instance).values(version=instance.version)),
                ]
            )
            herd.history.declare_lost("of a test")
            return cloud_id

        herd.cloud.create_machine = lose_meanwhile  # type: ignore[method-assign]
        await herd.run_jobs_for(timedelta(milliseconds=1))
        assert [row.state for row in herd.rows(herd.tables.attempt)] == ["bound"]
        settled = await herd.settle(instance)
        assert (settled.status, list(world.machines)) == (Status.RUNNING, [settled.cloud_id])


class TestObserving:
    @pytest.mark.proves("F34")
    async def test_a_machine_whose_sighting_was_lost_is_written_down_again(self, herd: Herd) -> None:
        past = Past(herd)
        instance = await herd.settle(await herd.launch())
        past.bring_back()
        await herd.look()
        assert [row.cloud_id for row in herd.rows(herd.tables.sighting)] == [instance.cloud_id]

    async def test_a_list_that_vanishes_without_a_word_is_noticed_by_the_next(self, herd: Herd) -> None:
        await herd.look()
        past = Past(herd)
        instance = await herd.settle(await herd.launch())
        past.bring_back(notice=False)
        assert herd.history.lost_at is None
        await herd.look()
        assert herd.history.lost_at == herd.clock.now()
        assert [row.cloud_id for row in herd.rows(herd.tables.sighting)] == [instance.cloud_id]

    async def test_sightings_that_vanish_without_a_word_are_noticed_within_minutes(self, herd: Herd) -> None:
        instance = await herd.settle(await herd.launch())
        herd.database.write_now(lambda c: c.execute(sa.delete(herd.tables.sighting)).rowcount)
        await herd.look()
        assert herd.history.lost_at is None
        await herd.clock.sleep(KNOWN_RECHECK_S)
        await herd.look()
        assert herd.history.lost_at == herd.clock.now()
        assert [row.cloud_id for row in herd.rows(herd.tables.sighting)] == [instance.cloud_id]

    async def test_a_store_that_has_everything_is_never_found_to_have_lost_something(
        self, herd: Herd, world: World
    ) -> None:
        instance = await herd.settle(await herd.launch())
        world.stop(instance.cloud_id or "")
        await herd.run_for(timedelta(seconds=3 * KNOWN_RECHECK_S))
        assert herd.history.lost_at is None

    async def test_a_look_in_the_middle_of_which_the_store_lost_something_does_not_count(
        self, herd: Herd, world: World
    ) -> None:
        past = Past(herd)
        await herd.settle(await herd.launch())
        lists = herd.cloud.list_machines

        async def lose_meanwhile() -> Any:
            listing = await lists()
            past.bring_back()
            return listing

        herd.cloud.list_machines = lose_meanwhile  # type: ignore[method-assign]
        assert not await herd.look()
        assert herd.rows(herd.tables.list_record) == []
        assert not await herd.has_listed()

    async def test_nothing_healthy_is_deleted_when_its_running_was_lost(
        self, herd: Herd, world: World
    ) -> None:
        instance = await herd.launch()
        await herd.run_for(timedelta(seconds=6))
        past = Past(herd)
        ready = await herd.settle(instance)
        past.bring_back()
        await herd.run_for(timedelta(minutes=30))
        assert (await herd.get(instance.id)).status is Status.RUNNING
        assert list(world.listed) == [ready.cloud_id]


class TestHasListed:
    async def test_a_list_of_an_earlier_process_never_counts_whatever_the_clock_says(
        self, herd: Herd, world: World, clock: FakeClock, tmp_path: Path
    ) -> None:
        await herd.look()
        herd.close()
        clock.jump_wall(-3600)
        with closing(Herd(tmp_path / "herd.db", world, clock)) as restarted:
            assert not await restarted.has_listed()
            await restarted.observations.record(a_list(), [], [])
            assert await restarted.has_listed()


class TestReading:
    async def test_a_version_that_is_given_out_twice_is_shown_as_it_is_now(self, herd: Herd) -> None:
        instance = await herd.settle(await herd.launch())
        past = Past(herd)
        for reason in ("lost", "kept"):
            current = await herd.get(instance.id)
            await herd.instances.update(Change(current.__class__(**{**vars(current), "reason": reason})))
            details = await herd.details(instance.id)
            page = await herd.page(InstanceQuery(limit=10))
            assert reason.encode() in details
            assert reason.encode() in page
            if reason == "lost":
                past.bring_back()

    async def test_an_instance_that_was_lost_is_not_shown_any_more(self, herd: Herd, world: World) -> None:
        await herd.look()
        past = Past(herd)
        instance = await herd.settle(await herd.launch())
        await herd.details(instance.id)
        past.bring_back()
        page = await herd.page(InstanceQuery(limit=10))
        assert instance.id.encode() not in page
        # Its machine is reported, and nobody touches it.
        await herd.run_for(timedelta(minutes=10))
        assert [it.machine.cloud_id for it in await herd.orphans.open()] == [instance.cloud_id]
        assert list(world.listed) == [instance.cloud_id]
