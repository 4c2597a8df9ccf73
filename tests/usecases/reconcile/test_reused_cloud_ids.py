"""The cloud gives the id of a machine that is gone to a new one, which is bound, used and deleted as any."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_state import VANISHED
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.rent_attempt import AttemptState, Tag, cloud_name
from gpuherd.domain.job import Job, JobStatus, Priority, Snooze
from gpuherd.simulator import world as simulated
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.market import new_id
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED, INSTALLATION_SHARED, SHARING_CLEARED_AT
from gpuherd.usecases.reconcile.verify_machine import Ownership
from gpuherd.usecases.views.instance_view import describe
from tests.support.builders import a_list
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import Herd
from tests.support.unmanaged_machines import alive, ledger, record, rent_outside_gpuherd, rent_tagged, tag_of

HOOK = "https://hooks.example/a"


@pytest.fixture(autouse=True)
def one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cloud draw one id again and again, as long as no machine has it."""

    def draw(taken: Container[str], rng: Random) -> str:
        return new_id(taken, rng) if "again" in taken else "again"

    monkeypatch.setattr(simulated, "new_id", draw)


async def deleted(herd: Herd, instance: Instance) -> Instance:
    await herd.delete(instance.id)
    await herd.run_for(timedelta(minutes=3))
    gone = await herd.get(instance.id)
    assert gone.status is Status.DELETED
    # Nothing is left of it that could be asked for.
    herd.world.machines.pop("again", None)
    assert not alive(herd)
    return gone


@pytest.mark.proves("F60")
async def test_the_second_machine_is_bound_used_and_deleted_again(herd: Herd, world: World) -> None:
    before = await deleted(herd, await herd.settle(await herd.launch("first")))
    after = await herd.settle(await herd.launch("second"))
    assert (after.status, after.cloud_id) == (Status.RUNNING, "again")
    assert await herd.flags.get(CREATES_BLOCKED) is None
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.get(after.id)).status is Status.RUNNING
    assert alive(herd) == {"again"}
    assert await ledger(herd) == {}
    # The first keeps its story.
    story = await herd.get(before.id)
    assert (story.status, story.cloud_id, story.last_cloud_id) == (Status.DELETED, None, "again")
    shown = describe(story)
    assert (shown.cloud_instance_id, shown.novita_instance_id) == ("again", "again")
    await deleted(herd, after)
    third = await herd.settle(await herd.launch("third"))
    assert (third.status, third.cloud_id) == (Status.RUNNING, "again")


@pytest.mark.proves("F60")
async def test_what_was_seen_of_the_first_machine_proves_nothing_about_the_second(
    herd: Herd, world: World
) -> None:
    await deleted(herd, await herd.settle(await herd.launch("first")))
    # For a while neither a list nor a question shows it.
    world.faults.add(Fault(FaultKind.LIST_LAG, count=1, seconds=60))
    world.faults.add(Fault(FaultKind.GET_404_GLITCH, for_s=60))
    after = await herd.settle(await herd.launch("second"))
    assert (after.status, after.last_error) == (Status.RUNNING, None)
    assert await herd.flags.get(CREATES_BLOCKED) is None


async def test_who_had_the_id_before_proves_nothing_while_no_list_comes(herd: Herd, world: World) -> None:
    first = await herd.settle(await herd.launch("first"))
    await herd.delete(first.id)
    while (await herd.get(first.id)).status is not Status.DELETED:
        await herd.run_for(timedelta(seconds=1))
    world.machines.pop("again", None)
    # The last list that came showed the machine of the first, with all its tags, as one that was removed.
    seen = (await herd.observations.all_known())["again"]
    removed = replace(seen.machine, phase=Phase.ABSENT)
    shown = replace(seen, machine=removed, missing_since=None, missing_lists=0)
    await herd.observations.record(a_list(herd.clock.now() - START), [shown], [])
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=60, endpoints=(ApiEndpoint.LIST,)))
    world.faults.add(Fault(FaultKind.GET_404_GLITCH, for_s=50))
    after = await herd.settle(await herd.launch("second"))
    assert (after.cloud_id, after.status, after.last_error) == ("again", Status.RUNNING, None)
    assert alive(herd) == {"again"}


async def test_a_lost_answer_is_found_by_its_tag(herd: Herd, world: World) -> None:
    await deleted(herd, await herd.settle(await herd.launch("first")))
    world.faults.add(Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1))
    after = await herd.settle(await herd.launch("second"))
    assert (after.status, after.cloud_id) == (Status.RUNNING, "again")
    (attempt,) = await herd.attempts(after.id)
    assert attempt.state is AttemptState.BOUND
    assert alive(herd) == {"again"}


async def vanished(herd: Herd) -> Instance:
    """Return an instance whose machine was removed by somebody else."""
    instance = await herd.settle(await herd.launch("first"))
    herd.world.delete("again")
    await herd.run_for(timedelta(minutes=3))
    herd.world.machines.pop("again", None)
    lost = await herd.get(instance.id)
    assert (lost.status, lost.cloud_id) == (Status.FAILED, "again")
    return lost


async def test_an_id_goes_over_from_an_instance_whose_machine_vanished(herd: Herd, world: World) -> None:
    before = await vanished(herd)
    world.faults.add(Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1))
    after = await herd.settle(await herd.launch("second"))
    assert (after.status, after.cloud_id) == (Status.RUNNING, "again")
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.get(before.id)).status is Status.FAILED
    assert alive(herd) == {"again"}
    assert await ledger(herd) == {}


async def test_an_id_goes_over_from_an_instance_that_failed_and_kept_its_machine_until_somebody_removed_it(
    herd: Herd, world: World
) -> None:
    """Nobody found out that it was gone, so the second machine belonged to nobody for ever (seed 820371)."""
    herd.prober.is_up = lambda _: False
    check = HealthCheck(target_port=8888, max_wait_ms=60_000)
    kept = await herd.launch("first", on_failure=OnFailure.KEEP, health_check=check, webhook_url=HOOK)
    kept = await herd.settle(kept)
    assert (kept.status, kept.cloud_id, alive(herd)) == (Status.FAILED, "again", {"again"})
    world.delete("again")
    await herd.run_for(timedelta(minutes=3))
    world.machines.pop("again", None)
    gone = await herd.get(kept.id)
    assert gone.last_error is not None and gone.last_error.code == VANISHED
    assert herd.webhooks().count("instance.failed") == 2, "who has kept it is told"
    after = await herd.settle(await herd.launch("second"))
    assert (after.status, after.cloud_id) == (Status.RUNNING, "again")
    assert await ledger(herd) == {}


async def test_an_instance_that_has_had_a_machine_does_not_take_another_of_its_tag_away_with_it(
    herd: Herd, world: World
) -> None:
    """A copy of our database has made it, and the id of our own is another instance's now (seed 706779)."""
    before = await vanished(herd)
    await herd.settle(await herd.launch("second"))
    copied = Tag(herd.installation, before.key, 1, "zzzzzz")
    of_a_copy = rent_outside_gpuherd(world, cloud_name("theirs", copied))
    await herd.run_for(timedelta(minutes=3))
    # Somebody has looked, so it is no news.
    await herd.flags.swap(INSTALLATION_SHARED, await herd.flags.get(INSTALLATION_SHARED), None)
    await herd.flags.put(SHARING_CLEARED_AT, herd.clock.now().isoformat())
    await herd.delete(before.id)
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.get(before.id)).status is Status.DELETED
    assert alive(herd) == {"again", of_a_copy}


@pytest.mark.proves("F60")
async def test_an_instance_whose_machine_vanished_does_not_come_back_with_another_s(herd: Herd) -> None:
    before = await vanished(herd)
    assert rent_tagged(herd, 7) == "again"
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.get(before.id)).status is Status.FAILED
    assert (await ledger(herd))["again"].verdict is OrphanVerdict.UNRECORDED


async def test_an_instance_whose_machine_vanished_does_not_come_back_with_one_that_seems_older(
    herd: Herd,
) -> None:
    """The cloud's clock was set back, so its stamps do not tell that it is another one; but ours was gone."""
    before = await vanished(herd)
    assert rent_tagged(herd, 7) == "again"
    herd.world.machines["again"].created_at -= timedelta(days=1).total_seconds()
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.get(before.id)).status is Status.FAILED


@pytest.mark.proves("F60")
async def test_a_given_up_call_s_machine_under_the_id_of_a_vanished_one_is_removed(herd: Herd) -> None:
    """The lost one was made by a call of its own, and this one after that had its answer."""
    before = await vanished(herd)
    await record(herd, 7, status=Status.DELETED)
    assert rent_tagged(herd, 7) == "again"
    await herd.run_for(timedelta(minutes=3))
    assert alive(herd) == set()
    assert (await herd.get(before.id)).status is Status.FAILED


@pytest.mark.proves("F60")
async def test_a_vanished_machine_that_comes_back_under_the_tag_of_a_given_up_call_is_reported(
    herd: Herd, world: World
) -> None:
    """Not removed: somebody has only renamed it, while the cloud showed nothing of it."""
    before = await herd.settle(await herd.launch("first"))
    world.faults.add(Fault(FaultKind.EMPTY_LIST, for_s=300), Fault(FaultKind.GET_404_GLITCH, for_s=300))
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.get(before.id)).status is Status.FAILED
    await record(herd, 7, status=Status.DELETED)
    machine = world.machines["again"]
    machine.name, machine.request = cloud_name("job-7", tag_of(herd, 7)), replace(machine.request, envs=())
    await herd.run_for(timedelta(minutes=6))
    line = (await ledger(herd))["again"]
    assert line.verdict is OrphanVerdict.UNRECORDED
    assert f"the machine that instance {before.id} has lost" in line.finding.reason
    assert alive(herd) == {"again"}


async def test_an_id_that_is_used_again_before_its_first_machine_is_proven_gone_goes_over(
    herd: Herd, world: World
) -> None:
    """The first instance is still being deleted, and must not delete the machine of the second."""
    first = await herd.settle(await herd.launch("first"))
    await herd.run_for(timedelta(minutes=10))
    await herd.delete(first.id)
    # The cloud removes it, and nobody has looked since.
    await herd.run_jobs_for(timedelta(seconds=20))
    world.tick()
    assert (await herd.get(first.id)).status is not Status.DELETED
    world.machines.pop("again")
    second = await herd.launch("second")
    await herd.run_for(timedelta(minutes=8))
    assert alive(herd) == {"again"}
    assert (await herd.get(first.id)).status is Status.DELETED
    after = await herd.get(second.id)
    assert (after.status, after.cloud_id) == (Status.RUNNING, "again")
    assert await herd.flags.get(CREATES_BLOCKED) is None


async def test_a_machine_that_somebody_has_given_the_name_of_another_stays_with_its_instance(
    herd: Herd, world: World
) -> None:
    first = await herd.settle(await herd.launch("first"))
    second = await herd.settle(await herd.launch("second"))
    await herd.run_for(timedelta(minutes=10))
    mine, other = world.machines[first.cloud_id or ""], world.machines[second.cloud_id or ""]
    # Nor does the environment tell, as where lists do not show it.
    mine.name, mine.request = other.name, replace(mine.request, envs=())
    await herd.run_for(timedelta(minutes=5))
    assert (await herd.get(first.id)).status is Status.RUNNING
    assert alive(herd) == {first.cloud_id, second.cloud_id}


@pytest.mark.proves("F60")
async def test_a_turn_that_finds_its_machine_s_id_with_another_instance_looks_again_soon(
    herd: Herd, world: World
) -> None:
    """That is no failure: the next list shows the other one that its own machine is gone."""
    await herd.settle(await herd.launch("first"))
    world.delete("again")
    await herd.clock.sleep(60)
    world.tick()
    world.machines.pop("again")
    second = await herd.launch("second")
    job = Job("job", "create_instance", JobStatus.PROCESSING, Priority.NORMAL, 0, 3, START, second.id)
    outcome = await herd.reconcile(job)
    assert isinstance(outcome, Snooze)
    assert outcome.delay <= timedelta(seconds=5)
    assert "is not proven to be gone" in outcome.reason


async def test_the_id_of_a_machine_whose_loss_is_not_proven_yet_goes_over_as_soon_as_a_list_shows_it(
    herd: Herd, world: World
) -> None:
    before = await herd.settle(await herd.launch("first"))
    world.delete("again")
    await herd.clock.sleep(60)
    world.tick()
    world.machines.pop("again")
    # No look was made in between, so nothing has missed the first machine.
    after = await herd.settle(await herd.launch("second"))
    assert (after.status, after.cloud_id) == (Status.RUNNING, "again")
    lost = await herd.get(before.id)
    assert (lost.status, lost.cloud_id) == (Status.FAILED, None)
    assert lost.last_error is not None
    assert lost.last_error.code == VANISHED
    assert alive(herd) == {"again"}


@pytest.mark.proves("F60")
@pytest.mark.parametrize("ahead_s", [0.0, 7200.0])
async def test_a_delete_is_not_repeated_on_the_next_machine_of_the_id(
    herd: Herd, world: World, clock: FakeClock, ahead_s: float
) -> None:
    # By a clock that is ahead of the cloud's, the next one seems to be older than ours.
    clock.jump_wall(ahead_s)
    before = await herd.settle(await herd.launch("first"))
    # No list comes any more, so the delete is asked for again and again.
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=600, endpoints=(ApiEndpoint.LIST,)))
    await herd.delete(before.id)
    await herd.run_for(timedelta(seconds=20))
    world.tick()
    world.machines.pop("again")
    stranger = rent_tagged(herd, 7)
    assert stranger == "again"
    await herd.run_for(timedelta(minutes=5))
    assert alive(herd) == {"again"}
    await herd.run_for(timedelta(minutes=10))
    assert (await herd.get(before.id)).status is Status.DELETED
    assert alive(herd) == {"again"}


async def passed_on_unseen(herd: Herd) -> Instance:
    """Return an instance whose machine somebody has removed at the console, and whose id another one has."""
    world = herd.world
    before = await herd.settle(await herd.launch("first"))
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=600, endpoints=(ApiEndpoint.LIST,)))
    world.delete("again")
    await herd.run_for(timedelta(minutes=3))
    world.tick()
    world.machines.pop("again")
    assert rent_tagged(herd, 7) == "again"
    return before


@pytest.mark.proves("F60")
@pytest.mark.parametrize("order", ["delete", "stop"])
async def test_a_machine_that_no_list_shows_is_not_stopped_or_removed_unseen(
    herd: Herd, world: World, order: str
) -> None:
    """Somebody has removed ours at the console, and the cloud has given its id to another one meanwhile."""
    before = await passed_on_unseen(herd)
    await getattr(herd, order)(before.id)
    await herd.run_for(timedelta(minutes=5))
    assert alive(herd) == {"again"}
    assert world.machines["again"].status(world.now()) == "running"


@pytest.mark.parametrize("order", ["delete", "stop"])
async def test_a_list_is_not_taken_for_a_late_one_because_the_clock_was_set_back(
    herd: Herd, world: World, clock: FakeClock, order: str
) -> None:
    """As above, and the last list, three minutes old, seems to be of just now (seed 700812)."""
    before = await passed_on_unseen(herd)
    clock.jump_wall(-170)
    await getattr(herd, order)(before.id)
    await herd.run_for(timedelta(minutes=5))
    assert world.machines["again"].status(world.now()) == "running"


@pytest.mark.parametrize("order", ["delete", "stop"])
async def test_a_machine_that_lists_do_not_miss_because_the_clock_was_set_back_is_asked_for(
    herd: Herd, world: World, clock: FakeClock, order: str
) -> None:
    """The list of just now does not show it, but seems to be older than our knowledge of it (seed 709420)."""
    before = await herd.settle(await herd.launch("first"))
    await herd.settle(await herd.launch("second"))
    await herd.run_for(timedelta(minutes=10))
    clock.jump_wall(-3600)
    world.machines.pop("again")
    lists = world.calls["list"]
    await clock.sleep(31)
    await herd.observe()
    assert world.calls["list"] > lists
    assert rent_tagged(herd, 7) == "again"
    await getattr(herd, order)(before.id)
    await herd.run_for(timedelta(minutes=5))
    assert world.machines["again"].status(world.now()) == "running"


async def test_what_was_read_before_the_last_list_says_nothing_about_that_list(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    """A pass has leased the instance, and a list that does not show its machine comes before it looks whose
    that is (chaos strict, seed 820459)."""
    before = await herd.settle(await herd.launch("first"))
    await herd.settle(await herd.launch("second"))
    await herd.run_for(timedelta(minutes=10))
    leased = await herd.instance_leases.acquire(before.id, None)
    assert leased is not None
    world.delete("again")
    await clock.sleep(31)
    await herd.observe()
    world.machines.pop("again")
    assert rent_tagged(herd, 7) == "again"
    assert await herd.ownership_before_stop(leased) is Ownership.ANOTHERS
    assert await herd.ownership_before_removal(leased) is Ownership.ANOTHERS


@pytest.mark.proves("F60")
@pytest.mark.parametrize("order", ["delete", "stop"])
async def test_a_machine_that_one_answer_denies_is_not_stopped_or_removed_by_its_id(
    herd: Herd, world: World, order: str
) -> None:
    """As above, and the first question about the id is answered with a "not found" that is wrong."""
    before = await passed_on_unseen(herd)
    world.faults.add(Fault(FaultKind.GET_404_GLITCH, count=1))
    await getattr(herd, order)(before.id)
    await herd.run_for(timedelta(minutes=5))
    assert world.machines["again"].status(world.now()) == "running"


@pytest.mark.parametrize("is_started_again", [False, True])
@pytest.mark.parametrize("order", ["delete", "stop"])
async def test_a_machine_of_ours_that_was_wrongly_denied_is_stopped_or_removed_seconds_later(
    herd: Herd, world: World, order: str, is_started_again: bool
) -> None:
    before = await herd.settle(await herd.launch("first"))
    if is_started_again:
        await herd.stop(before.id)
        await herd.run_for(timedelta(minutes=2))
        await herd.start(before.id)
        await herd.run_for(timedelta(minutes=3))
    asked = world.calls[order]
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=600, endpoints=(ApiEndpoint.LIST,)))
    await herd.run_for(timedelta(minutes=3))
    world.faults.add(Fault(FaultKind.GET_404_GLITCH, count=1))
    await getattr(herd, order)(before.id)
    await herd.run_for(timedelta(seconds=8))
    assert world.calls[order] == asked + 1


# Lists as rare as the repeats of a removal must prove the absence, too.
@pytest.mark.parametrize("look_every", [timedelta(seconds=5), timedelta(seconds=31)])
async def test_a_machine_that_no_list_ever_showed_and_every_answer_denies_is_given_up(
    herd: Herd, world: World
) -> None:
    before = await bound_and_never_listed(herd)
    world.delete("again")
    world.faults.replace([])
    await herd.clock.sleep(30)
    await herd.delete(before.id)
    await herd.run_for(timedelta(minutes=5))
    assert (await herd.get(before.id)).status is Status.DELETED


@pytest.mark.proves("F60")
async def test_the_next_machine_of_an_id_is_not_taken_for_one_that_no_list_has_shown(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    """By a clock that is ahead of the cloud's it seems to be older; name and environment tell whose it is."""
    clock.jump_wall(3600)
    before = await bound_and_never_listed(herd)
    world.delete("again")
    await clock.sleep(180)
    world.tick()
    world.machines.pop("again")
    after = await herd.launch("second")
    await herd.run_for(timedelta(minutes=1))
    world.faults.replace([])
    await herd.run_for(timedelta(minutes=5))
    lost, kept = await herd.get(before.id), await herd.get(after.id)
    assert (lost.status, lost.cloud_id) == (Status.FAILED, None)
    assert (kept.status, kept.cloud_id) == (Status.RUNNING, "again")
    assert await herd.flags.get(CREATES_BLOCKED) is None


async def bound_and_never_listed(herd: Herd) -> Instance:
    await herd.look()
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.LIST,)))
    it = await herd.launch("first")
    await herd.run_jobs_for(timedelta(seconds=1))
    assert (await herd.get(it.id)).cloud_id == "again"
    return it


@pytest.mark.parametrize("order", ["delete", "stop"])
async def test_what_a_list_has_just_shown_is_stopped_or_removed_without_a_question(
    herd: Herd, world: World, order: str
) -> None:
    before = await herd.settle(await herd.launch("first"))
    await herd.run_for(timedelta(minutes=2))
    asked = world.calls[ApiEndpoint.GET.value]
    await getattr(herd, order)(before.id)
    await herd.run_jobs_for(timedelta(seconds=1))
    assert world.calls[order] == 1
    assert world.calls[ApiEndpoint.GET.value] == asked
