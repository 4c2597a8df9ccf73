"""From an accepted wish to a usable machine, and every way in which that can go."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from gpuherd.domain.cloud.machine import Listing, Machine
from gpuherd.domain.errors import NoCapacity, NotFound
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.job import Done, Job, JobStatus, Priority
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud

HOOK = "http://example.com/hook"


async def test_a_wish_becomes_a_usable_machine_and_everybody_is_told(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch("My Job", webhook_url=HOOK))
    assert instance.status is Status.RUNNING
    assert instance.usable
    assert instance.ports
    assert instance.rental is not None
    assert instance.rental.region == "CN-HK-01"
    assert instance.rental.gpu_hourly_usd == Decimal("0.20")
    assert [machine.name.startswith("my-job--gh1-") for machine in world.alive()] == [True]
    assert herd.webhooks() == ["instance.created", "instance.starting", "instance.running", "instance.ready"]


async def test_one_rental_costs_one_create_and_no_get_besides_the_shared_lists(
    herd: Herd, world: World
) -> None:
    await herd.settle(await herd.launch())
    assert world.calls[ApiEndpoint.CREATE.value] == 1
    assert world.calls[ApiEndpoint.GET.value] == 0


async def test_the_job_of_an_instance_that_the_store_has_lost_is_done(herd: Herd) -> None:
    """Else it would look for it for ever."""
    job = Job("job", "monitor_instance", JobStatus.PROCESSING, Priority.NORMAL, 0, 3, START, "inst_lost")
    assert isinstance(await herd.reconcile(job), Done)


@pytest.mark.proves("F40")
async def test_a_refused_create_goes_on_to_the_next_region(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1))
    instance = await herd.settle(await herd.launch())
    attempts = await herd.attempts(instance.id)
    assert [(it.region, it.state) for it in attempts] == [
        ("CN-HK-01", AttemptState.REJECTED),
        ("AS-SGP-02", AttemptState.BOUND),
    ]
    assert attempts[0].error_code == "RESOURCE_CONSTRAINTS"
    assert instance.status is Status.RUNNING


async def test_sold_out_everywhere_fails_with_the_reason_for_each_region_and_offer(
    herd: Herd, world: World
) -> None:
    # A count keeps the catalogue looking full, so that each create is really tried and refused.
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=100))
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    assert instance.status is Status.FAILED
    assert instance.last_error is not None
    assert instance.last_error.code == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    regions = {entry["region"] for entry in instance.last_error.details["regions"]}
    assert {"CN-HK-01", "AS-SGP-02", "AS-IN-01"} <= regions
    assert all(
        offer["reason"] for entry in instance.last_error.details["regions"] for offer in entry["offers"]
    )
    assert world.alive() == []
    assert herd.webhooks() == ["instance.created", "instance.failed"]


async def test_what_is_known_to_be_sold_out_is_refused_at_once(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT))
    with pytest.raises(NoCapacity) as refused:
        await herd.launch()
    assert refused.value.details["regions"]
    assert herd.rows(herd.tables.instance) == []


async def test_an_unknown_product_or_template_is_refused_at_once(herd: Herd) -> None:
    with pytest.raises(NotFound, match="GTX 9999"):
        await herd.launch(product_name="GTX 9999")
    with pytest.raises(NotFound) as missing:
        await herd.launch(template_id="999999")
    assert missing.value.code == "TEMPLATE_NOT_FOUND"
    assert herd.rows(herd.tables.instance) == []


async def test_a_request_is_accepted_while_the_cloud_hangs_and_fulfilled_when_it_is_back(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=300))
    instance = await herd.launch()
    await herd.run_for(timedelta(seconds=120))
    waiting = await herd.get(instance.id)
    assert waiting.status is Status.CREATING
    assert "waiting for the cloud" in waiting.reason
    assert (await herd.settle(instance)).status is Status.RUNNING
    assert len(world.alive()) == 1


async def test_a_template_that_does_not_exist_fails_the_instance_if_only_the_job_finds_out(
    herd: Herd, world: World
) -> None:
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=10))
    instance = await herd.settle(await herd.launch(template_id="999999"))
    assert instance.status is Status.FAILED
    assert instance.last_error is not None
    assert instance.last_error.code == "TEMPLATE_NOT_FOUND"


async def test_no_money_ends_the_instance_after_one_call(herd: Herd, world: World) -> None:
    world.faults.add(
        Fault(FaultKind.REFUSE, endpoints=(ApiEndpoint.CREATE,), status=400, reason="BALANCE_NOT_ENOUGH")
    )
    instance = await herd.settle(await herd.launch())
    assert instance.last_error is not None
    assert instance.last_error.code == "INSUFFICIENT_BALANCE"
    assert world.calls[ApiEndpoint.CREATE.value] == 1


async def test_a_refused_key_pauses_the_work_instead_of_failing_it(herd: Herd, world: World) -> None:
    world.faults.add(
        Fault(FaultKind.REFUSE, endpoints=(ApiEndpoint.CREATE,), status=401, reason="UNAUTHORIZED", for_s=120)
    )
    instance = await herd.settle(await herd.launch())
    assert instance.status is Status.RUNNING
    assert len(world.alive()) == 1


async def test_who_is_refused_for_hours_asks_less_and_less_often_and_is_served_in_the_end(
    herd: Herd, world: World
) -> None:
    await herd.look()
    world.faults.add(
        Fault(FaultKind.REFUSE, endpoints=(ApiEndpoint.CREATE,), status=401, reason="UNAUTHORIZED")
    )
    instance = await herd.launch(capacity_wait_s=86_400)
    calls = []
    for minutes in (20, 40, 300):
        before = world.calls[ApiEndpoint.CREATE.value]
        await herd.run_jobs_for(timedelta(minutes=minutes))
        calls.append(world.calls[ApiEndpoint.CREATE.value] - before)
    # Every 30 s at first, so that a shorter outage costs nobody much; every 5 minutes in the end.
    assert 40 <= calls[0] <= 50
    assert calls[1] <= 12
    assert calls[2] <= 60
    world.faults.replace([])
    assert (await herd.settle(instance)).status is Status.RUNNING


@pytest.mark.proves("F43")
async def test_a_pull_that_never_ends_fails_at_the_deadline_and_gives_the_machine_back(
    herd: Herd, world: World
) -> None:
    world.faults.add(Fault(FaultKind.SLOW_PULL))
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    assert instance.status is Status.FAILED
    assert instance.last_error is not None
    assert instance.last_error.code == "INSTANCE_TIMEOUT"
    assert "pulling" in instance.reason
    assert world.alive() == []
    assert herd.webhooks()[-2:] == ["instance.timeout", "instance.failed"]


@pytest.mark.proves("F43")
async def test_a_failed_machine_is_kept_when_that_was_asked_for(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.PULL_FAILURE, style="stuck", message="manifest unknown"))
    instance = await herd.settle(await herd.launch(on_failure=OnFailure.KEEP))
    assert instance.status is Status.FAILED
    assert "manifest unknown" in instance.reason
    assert [machine.id for machine in world.alive()] == [instance.cloud_id]


async def test_a_machine_that_cannot_pull_its_image_is_given_back_with_the_reason(
    herd: Herd, world: World
) -> None:
    world.faults.add(Fault(FaultKind.PULL_FAILURE, style="stuck", message="manifest unknown"))
    instance = await herd.settle(await herd.launch())
    assert instance.last_error is not None
    assert instance.last_error.code == "STARTUP_FAILED"
    assert world.alive() == []
    assert not instance.releasing


@pytest.mark.proves("F17")
async def test_flapping_and_unknown_statuses_never_move_an_instance_backwards(
    herd: Herd, world: World
) -> None:
    world.faults.add(
        Fault(FaultKind.STATUS_FLAP, probability=0.5), Fault(FaultKind.UNKNOWN_STATUS, probability=0.3)
    )
    instance = await herd.settle(await herd.launch())
    await herd.run_for(timedelta(minutes=10))
    assert (await herd.get(instance.id)).status is Status.RUNNING
    order = ["creating", "starting", "running"]
    seen = [it.after for it in await herd.events(instance.id) if it.after]
    assert seen == sorted(seen, key=order.index)


async def test_one_not_found_does_not_mean_that_a_machine_vanished(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.GET_404_GLITCH, count=3))
    assert (await herd.settle(await herd.launch())).status is Status.RUNNING


async def test_a_machine_that_vanishes_before_it_is_usable_is_not_created_again(
    herd: Herd, world: World
) -> None:
    instance = await herd.launch()
    await herd.run_for(timedelta(seconds=10))
    world.delete(world.alive()[0].id)
    instance = await herd.settle(instance)
    assert instance.status is Status.FAILED
    assert instance.last_error is not None
    assert instance.last_error.code == "INSTANCE_VANISHED"
    assert world.calls[ApiEndpoint.CREATE.value] == 1


async def test_a_machine_that_stops_later_is_shown_as_exited(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    world.stop(instance.cloud_id or "")
    await herd.run_for(timedelta(minutes=2))
    stopped = await herd.get(instance.id)
    assert stopped.status is Status.EXITED
    assert stopped.stopped_at is not None
    assert herd.webhooks()[-1] == "instance.exited"


class ForgetfulCloud(SimulatedCloud):
    """Shows machines without the tag that they were created with, neither in the name nor inside."""

    async def list_machines(self) -> Listing:
        listing = await super().list_machines()
        return replace(listing, machines=tuple(map(_untagged, listing.machines)))

    async def get_machine(self, cloud_id: str) -> Machine:
        return _untagged(await super().get_machine(cloud_id))


def _untagged(machine: Machine) -> Machine:
    return replace(machine, name="renamed", env_tag="")


@pytest.mark.proves("R3")
async def test_creates_stop_when_the_cloud_does_not_keep_our_tag(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    herd = Herd(tmp_path / "forgetful.db", world, clock, cloud=ForgetfulCloud(world))
    first = await herd.settle(await herd.launch("first"))
    assert first.status is Status.RUNNING
    assert "does not carry the tag" in (await herd.flags.get(CREATES_BLOCKED) or "")
    second = await herd.launch("second")
    await herd.run_for(timedelta(minutes=2))
    assert "creates are blocked" in (await herd.get(second.id)).reason
    assert len(world.alive()) == 1
    await herd.flags.put(CREATES_BLOCKED, None)
    herd.cloud = SimulatedCloud(world)
    await herd.run_for(timedelta(minutes=1))
    assert len(world.alive()) == 2
    herd.close()


async def test_the_tag_in_the_environment_is_enough_when_the_name_was_lost(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.DROP_NAME, style="replace"))
    assert (await herd.settle(await herd.launch())).tag_verified
    assert await herd.flags.get(CREATES_BLOCKED) is None


async def test_a_private_image_needs_a_registry_credential_that_exists(herd: Herd, world: World) -> None:
    private = next(it for it in world.account.templates.values() if it.image_auth_id)
    instance = await herd.settle(await herd.launch(template_id=private.id))
    assert instance.status is Status.RUNNING
    world.account.registry_auths.clear()
    instance = await herd.settle(await herd.launch(template_id=private.id))
    assert instance.last_error is not None
    assert instance.last_error.code == "REGISTRY_AUTH_NOT_FOUND"
    assert len(world.alive()) == 1


async def test_the_price_limit_is_for_the_whole_instance(herd: Herd) -> None:
    with pytest.raises(NoCapacity):
        await herd.launch(gpu_num=2, hourly_usd_max=Decimal("0.39"), regions=("CN-HK-01",))
    instance = await herd.settle(
        await herd.launch(gpu_num=2, hourly_usd_max=Decimal("0.40"), regions=("CN-HK-01",))
    )
    assert instance.status is Status.RUNNING


async def test_the_estimate_learns_from_our_own_rentals(herd: Herd) -> None:
    first = await herd.launch()
    assert first.estimated_ready_at - first.created_at == timedelta(minutes=4)
    for _ in range(3):
        await herd.settle(await herd.launch())
    learned = await herd.launch()
    assert learned.estimated_ready_at - learned.created_at < timedelta(minutes=2)


async def test_a_create_job_ends_when_a_machine_is_bound_and_a_monitor_job_takes_over(herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    jobs = sorted(herd.rows(herd.tables.job), key=lambda row: row.id)
    turns = [(row.kind, row.state) for row in jobs if row.instance_id == instance.id]
    assert turns == [("create_instance", "COMPLETED"), ("monitor_instance", "COMPLETED")]
