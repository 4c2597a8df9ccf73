"""Image prewarm in the simulated world: it takes its time, may fail, and makes later boots short."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from gpuherd.simulator.faults import ApiEndpoint, Call, Fault, FaultKind
from gpuherd.simulator.simulated_account import PREWARMED_SHARE, PrewarmRequest
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.simulated_request import SimulatedError
from gpuherd.simulator.world import World
from tests.simulator.builders import a_request
from tests.support.fake_clock import FakeClock

IMAGE = "docker.io/library/ubuntu:22.04"
PRIVATE = "registry.example.com/team/trainer:1.4"
WARM_S = 33


def warm(world: World, image_url: str = IMAGE, **more: Any) -> str:
    request = PrewarmRequest(**{"image_url": image_url, "cluster_id": "us-ca-6", **more})
    call = Call(ApiEndpoint.PREWARM_CREATE, image_url, cluster_id=request.cluster_id)
    return world.prewarm(request, call)


def states(world: World) -> list[str]:
    return [task.state(world.now()) for task in world.prewarms.listed()]


def pull_s(machine: SimulatedMachine) -> float:
    began = {turn.status: turn.at for turn in machine.turns}
    return began["running"] - began["pulling"]


def booted(world: World, **changes: Any) -> SimulatedMachine:
    return world.machines[world.create(a_request(**changes))]


async def test_a_task_goes_its_way_by_the_clock(world: World, clock: FakeClock) -> None:
    warm(world)
    assert states(world) == ["Pending"]
    await clock.advance(3)
    assert states(world) == ["Running"]
    await clock.advance(WARM_S)
    assert states(world) == ["Succeeded"]


@pytest.mark.parametrize(
    ("image_url", "auth_id", "end"),
    [(PRIVATE, "", "Failed"), (PRIVATE, TEAM_REGISTRY.id, "Succeeded"), (IMAGE, "", "Succeeded")],
)
async def test_an_image_that_cannot_be_pulled_fails_with_a_reason(
    world: World, clock: FakeClock, image_url: str, auth_id: str, end: str
) -> None:
    warm(world, image_url, auth_id=auth_id)
    await clock.advance(WARM_S)
    (task,) = world.prewarms.listed()
    assert task.state(world.now()) == end
    assert (task.reasons(world.now()) == ["image pulled successfully"]) == (end == "Succeeded")


async def test_an_image_that_is_too_large_fails_and_faults_name_it_by_its_image(
    world: World, clock: FakeClock
) -> None:
    world.prewarms.image_gb_max = 0
    warm(world)
    at_prewarm = (ApiEndpoint.PREWARM_CREATE,)
    world.faults.add(Fault(FaultKind.PULL_FAILURE, name_contains="other", endpoints=at_prewarm, message="no"))
    warm(world, "other:1")
    world.faults.replace([Fault(FaultKind.SLOW_PULL, endpoints=at_prewarm)])
    warm(world, "endless:1")
    await clock.advance(1000)
    world = World.load(json.loads(json.dumps(world.dump(), allow_nan=False)), clock, Random(1))
    assert states(world) == ["Running", "Failed", "Failed"]
    reasons = [task.reasons(world.now()) for task in world.prewarms.listed()]
    assert reasons == [[], ["no"], ["the image is larger than 0 GB"]]


@pytest.mark.parametrize(
    ("changes", "is_warm"),
    [
        ({}, True),
        ({"image_url": "other:1"}, False),
        ({"cluster_id": "eu-gb-1"}, False),
        ({"product_id": "L40S.22c125g"}, False),
    ],
    ids=["same", "other image", "other cluster", "other product"],
)
async def test_only_a_machine_that_it_was_made_for_pulls_faster(
    clock: FakeClock, changes: dict[str, str], is_warm: bool
) -> None:
    cold, warmed = World(clock, Random(7)), World(clock, Random(7))
    warm(warmed, product_ids=("4090.16c62g",))
    await clock.advance(WARM_S)
    cold_s, warmed_s = pull_s(booted(cold, **changes)), pull_s(booted(warmed, **changes))
    # To the same chance: a prewarm draws nothing of what machines are made of.
    assert warmed_s == pytest.approx(cold_s * (PREWARMED_SHARE if is_warm else 1))


async def test_nothing_is_warm_before_the_end_and_after_the_removal(world: World, clock: FakeClock) -> None:
    task_id = warm(world)
    assert pull_s(booted(world)) > 10
    await clock.advance(WARM_S)
    assert pull_s(booted(world)) < 3
    world.prewarms.delete([task_id])
    assert pull_s(booted(world)) > 10


async def test_there_are_five_at_most_and_a_removed_one_makes_room(world: World) -> None:
    first, *_ = [warm(world, f"image:{n}") for n in range(5)]
    with pytest.raises(SimulatedError, match=r"OPERATION_LIMIT.*limit of 5"):
        warm(world, "image:6")
    world.prewarms.delete([first])
    assert warm(world, "image:6") not in (first, "")
    with pytest.raises(SimulatedError, match="RESOURCE_NOT_FOUND"):
        world.prewarms.delete([first])


@pytest.mark.parametrize(
    "wrong", [{"cluster_id": "mars"}, {"product_ids": ("nothing",)}, {"auth_id": "nobody"}]
)
async def test_what_it_names_must_be_there(world: World, wrong: dict[str, Any]) -> None:
    with pytest.raises(SimulatedError, match="400 RESOURCE_NOT_FOUND"):
        warm(world, **wrong)
    assert world.prewarms.listed() == []


async def test_a_world_that_is_read_back_has_its_tasks(world: World, clock: FakeClock) -> None:
    warm(world, product_ids=("4090.16c62g",), note="for the night")
    twin = World.load(json.loads(json.dumps(world.dump(), allow_nan=False)), clock, Random(1))
    assert twin.prewarms.all == world.prewarms.all
