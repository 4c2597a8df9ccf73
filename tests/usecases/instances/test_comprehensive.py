"""The comprehensive list: ours and the cloud's as one, and who knows better."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any, cast

import pytest
import sqlalchemy as sa

from gpuherd.adapters.stores.instance_rows import instance_row
from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.rent_attempt import Tag, cloud_name
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_request import CreateRequest
from gpuherd.simulator.world import World
from gpuherd.usecases.instances.list_comprehensive import COMPREHENSIVE_TTL_S
from gpuherd.usecases.views.instance_view import describe
from tests.support.builders import a_running_instance
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

LISTS = ApiEndpoint.LIST.value
SECRET = "hunter2-in-an-environment"


async def comprehensive(herd: Herd, **options: Any) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(await herd.comprehensive(**options)))


async def entry(herd: Herd, **options: Any) -> dict[str, Any]:
    """Return the one entry of a list that has one."""
    (found,) = (await comprehensive(herd, **options))["instances"]
    return cast(dict[str, Any], found)


def rent_outside_gpuherd(world: World, name: str) -> str:
    """Rent a machine as somebody at the console would, whatever the stock."""
    product = next(it for it in world.catalogue.products if it.spot_price)
    cluster_id = product.cluster_ids[0]
    world.stock(product.id, cluster_id, 8)
    request = CreateRequest(product.id, name=name, cluster_id=cluster_id, envs=(("TOKEN", SECRET),))
    return world.create(request)


async def until_the_list_is_old(herd: Herd) -> None:
    """Let so much time pass that the observer's last list is not good enough any more."""
    await herd.clock.sleep(COMPREHENSIVE_TTL_S)


def jobs_only(herd: Herd) -> None:
    """From now on nobody looks at the cloud unless told to."""
    herd._look_at = herd.clock.now() + timedelta(days=1)


async def test_an_instance_and_its_machine_are_one_entry(herd: Herd) -> None:
    instance = await herd.settle(await herd.launch("job", region="CN-HK-01"))
    reply = await comprehensive(herd)
    (found,) = reply["instances"]
    known = describe(instance).model_dump(mode="json")
    assert {key: found[key] for key in known} == {**known, "source": "merged"}
    assert (found["consistency"], found["ownership"]) == ("consistent", "ours")
    assert (found["localStatus"], found["cloudStatus"], found["spotStatus"]) == ("running",) * 3
    assert (reply["total"], reply["sources"]) == (1, {"local": 0, "novita": 0, "merged": 1})
    assert (reply["stale"], reply["note"], reply["synced"]) == (False, None, False)


async def test_other_peoples_machines_are_shown_as_such_and_can_be_left_out(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch())
    foreign = rent_outside_gpuherd(world, "somebody-elses")
    other_gpuherd = rent_outside_gpuherd(world, cloud_name("theirs", Tag("ffffffff", "0" * 26, 1)))
    await herd.look()
    reply = await comprehensive(herd)
    only = {it["cloudInstanceId"]: it for it in reply["instances"] if it["source"] == "novita"}
    assert set(only) == {foreign, other_gpuherd}
    assert {(it["id"], it["ownership"], it["consistency"]) for it in only.values()} == {
        (None, "foreign", "novita-newer")
    }
    assert (only[foreign]["name"], only[other_gpuherd]["name"]) == ("somebody-elses", "theirs")
    assert reply["sources"] == {"local": 0, "novita": 2, "merged": 1}
    without = await comprehensive(herd, include_novita_only=False)
    assert (without["total"], without["sources"]) == (1, {"local": 0, "novita": 0, "merged": 1})


async def test_a_machine_of_ours_that_no_instance_has_is_a_conflict(herd: Herd, world: World) -> None:
    rent_outside_gpuherd(world, cloud_name("surplus", Tag(herd.installation, "0" * 26, 1)))
    found = await entry(herd)
    assert (found["source"], found["name"]) == ("novita", "surplus")
    assert (found["ownership"], found["consistency"]) == ("ours", "conflicted")


async def test_the_machine_of_an_unanswered_create_is_found_by_its_tag(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1))
    instance = await herd.launch()
    await herd.run_for(timedelta(seconds=1))
    assert (await herd.get(instance.id)).cloud_id is None
    (machine,) = world.alive()
    await until_the_list_is_old(herd)
    found = await entry(herd)
    assert (found["id"], found["cloudInstanceId"], found["source"]) == (instance.id, machine.id, "merged")
    assert found["localStatus"] == "creating"


async def test_a_create_of_unknown_outcome_without_a_machine_is_ours_alone(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1))
    await herd.launch()
    await herd.run_for(timedelta(seconds=1))
    found = await entry(herd)
    assert (found["source"], found["consistency"], found["cloudStatus"]) == ("local", "local-newer", None)


async def test_a_machine_that_vanished_is_a_conflict_until_it_is_proven(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    world.delete(instance.cloud_id or "")
    await herd.clock.sleep(600)
    found = await entry(herd)
    assert (found["source"], found["status"], found["consistency"]) == ("local", "running", "conflicted")
    await herd.run_for(timedelta(minutes=5))
    herd.forget_comprehensive()
    found = await entry(herd)
    assert (found["status"], found["consistency"]) == ("failed", "consistent")


async def test_deleted_instances_are_left_out(herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    table = herd.tables.instance
    gone = sa.update(table).where(table.c.id == instance.id).values(status="deleted")
    herd.database.write_now(lambda c: c.execute(gone).rowcount)
    found = await entry(herd)
    assert (found["source"], found["ownership"]) == ("novita", "ours")


async def test_the_clouds_word_counts_and_without_a_sync_our_memory_stays(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    jobs_only(herd)
    world.stop(instance.cloud_id or "")
    await herd.clock.sleep(120)
    found = await entry(herd)
    assert (found["status"], found["localStatus"]) == ("exited", "running")
    assert found["consistency"] == "novita-newer"
    await herd.run_for(timedelta(seconds=10))
    assert (await herd.get(instance.id)).status is Status.RUNNING


async def test_a_sync_lets_our_memory_follow(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    jobs_only(herd)
    world.stop(instance.cloud_id or "")
    await herd.clock.sleep(120)
    reply = await comprehensive(herd, sync_local_state=True)
    assert reply["synced"] is True
    await herd.run_for(timedelta(seconds=1))
    assert (await herd.get(instance.id)).status is Status.EXITED
    found = await entry(herd)
    assert (found["status"], found["localStatus"], found["consistency"]) == ("exited", "exited", "consistent")


async def test_when_the_cloud_cannot_be_asked_ours_is_shown_and_marked(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    rent_outside_gpuherd(world, "somebody-elses")
    fault = Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.LIST,))
    world.faults.add(fault)
    for sync in (True, False):
        reply = await comprehensive(herd, sync_local_state=sync)
        assert (reply["stale"], reply["synced"], reply["total"]) == (True, False, 1)
        assert "cannot be asked" in reply["note"]
        assert (reply["instances"][0]["id"], reply["instances"][0]["source"]) == (instance.id, "local")
    world.faults.armed.clear()
    # Not remembered: the cloud is back, and that is seen at once.
    reply = await comprehensive(herd)
    assert (reply["stale"], reply["total"]) == (False, 2)


async def test_an_incomplete_list_is_noted_and_proves_nothing(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch())
    await until_the_list_is_old(herd)
    world.faults.add(Fault(FaultKind.PARTIAL_LIST, style="missing_page"))
    reply = await comprehensive(herd)
    assert (reply["stale"], "incomplete" in reply["note"]) == (False, True)
    assert reply["instances"][0]["consistency"] == "local-newer"


async def test_a_reply_is_kept_for_30_s_and_no_longer(herd: Herd, world: World, clock: FakeClock) -> None:
    await herd.settle(await herd.launch())
    await until_the_list_is_old(herd)
    world.faults.add(Fault(FaultKind.HANG, count=1, seconds=3, endpoints=(ApiEndpoint.LIST,)))
    first = await comprehensive(herd)
    before = world.calls[LISTS]
    await clock.sleep(COMPREHENSIVE_TTL_S - 1)
    again = await comprehensive(herd)
    assert world.calls[LISTS] == before
    assert (first["performance"]["cacheHit"], again["performance"]["cacheHit"]) == (False, True)
    assert (first["performance"]["novitaApiTimeMs"], again["performance"]["novitaApiTimeMs"]) == (3000, 0)
    del first["performance"], again["performance"]
    assert again == first
    await clock.sleep(1)
    assert (await comprehensive(herd))["performance"]["cacheHit"] is False


async def test_each_choice_of_options_has_a_reply_of_its_own(herd: Herd, world: World) -> None:
    rent_outside_gpuherd(world, "somebody-elses")
    assert (await comprehensive(herd))["total"] == 1
    assert (await comprehensive(herd, include_novita_only=False))["total"] == 0
    assert (await comprehensive(herd))["total"] == 1


@pytest.mark.parametrize("how", ["its own", "the route's"])
async def test_a_sync_throws_away_what_was_kept(herd: Herd, world: World, how: str) -> None:
    await comprehensive(herd)
    rent_outside_gpuherd(world, "somebody-elses")
    assert (await comprehensive(herd))["total"] == 0
    if how == "its own":
        assert (await comprehensive(herd, sync_local_state=True))["total"] == 1
    else:
        await herd.sync_cloud()
    assert (await comprehensive(herd))["total"] == 1


async def test_many_who_ask_at_once_cost_one_list(herd: Herd, world: World) -> None:
    await asyncio.gather(*(herd.comprehensive() for _ in range(20)))
    assert world.calls[LISTS] == 1


async def test_the_observers_last_list_serves_every_caller(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    await herd.settle(await herd.launch())
    foreign = rent_outside_gpuherd(world, "somebody-elses")
    await herd.look()
    lists = world.calls[LISTS]
    seen = await comprehensive(herd)
    assert [it["cloudInstanceId"] for it in seen["instances"] if it["source"] == "novita"] == [foreign]
    for tenant in range(15):
        mine = await comprehensive(herd, caller=Caller(f"key_{tenant}", Scope.READ))
        assert mine["instances"] == []
    assert world.calls[LISTS] == lists


async def test_nothing_that_is_shown_is_older_than_30_s(herd: Herd, world: World, clock: FakeClock) -> None:
    await herd.look()
    await clock.sleep(COMPREHENSIVE_TTL_S - 1)
    assert (await comprehensive(herd))["total"] == 0
    rent_outside_gpuherd(world, "somebody-elses")
    await clock.sleep(1)
    assert (await comprehensive(herd))["total"] == 1


async def test_without_a_list_of_the_observer_one_is_made_for_all(herd: Herd, world: World) -> None:
    await asyncio.gather(
        *(comprehensive(herd, caller=Caller(f"key_{tenant}", Scope.READ)) for tenant in range(15))
    )
    assert world.calls[LISTS] == 1


async def test_a_list_of_before_an_outage_is_not_shown_as_the_present(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch())
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.LIST,)))
    await herd.look()
    assert (await comprehensive(herd))["stale"] is True


async def test_the_times_of_the_parts_are_told(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.HANG, count=1, seconds=3, endpoints=(ApiEndpoint.LIST,)))
    performance = (await comprehensive(herd))["performance"]
    assert performance == {
        "totalRequestTimeMs": 3000,
        "novitaApiTimeMs": 3000,
        "localDataTimeMs": 0,
        "mergeProcessingTimeMs": 0,
        "cacheHit": False,
    }


async def test_no_secret_of_a_machine_is_shown(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch())
    rent_outside_gpuherd(world, "somebody-elses")
    await herd.look()
    reply = await herd.comprehensive()
    assert SECRET.encode() not in reply
    assert all(machine.ssh_password.encode() not in reply for machine in world.alive())


async def test_two_thousand_machines_are_walked_once_and_merged(herd: Herd, world: World) -> None:
    ids = [rent_outside_gpuherd(world, f"machine-{n}") for n in range(2_000)]
    bound = [a_running_instance(n, cloud_id=ids[n]) for n in range(1_200)]
    missing = [a_running_instance(n, cloud_id=f"missing-{n}") for n in range(1_200, 1_400)]
    _remember(herd, bound + missing)
    reply = await comprehensive(herd)
    assert world.calls[LISTS] == 2
    assert reply["sources"] == {"local": 200, "novita": 800, "merged": 1_200}
    assert reply["total"] == len(reply["instances"]) == 2_200
    assert len({it["cloudInstanceId"] for it in reply["instances"]}) == 2_200
    assert (await comprehensive(herd))["performance"]["cacheHit"] is True
    assert world.calls[LISTS] == 2


def _remember(herd: Herd, instances: list[Instance]) -> None:
    rows = [{**instance_row(it), "version": 0} for it in instances]
    herd.database.write_now(lambda c: c.execute(sa.insert(herd.tables.instance), rows).rowcount)
