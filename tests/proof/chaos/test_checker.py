"""The checker sees each kind of broken promise: take a clean story and spoil one thing in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from gpuherd.domain.delivery import DeliveryState
from gpuherd.domain.instance import Status
from gpuherd.simulator.calls import Call, Endpoint
from gpuherd.simulator.machine import Turn
from tests.chaos.checker import check
from tests.chaos.evidence import Accepted, Evidence, Window
from tests.chaos.play import play, silence
from tests.chaos.process import Pace
from tests.chaos.schedules import Op, Schedule
from tests.chaos.weather import Weather


@pytest.fixture
def story() -> Evidence:
    """Two creates, one of which is deleted; nothing goes wrong."""
    silence()
    ops = (Op(0.0, "create", webhook=True), Op(0.0, "create", webhook=True), Op(90.0, "delete"))
    weather = Weather(Random(1), storm_s=120.0, late_max_s=0.0)
    evidence, _ = play(Schedule(1, "calm", Pace(), False, ops, weather, downtime_s=0.0))
    return evidence


def rules(evidence: Evidence) -> set[str]:
    return {it.rule for it in check(evidence)}


def test_a_clean_story_is_clean(story: Evidence) -> None:
    assert check(story) == []
    statuses = [row.instance.status for row in story.tables.instances.values()]
    assert sorted(statuses) == [Status.DELETED, Status.RUNNING]


def change_instance(story: Evidence, which: Status, **changes: object) -> None:
    tables = story.tables
    instance_id, row = next(it for it in tables.instances.items() if it[1].instance.status is which)
    tables.instances[instance_id] = replace(row, instance=replace(row.instance, **changes))  # type: ignore[arg-type]


def forget_the_machine(story: Evidence) -> None:
    change_instance(story, Status.RUNNING, cloud_id=None)


def raise_the_dead(story: Evidence) -> None:
    machine = next(it for it in story.world.machines.values() if it.gone_at is not None)
    machine.gone_at, machine.turns = None, [Turn(machine.created_at, "running")]


def double_the_machine(story: Evidence) -> None:
    machine = next(it for it in story.world.alive() if it.id not in story.decoys)
    story.world.machines["twin"] = replace(machine, id="twin")


def never_rest(story: Evidence) -> None:
    story.quiet = False


def stumble(story: Evidence) -> None:
    job_id, job = next(iter(story.tables.jobs.items()))
    story.tables.jobs[job_id] = replace(job, error="KeyError")


def undo_the_delete(story: Evidence) -> None:
    change_instance(story, Status.DELETED, status=Status.DELETING)


def fail_without_a_word(story: Evidence) -> None:
    change_instance(story, Status.RUNNING, status=Status.FAILED)


def go_back(story: Evidence) -> None:
    key, event = next(it for it in story.tables.events.items() if it[1].after == "running")
    story.tables.events[key] = replace(event, after="creating")


def lose_an_event(story: Evidence) -> None:
    key = next(key for key, event in story.tables.events.items() if not event.after)
    del story.tables.events[key]


def change_the_bytes(story: Evidence) -> None:
    story.knocks.append(replace(story.knocks[0], body=b"other"))


def tell_too_early(story: Evidence) -> None:
    story.knocks[0] = replace(story.knocks[0], committed=False)


def leave_untold(story: Evidence) -> None:
    delivery_id, delivery = next(iter(story.tables.deliveries.items()))
    story.tables.deliveries[delivery_id] = replace(delivery, state=DeliveryState.DEAD)


def never_write_the_webhook(story: Evidence) -> None:
    del story.tables.deliveries[next(iter(story.tables.deliveries))]


def answer_one_key_twice(story: Evidence) -> None:
    story.accepted.append(Accepted("create", "inst_other", 0.0, "key-0"))


def send_without_intent(story: Evidence) -> None:
    story.posts[0] = replace(story.posts[0], intended=False)


def send_twice(story: Evidence) -> None:
    story.posts.append(story.posts[0])


def touch_a_stranger(story: Evidence) -> None:
    call = Call(Endpoint.STOP, machine_id=next(iter(story.decoys)))
    story.world.record.note(story.world.now(), call, "ok")


def remove_a_stranger(story: Evidence) -> None:
    story.world.delete(next(iter(story.decoys)))


def knock_on_a_closed_door(story: Evidence) -> None:
    story.outages.append(Window(0.0, 60.0, calls=500))


def bill_for_nothing(story: Evidence) -> None:
    machine = next(it for it in story.world.machines.values() if it.gone_at is not None)
    early = machine.created_at - timedelta(days=1).total_seconds()
    machine.turns.insert(0, Turn(early, "running"))


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (forget_the_machine, "I1 known"),
        (double_the_machine, "I2 single"),
        (never_rest, "I3 rest"),
        (stumble, "I3 rest"),
        (undo_the_delete, "I3 end"),
        (fail_without_a_word, "I3 reason"),
        (raise_the_dead, "I4 given back"),
        (undo_the_delete, "I4 deleted"),
        (go_back, "I5 order"),
        (lose_an_event, "I5 order"),
        (change_the_bytes, "I6 webhooks"),
        (tell_too_early, "I6 webhooks"),
        (leave_untold, "I6 webhooks"),
        (never_write_the_webhook, "I6 webhooks"),
        (answer_one_key_twice, "I7 claims"),
        (send_without_intent, "I8 intent"),
        (send_twice, "I8 intent"),
        (touch_a_stranger, "I9 strangers"),
        (remove_a_stranger, "I9 strangers"),
        (knock_on_a_closed_door, "I11 budget"),
        (bill_for_nothing, "I13 ledger"),
    ],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_a_broken_promise_is_seen(story: Evidence, spoil: Callable[[Evidence], None], rule: str) -> None:
    spoil(story)
    assert rule in rules(story)
