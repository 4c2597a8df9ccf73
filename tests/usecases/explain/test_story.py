"""The story that a person is told, word for word, for what happens most and for what worries most."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.errors import CircuitOpen
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.launch_spec import LaunchSpec, OnFailure
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.instances.tell_timeline import duration_text, sentence, tell_timeline
from tests.support.builders import an_attempt, an_event, an_instance
from tests.support.fake_clock import START
from tests.support.herd import Herd

ACCEPTED = "Accepted: 1 × RTX 4090 24GB, spot, in CN-HK-01, then AS-SGP-02, then AS-IN-01."
CHOSEN = "Chose RTX 4090 24GB in CN-HK-01 for $0.20 an hour, the best of 4 offers that fit; 5 more do not."
STARTS = "The machine starts: it pulls its image and boots."
RUNS = "The machine runs."
GONE = "The machine is gone and costs nothing any more."


@pytest.fixture
def look_every() -> timedelta:
    """As often as the service does: these tests know the seconds."""
    return timedelta(seconds=2)


def sell_out(world: World, units: int = 0) -> None:
    for product in world.catalogue.products:
        for cluster in world.catalogue.clusters:
            with suppress(ValueError):
                world.stock(product.id, cluster.id, units)


async def told(herd: Herd, instance: Instance) -> list[str]:
    """Return the story with the seconds at which each thing happened."""
    it = await herd.get(instance.id)
    story = tell_timeline(it, await herd.events(it.id), await herd.attempts(it.id))
    begun = it.created_at
    return [
        f"{round((one.at - begun).total_seconds())}: {one.text}".replace(it.cloud_id or "?", "m-1")
        for one in story
    ]


async def test_a_straight_success(herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    assert await told(herd, instance) == [
        f"0: {ACCEPTED}",
        f"0: {CHOSEN}",
        "0: Rented the machine m-1 in CN-HK-01 for $0.20 an hour.",
        f"6: {STARTS}",
        f"22: {RUNS}",
        "22: It can be used, 22 s after it was asked for.",
    ]


async def test_sold_out_and_then_the_second_region(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1))
    instance = await herd.settle(await herd.launch())
    assert (await told(herd, instance))[1:5] == [
        f"0: {CHOSEN}",
        "0: Sold out in CN-HK-01: "
        "Novita refuses (HTTP 400): INSUFFICIENT_RESOURCE: insufficient resource for product 4090.16c96g.v2.",
        "0: Chose RTX 4090 24GB in AS-SGP-02 for $0.17 an hour, "
        "the best of 3 offers that fit; 6 more do not.",
        "0: Rented the machine m-1 in AS-SGP-02 for $0.17 an hour.",
    ]


async def test_an_unknown_outcome_and_then_the_machine_is_found(herd: Herd, world: World) -> None:
    lost = Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1, endpoints=(ApiEndpoint.CREATE,))
    world.faults.add(lost)
    instance = await herd.settle(await herd.launch())
    assert (await told(herd, instance))[1:5] == [
        f"0: {CHOSEN}",
        "0: The order got no clear answer (the call may have been made, but no answer came: "
        "the connection broke). It may have rented a machine all the same, so gpuherd looks for that before "
        "it orders again.",
        "2: Took the machine m-1: found by its tag after the create call got no answer.",
        f"6: {STARTS}",
    ]


async def test_an_unknown_outcome_that_was_nothing(herd: Herd, world: World) -> None:
    lost = Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(ApiEndpoint.CREATE,))
    world.faults.add(lost)
    instance = await herd.settle(await herd.launch())
    story = await told(herd, instance)
    assert story[3:6] == [
        "920: The order without an answer had no effect: the cloud's lists never showed its machine.",
        f"920: {CHOSEN}",
        "920: Rented the machine m-1 in CN-HK-01 for $0.20 an hour.",
    ]


async def test_a_wait_for_capacity(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=3600)
    await herd.run_for(timedelta(minutes=20))
    waiting = [
        f"0: {ACCEPTED}",
        "0: No offer for 'RTX 4090 24GB' (spot, 1 GPU) can be had in CN-HK-01, AS-SGP-02, AS-IN-01. "
        "It waits for one until 2026-01-01 01:00 UTC.",
    ]
    # Forty looks in vain are one sentence.
    assert await told(herd, instance) == waiting
    sell_out(world, units=4)
    story = await told(herd, await herd.settle(instance))
    assert story[:3] == [*waiting, f"1225: {CHOSEN}"]


async def test_an_outage_of_the_cloud(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=100))
    instance = await herd.settle(await herd.launch())
    story = await told(herd, instance)
    assert story[1].endswith(
        ": The cloud cannot be asked (it was not seen since gpuherd started); "
        "gpuherd goes on as soon as it answers."
    )
    # It ended between two tries of a list.
    assert story[2] == f"98: {CHOSEN}"


async def test_an_outage_that_begins_later_is_on_record_once(herd: Herd, world: World) -> None:
    await herd.run_for(timedelta(seconds=5))
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=120))
    instance = await herd.settle(await herd.launch())
    waits = [it for it in await herd.events(instance.id) if it.type == instance_event.WAITING]
    assert len(waits) == 1
    assert waits[0].details["for"] == "cloud"
    assert (await told(herd, instance))[1].partition(": ")[2].startswith("The cloud cannot be asked (")


async def test_a_health_check_that_fails(herd: Herd) -> None:
    herd.prober.is_up = lambda _: False
    instance = await herd.settle(await herd.launch(health_check=HealthCheck()))
    *before, last = (await told(herd, instance))[4:]
    assert before == [
        f"22: {RUNS}",
        "22: The application is asked whether it is up.",
        "322: Given up (HEALTH_CHECK_FAILED): The application did not answer as it should: port 8888: "
        "the port answered 502. The machine is given back.",
    ]
    # The delete is asked for at once, and the second list after it proves the absence; when in these four
    # seconds that one is made depends on the jitter of 150 lists.
    second, _, words = last.partition(": ")
    assert words == GONE
    assert 322 < int(second) <= 326


async def test_a_timeout_and_what_becomes_of_the_machine(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SLOW_PULL, factor=100_000))
    given_back, kept = await herd.launch(), await herd.launch("kept", on_failure=OnFailure.KEEP)
    words = "1200: Given up (INSTANCE_TIMEOUT): Not usable in time: still pulling at the deadline."
    assert (await told(herd, await herd.settle(given_back)))[4:] == [
        f"{words} The machine is given back.",
        f"1202: {GONE}",
    ]
    assert (await told(herd, await herd.settle(kept)))[-1] == f"{words} The machine is kept."


async def test_a_delete(herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    await herd.delete(instance.id)
    assert (await told(herd, await herd.settle(instance)))[-2:] == [
        "22: A delete was asked for by gpuherd.",
        "24: The machine is gone.",
    ]


async def test_a_delete_before_anything_was_rented(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=3600)
    await herd.run_for(timedelta(seconds=10))
    await herd.delete(instance.id)
    story = await told(herd, await herd.settle(instance))
    assert story[-1].endswith(": Deleted; no machine was rented for it.")


async def test_a_stop_and_a_start_have_times_of_their_own(herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    await herd.stop(instance.id)
    await herd.settle(instance)
    await herd.run_for(timedelta(minutes=10))
    await herd.start(instance.id)
    words = [it.partition(": ")[2] for it in (await told(herd, await herd.settle(instance)))[6:]]
    assert words[:3] == [
        "A stop was asked for by gpuherd.",
        "The machine stopped.",
        "A start was asked for by gpuherd.",
    ]
    assert words[-1].startswith("It can be used, ") and "min" not in words[-1]


def rejected(code: str, reason: str, at: int, **details: object) -> Event:
    moment = START + timedelta(seconds=at)
    return an_event(
        at=moment, type=instance_event.ATTEMPT_REJECTED, reason=reason, details={"code": code, **details}
    )


def planned(at: int, **details: object) -> Event:
    offer = {"productId": "p1", "productName": "H100", "region": "EU-01", "hourlyPrice": "2.125"}
    moment = START + timedelta(seconds=at)
    return an_event(
        at=moment, type=instance_event.PLANNED, details={"accepted": [offer], "refused": [], **details}
    )


def test_the_same_in_vain_again_and_again_is_told_once() -> None:
    tries = [
        it for n in range(5) for it in (planned(n), rejected(CircuitOpen.code, "the breaker is open", n))
    ]
    first, second = tell_timeline(an_instance(), tries, ())
    assert first.text == "Chose H100 in EU-01 for $2.125 an hour, the only offer that fits."
    assert second.text == (
        "The cloud took no order (the breaker is open); surely nothing was rented, so it is tried again."
    )
    assert (second.times, second.at, second.last_at) == (5, START, START + timedelta(seconds=4))


def test_what_differs_is_not_folded() -> None:
    tries = [planned(1), rejected("X", "no", 1), planned(2), rejected("X", "no, really", 2)]
    assert [it.times for it in tell_timeline(an_instance(), tries, ())] == [1, 1, 1, 1]
    assert tell_timeline(an_instance(), tries, ())[-1].text == "The cloud refused the order: No, really."


def test_an_old_record_without_names_and_totals_is_still_told() -> None:
    details = {"accepted": [{"productId": "p1", "region": "EU-01", "gpuHourlyPrice": "0.5"}], "refused": [{}]}
    (one,) = tell_timeline(an_instance(), [an_event(type=instance_event.PLANNED, details=details)], ())
    assert one.text == "Chose p1 in EU-01, the only offer that fits; 1 more does not."


def test_a_rented_machine_is_told_even_where_its_choice_is_not_on_record() -> None:
    (one,) = tell_timeline(an_instance(), (), [an_attempt(state="bound", cloud_id="m-9", closed_at=START)])
    assert one.text == "Rented the machine m-9 in CN-HK-01 for $0.35 an hour."


def test_what_was_rented_costs_its_disk_too_and_is_never_told_cheaper_than_it_is() -> None:
    it = an_instance(disk_hourly_usd=Decimal("0.091666111"))
    (one,) = tell_timeline(it, (), [an_attempt(state="bound", cloud_id="m-9", closed_at=START)])
    assert one.text == "Rented the machine m-9 in CN-HK-01 for $0.44167 an hour."


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"regions": ()}, "2 × H100, spot, in any region."),
        ({"billing_mode": BillingMode.ON_DEMAND}, "2 × H100, on demand, in A."),
        ({"hourly_usd_max": Decimal("1.5")}, "2 × H100, spot, in A, for at most $1.50 an hour."),
        ({"regions": tuple("ABCDEFG")}, "in A, then B, then C, then D, then E, then …."),
    ],
)
def test_what_was_accepted(wish: dict[str, object], words: str) -> None:
    base = LaunchSpec("H100", "101", gpu_num=2, regions=("A",))
    (one,) = tell_timeline(an_instance(wish=replace(base, **wish)), [an_event()], ())  # type: ignore[arg-type]
    assert one.text.endswith(words)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (an_event(type=instance_event.START_REFUSED, reason="none left"), None),
        (an_event(type=instance_event.TIMEOUT, reason="too late"), None),
        (an_event(type=instance_event.RECLAIM_NOTICE, reason="the cloud takes it"), "The cloud takes it."),
        (an_event(type="instance.something_new"), "Instance.something_new."),
    ],
)
def test_other_events(event: Event, words: str | None) -> None:
    assert [it.text for it in tell_timeline(an_instance(), [event], ())] == ([words] if words else [])


@pytest.mark.parametrize(("actor", "who"), [("admin", "the admin key"), ("abc", "the key abc")])
def test_it_is_told_who_asked(actor: str, who: str) -> None:
    asked = instance_event.Cause(instance_event.CauseCode.DELETE_REQUESTED)
    event = an_event(type=instance_event.DELETING, cause=asked, actor=actor)
    assert tell_timeline(an_instance(), [event], ())[0].text == f"A delete was asked for by {who}."


def test_a_failed_start_keeps_the_data() -> None:
    failed = an_event(
        type=instance_event.FAILED, reason="no", details={"code": "STARTUP_TIMEOUT", "start": True}
    )
    it = an_instance(status=Status.FAILED, goal=Goal.RUNNING, cloud_id="m-1")
    assert tell_timeline(it, [failed], ())[0].text == (
        "Given up (STARTUP_TIMEOUT): No. The machine and its data stay."
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s"), (0.9, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (3661, "1 h 1 min")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == words


def test_sentences_begin_big_and_end_once() -> None:
    assert [sentence(it) for it in ("why not", "Because.", "", "x!")] == ["Why not.", "Because.", ".", "X!"]
