"""A second user of our installation id, and copies of what we made: nothing of theirs is ever removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.domain.instance.rent_attempt import AttemptState, Tag, cloud_name, parse_tag
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import INSTALLATION_SHARED
from gpuherd.usecases.cloud.handle_orphan import OPERATOR
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.sql.memory_database import copy_database
from tests.support.unmanaged_machines import alive, ledger, look, look_for, record, rent_tagged

LOOK_EVERY = timedelta(seconds=5)
STEP = timedelta(seconds=5)


async def run_both(one: Herd, other: Herd, span: timedelta) -> None:
    """Let two services live beside each other."""
    end = one.clock.now() + span
    while one.clock.now() < end:
        await one.run_for(STEP)
        await other.run_for(timedelta(0))


@pytest.fixture
async def copies(
    tmp_path: Path, world: World, clock: FakeClock
) -> AsyncIterator[tuple[Herd, Herd, Instance]]:
    """Two services on two copies of one database, in which one wish waits."""
    first = Herd(tmp_path / "herd.db", world, clock, look_every=LOOK_EVERY)
    instance = await first.launch()
    first.close()
    copy_database(tmp_path / "herd.db", tmp_path / "copy.db")
    original = Herd(tmp_path / "herd.db", world, clock, seed=2, look_every=LOOK_EVERY)
    copy = Herd(tmp_path / "copy.db", world, clock, seed=3, look_every=LOOK_EVERY)
    # The cloud tells in whole seconds when a machine was made.
    await clock.sleep(2)
    yield original, copy, instance
    original.close()
    copy.close()


@pytest.mark.proves("R5")
async def test_a_copy_beside_its_original_rents_once_more_and_both_machines_live(
    copies: tuple[Herd, Herd, Instance], world: World
) -> None:
    original, copy, instance = copies
    # Neither can know of the other's call before its own.
    world.faults.add(Fault(FaultKind.LIST_LAG, count=2, seconds=20))
    await run_both(original, copy, timedelta(minutes=10))
    has, has_too = await original.instances.get(instance.id), await copy.get(instance.id)
    assert has.status is has_too.status is Status.RUNNING
    assert has.cloud_id != has_too.cloud_id
    assert alive(original) == {has.cloud_id, has_too.cloud_id}
    assert world.calls[ApiEndpoint.DELETE.value] == 0
    for herd, others in ((original, has_too), (copy, has)):
        (line,) = (await ledger(herd)).values()
        assert (line.cloud_id, line.verdict, line.order) == (others.cloud_id, OrphanVerdict.UNRECORDED, None)
        assert others.cloud_id is not None
        assert others.cloud_id in (await herd.flags.get(INSTALLATION_SHARED) or "")
        health = await herd.health()
        assert health is not None and health.installation_shared is not None
        assert "gpuherd creates resume" in health.installation_shared
        assert health.creates_blocked == health.collector_braked == health.installation_shared
        told = await herd.events(ACCOUNT)
        assert [it.type for it in told] == ["installation.shared"]


async def test_a_copy_that_sees_its_originals_new_machine_rents_none_and_takes_none(
    copies: tuple[Herd, Herd, Instance], world: World
) -> None:
    original, copy, instance = copies
    await original.settle(instance)
    await run_both(original, copy, timedelta(minutes=5))
    waiting = await copy.get(instance.id)
    assert (waiting.status, waiting.cloud_id) == (Status.CREATING, None)
    assert "creates are blocked" in waiting.reason
    assert world.calls[ApiEndpoint.CREATE.value] == 1
    assert await original.flags.get(INSTALLATION_SHARED) is None, "nothing was made past it"


async def test_a_turn_that_sees_it_before_the_collector_does_not_take_it_either(
    copies: tuple[Herd, Herd, Instance],
) -> None:
    original, copy, instance = copies
    await original.settle(instance)
    await copy.look()
    leased = await copy.instance_leases.acquire(instance.id, None)
    assert leased is not None
    await copy.rent(leased)
    await copy.instance_leases.release(leased)
    assert (await copy.get(instance.id)).cloud_id is None
    assert await copy.flags.get(INSTALLATION_SHARED) is not None


async def test_the_two_copies_make_different_tags_for_the_same_attempt(
    copies: tuple[Herd, Herd, Instance], world: World
) -> None:
    original, copy, _ = copies
    world.faults.add(Fault(FaultKind.LIST_LAG, count=2, seconds=20))
    await run_both(original, copy, timedelta(minutes=1))
    one, other = (parse_tag(it.name) for it in world.alive())
    assert one is not None
    assert other is not None
    assert replace(one, nonce="") == replace(other, nonce="")
    assert one.nonce != other.nonce


async def test_when_a_person_has_looked_the_one_that_stays_goes_on(
    copies: tuple[Herd, Herd, Instance], world: World
) -> None:
    original, copy, instance = copies
    rented = await original.settle(instance)
    await run_both(original, copy, timedelta(minutes=1))
    assert await copy.flags.get(INSTALLATION_SHARED) is not None
    # From here on the copy is alone.
    await copy.resume_creates(OPERATOR)
    assert await copy.creates_blocked() is None
    taken = await copy.settle(instance)
    assert (taken.status, taken.cloud_id) == (Status.RUNNING, rented.cloud_id)
    fresh = await copy.settle(await copy.launch("fresh"))
    assert fresh.status is Status.RUNNING
    await copy.run_for(timedelta(minutes=5))
    assert await copy.flags.get(INSTALLATION_SHARED) is None
    assert len(world.alive()) == 2


async def test_the_machine_of_an_instance_that_we_never_had_is_a_sign_too(herd: Herd, world: World) -> None:
    await look(herd, 2)
    rent_tagged(herd, 7)
    await look(herd)
    assert await herd.flags.get(INSTALLATION_SHARED) is not None
    blocked = await herd.launch()
    await herd.run_for(timedelta(minutes=1))
    assert (await herd.get(blocked.id)).cloud_id is None
    assert world.calls[ApiEndpoint.CREATE.value] == 0


async def test_the_alarm_stops_the_collector(herd: Herd) -> None:
    await record(herd, 1)
    surplus = rent_tagged(herd, 1)
    await look(herd, 2)
    stranger = rent_tagged(herd, 7)
    await look_for(herd, timedelta(minutes=5))
    assert alive(herd) == {surplus, stranger}
    await herd.resume_creates(OPERATOR)
    await look_for(herd, timedelta(minutes=1))
    assert alive(herd) == {stranger}


async def test_under_the_alarm_a_failed_instance_keeps_its_machine_and_a_deleted_one_does_not(
    herd: Herd,
) -> None:
    herd.prober.is_up = lambda _: False
    failing = await herd.launch(health_check=HealthCheck(target_port=8888))
    deleted = await herd.settle(await herd.launch("other"))
    rent_tagged(herd, 7)
    await herd.run_for(timedelta(minutes=40))
    failed = await herd.get(failing.id)
    assert (failed.status, failed.releasing) == (Status.FAILED, True)
    assert failed.cloud_id in alive(herd)
    await herd.delete(deleted.id)
    await herd.run_for(timedelta(minutes=5))
    assert deleted.cloud_id not in alive(herd)
    await herd.resume_creates(OPERATOR)
    await herd.settle(failing)
    assert failed.cloud_id not in alive(herd)


async def test_machines_of_an_earlier_life_raise_no_alarm(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    """An old copy was put back: what was made since then was made before this process began."""
    first = Herd(tmp_path / "herd.db", world, clock)
    first.close()
    copy_database(tmp_path / "herd.db", tmp_path / "backup.db")
    second = Herd(tmp_path / "herd.db", world, clock, seed=2)
    await second.settle(await second.launch())
    second.close()
    third = Herd(tmp_path / "backup.db", world, clock, seed=3)
    await look_for(third, timedelta(minutes=5))
    assert [it.verdict for it in (await ledger(third)).values()] == [OrphanVerdict.UNRECORDED]
    assert await third.flags.get(INSTALLATION_SHARED) is None
    third.close()


def copy_of(herd: Herd, cloud_id: str, **changes: object) -> str:
    """Make a machine as somebody does who copies one of ours in the console."""
    request = replace(herd.world.machines[cloud_id].request, **changes)  # type: ignore[arg-type]
    return herd.world.create(request)


@pytest.mark.parametrize("after", [timedelta(minutes=1), timedelta(days=3)])
async def test_a_copied_name_is_reported_and_never_removed(
    herd: Herd, world: World, after: timedelta
) -> None:
    mine = await herd.settle(await herd.launch())
    assert mine.cloud_id is not None
    await herd.clock.sleep(after.total_seconds())
    copied = copy_of(herd, mine.cloud_id)
    await look_for(herd, timedelta(minutes=10))
    assert (await ledger(herd))[copied].verdict is OrphanVerdict.UNRECORDED
    await herd.delete(mine.id)
    await herd.run_for(timedelta(minutes=10))
    assert (await herd.get(mine.id)).status is Status.DELETED
    assert alive(herd) == {copied}
    assert await herd.flags.get(INSTALLATION_SHARED) is None, "a person is no second database"


async def test_a_copied_environment_is_reported_and_never_removed(herd: Herd) -> None:
    """Of an abandoned call even, which has no machine yet."""
    await record(herd, 1)
    given_up = rent_tagged(herd, 1)
    tag = parse_tag(herd.world.machines[given_up].name)
    copied = copy_of(herd, given_up, name="my-own", envs=(("GPUHERD_TAG", str(tag)),))
    await look(herd)
    await look_for(herd, timedelta(minutes=5))
    assert alive(herd) == {copied}
    assert (await ledger(herd))[copied].verdict is OrphanVerdict.UNRECORDED


async def test_a_machine_with_the_tag_of_a_call_of_days_ago_is_not_taken_for_its_late_effect(
    herd: Herd, clock: FakeClock
) -> None:
    await record(herd, 1, AttemptState.REJECTED, status=Status.FAILED, goal=Goal.RUNNING)
    await clock.sleep(timedelta(days=2).total_seconds())
    late = rent_tagged(herd, 1)
    await look_for(herd, timedelta(minutes=10))
    assert alive(herd) == {late}
    assert (await ledger(herd))[late].verdict is OrphanVerdict.UNRECORDED


async def test_tags_of_before_the_random_part_are_read_and_resolved(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1))
    herd.rent_without_nonce()
    found = await herd.settle(await herd.launch())
    (machine,) = world.alive()
    assert machine.name == cloud_name("job", Tag(herd.installation, found.key, 1))
    assert (found.status, found.cloud_id) == (Status.RUNNING, machine.id)
