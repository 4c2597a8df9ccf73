"""The whole record: what was weighed, what is waited for now and until when, and what to do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuherd.domain.instance import goal_rules, instance_event
from gpuherd.domain.instance.goal_rules import StartOrder
from gpuherd.domain.instance.health import Health, HealthCheck
from gpuherd.domain.instance.instance import Goal, Instance, Status, Waiting, WaitingFor
from gpuherd.domain.instance.operation import Failure, OperationKind, requested
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED
from gpuherd.usecases.instances.explain_instance import considered
from gpuherd.usecases.instances.explain_waiting import ADVICE, advice_for, explain_waiting
from tests.support.builders import a_running_instance, an_attempt, an_event, an_instance
from tests.support.fake_clock import START
from tests.support.herd import Herd


@pytest.fixture
def look_every() -> timedelta:
    """As often as the service does: these tests know the seconds."""
    return timedelta(seconds=2)


def sell_out(world: World) -> None:
    for product in world.catalogue.products:
        for cluster in world.catalogue.clusters:
            with suppress(ValueError):
                world.stock(product.id, cluster.id, 0)


async def why(herd: Herd, instance: Instance) -> dict[str, Any]:
    return (await herd.why(await herd.get(instance.id))).model_dump(mode="json")


def moment(stamp: Any) -> datetime:
    return datetime.fromisoformat(stamp)


async def test_a_success_has_its_choice_its_attempt_and_its_phases(herd: Herd) -> None:
    told = await why(herd, await herd.settle(await herd.launch()))
    assert (told["status"], told["usable"], told["waits"], told["advice"]) == ("running", True, None, None)
    (weighed,) = told["considered"]
    assert [it["rank"] for it in weighed["ranked"]] == [1, 2, 3, 4]
    assert weighed["ranked"][0].items() >= {"region": "CN-HK-01", "hourlyPrice": "0.2"}.items()
    assert all(it["reason"].endswith("is not among the regions asked for") for it in weighed["refused"])
    assert (weighed["rankedTotal"], weighed["refusedTotal"]) == (4, 5)
    (attempt,) = told["attempts"]
    assert attempt["state"] == "bound" and attempt["tag"] and attempt["cloudInstanceId"]
    assert [(it["status"], it["seconds"]) for it in told["phases"]] == [
        ("creating", 6.0),
        ("starting", 16.0),
        ("running", None),
    ]
    assert told["health"] is None


async def test_each_round_after_a_refusal_is_a_round_of_its_own(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1))
    told = await why(herd, await herd.settle(await herd.launch()))
    first, second = told["considered"]
    assert first["ranked"][0]["region"] == "CN-HK-01"
    assert second["ranked"][0]["region"] == "AS-SGP-02"
    assert second["refused"][0]["reason"] == "the cloud refused it just now for lack of stock"
    assert [it["state"] for it in told["attempts"]] == ["rejected", "bound"]


async def test_a_wait_for_capacity_says_until_when_and_what_did_not_fit(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=3600)
    await herd.run_for(timedelta(minutes=10))
    told = await why(herd, instance)
    waits = told["waits"]
    assert waits["for"] == "capacity"
    assert moment(waits["until"]) == START + timedelta(hours=1)
    assert moment(waits["since"]) == START
    assert timedelta(0) < moment(waits["nextTryAt"]) - herd.clock.now() <= timedelta(seconds=30)
    assert told["advice"] == ADVICE[WaitingFor.CAPACITY]
    (weighed,) = told["considered"]
    assert weighed["ranked"] == [] and weighed["rankedTotal"] == 0
    assert {"region": "CN-HK-01", "reason": "not available"}.items() <= weighed["refused"][0].items()


async def test_an_outage_is_waited_for(herd: Herd, world: World) -> None:
    await herd.run_for(timedelta(seconds=5))
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=300))
    instance = await herd.launch()
    await herd.run_for(timedelta(minutes=2))
    told = await why(herd, instance)
    assert told["waits"]["for"] == "cloud"
    assert moment(told["waits"]["until"]) == (await herd.get(instance.id)).deadline


async def test_blocked_creates_are_on_record_and_waited_for(herd: Herd) -> None:
    await herd.flags.put(CREATES_BLOCKED, "tags get lost")
    instance = await herd.launch()
    await herd.run_for(timedelta(minutes=2))
    told = await why(herd, instance)
    assert told["waits"]["for"] == "creates"
    assert [it["text"] for it in told["story"]][1:] == ["Creates are blocked: tags get lost."]


async def test_a_health_check_is_told_with_what_it_saw(herd: Herd) -> None:
    herd.prober.is_up = lambda _: False
    instance = await herd.launch(health_check=HealthCheck())
    await herd.run_for(timedelta(minutes=2))
    told = await why(herd, instance)
    assert told["waits"]["for"] == "application"
    assert told["waits"]["sentence"] == "Waiting for the application: port 8888: the port answered 502."
    assert moment(told["waits"]["until"]) == START + timedelta(seconds=322)
    assert told["health"]["endpoints"][0]["error"] == "the port answered 502"
    failed = await why(herd, await herd.settle(instance))
    assert failed["waits"] is None
    assert failed["lastError"]["code"] == "HEALTH_CHECK_FAILED"
    assert "log" in failed["advice"]


def test_equal_rounds_in_a_row_are_counted_not_repeated() -> None:

    product = {"productId": "p1", "productName": "RTX 4090", "region": "A"}
    offer = {**product, "gpuHourlyPrice": "0.35", "hourlyPrice": "0.35"}
    rounds = [
        an_event(
            at=START + timedelta(seconds=n),
            type=instance_event.PLANNED,
            details={"accepted": [offer], "attempt": n},
        )
        for n in range(4)
    ]
    (one,) = considered(rounds)
    assert (one.rounds, one.at.second, one.last_at.second) == (4, 0, 3)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, "order"),
        ({"waiting_for": Waiting(WaitingFor.CLOUD, "away", START)}, "cloud"),
        ({"waiting_for": Waiting(WaitingFor.CAPACITY, "none", START)}, "capacity"),
        ({"waiting_for": Waiting(WaitingFor.CREATES, "look", START)}, "creates"),
        ({"cloud_id": "m-1"}, "machine"),
        ({"cloud_id": "m-1", "status": Status.STARTING}, "machine"),
        ({"cloud_id": "m-1", "status": Status.MIGRATING}, "move"),
        ({"cloud_id": "m-1", "status": Status.HEALTH_CHECKING, "health_check": HealthCheck()}, "application"),
        ({"cloud_id": "m-1", "goal": Goal.STOPPED, "status": Status.STOPPING}, "stop"),
        ({"cloud_id": "m-1", "goal": Goal.DELETED, "status": Status.DELETING}, "removal"),
        ({"cloud_id": "m-1", "status": Status.FAILED, "releasing": True}, "removal"),
    ],
)
def test_what_is_waited_for(changes: dict[str, Any], what: str) -> None:
    instance = an_instance(**changes)
    waiting = explain_waiting(instance, [an_event()], ())
    assert waiting is not None
    assert waiting.what == what
    assert waiting.sentence.endswith(".") and waiting.sentence[0].isupper()
    assert advice_for(instance, waiting) == ADVICE[what]


@pytest.mark.parametrize(
    "instance",
    [
        a_running_instance(),
        an_instance(status=Status.FAILED),
        an_instance(status=Status.EXITED, cloud_id="m-1"),
        an_instance(status=Status.EXITED, goal=Goal.STOPPED, cloud_id="m-1"),
        an_instance(status=Status.DELETED, goal=Goal.DELETED),
    ],
)
def test_who_is_at_rest_waits_for_nothing(instance: Instance) -> None:
    assert explain_waiting(instance, [an_event()], ()) is None


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (Status.EXITED, "Start it again; its data is still there."),
        (Status.FAILED, "Stop it, then start it again; its data is still there."),
    ],
)
def test_after_a_start_in_vain_it_advises_what_is_accepted(status: Status, advice: str) -> None:
    late = Failure("STARTUP_TIMEOUT", "not usable in time", START)
    operation = requested("op_1", OperationKind.START, START).failed(late)
    ended = an_instance(status=status, cloud_id="m-1", last_error=late, operation=operation)
    assert advice_for(ended, None) == advice
    after = goal_rules.stop(ended, "op_2", START) if status is Status.FAILED else ended
    assert goal_rules.start(replace(after, status=Status.EXITED), StartOrder(), "op_3", START)


def test_an_order_without_an_answer_comes_first() -> None:
    deleting = an_instance(goal=Goal.DELETED, status=Status.DELETING)
    waiting = explain_waiting(deleting, (), [an_attempt(state=AttemptState.UNKNOWN)])
    assert waiting is not None and waiting.what == "outcome"
    assert waiting.since == deleting.created_at


def test_until_when() -> None:
    deadline = START + timedelta(minutes=20)
    booting = explain_waiting(an_instance(cloud_id="m-1"), (), ())
    assert booting is not None and booting.until == deadline
    # What is given back is asked for until it is gone.
    for never in (
        an_instance(cloud_id="m-1", goal=Goal.DELETED, status=Status.DELETING),
        an_instance(cloud_id="m-1", status=Status.FAILED, releasing=True),
    ):
        waiting = explain_waiting(never, (), ())
        assert waiting is not None and waiting.until is None
    checked = an_instance(
        cloud_id="m-1",
        status=Status.HEALTH_CHECKING,
        health_check=HealthCheck(max_wait_ms=60_000),
        health=Health(started_at=START),
    )
    waiting = explain_waiting(checked, (), ())
    assert waiting is not None and waiting.until == START + timedelta(minutes=1)


def test_a_wait_lasts_since_it_began_whatever_happened_meanwhile() -> None:
    since = START + timedelta(minutes=1)
    waits = an_instance(waiting_for=Waiting(WaitingFor.CAPACITY, "none", since))
    waiting = explain_waiting(waits, [an_event(at=START + timedelta(minutes=5))], ())
    assert waiting is not None and waiting.since == since


async def test_a_region_that_sells_no_such_product_leaves_its_reason(herd: Herd) -> None:
    it = await herd.launch(product_name="RTX 3090 24GB", regions=("CN-HK-01", "AS-IN-01"))
    told = await why(herd, await herd.settle(it))
    (weighed,) = told["considered"]
    assert weighed["regionsWithoutOffer"] == [
        {"region": "CN-HK-01", "reason": "no RTX 3090 24GB is offered there"}
    ]
    assert any("CN-HK-01: no RTX 3090 24GB is offered there." in it["text"] for it in told["story"])
