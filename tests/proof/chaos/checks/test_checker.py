"""The checker sees each kind of broken promise: take a clean story and spoil one thing in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest

from gpuherd.domain.instance.instance import Status
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.simulator.faults import ApiEndpoint, Call
from gpuherd.simulator.simulated_machine import StatusChange
from proof.chaos.checks.checker import check
from proof.chaos.checks.evidence import Accepted, Evidence, Window
from proof.chaos.fault_plan import FaultPlan
from proof.chaos.operation import UserOperation
from proof.chaos.process import Pace
from proof.chaos.runner import run_schedule, silence_logs
from proof.chaos.schedules import Schedule


@pytest.fixture
def clean_run() -> Evidence:
    """Two creates, one of which is deleted; nothing goes wrong."""
    silence_logs()
    ops = (
        UserOperation(0.0, "create", webhook=True),
        UserOperation(0.0, "create", webhook=True),
        UserOperation(90.0, "delete"),
    )
    fault_plan = FaultPlan(Random(1), fault_phase_s=120.0, late_max_s=0.0)
    evidence, _ = run_schedule(Schedule(1, "calm", Pace(), False, ops, fault_plan, downtime_s=0.0))
    return evidence


def rules(evidence: Evidence) -> set[str]:
    return {it.rule for it in check(evidence)}


def test_a_clean_story_is_clean(clean_run: Evidence) -> None:
    assert check(clean_run) == []
    statuses = [row.instance.status for row in clean_run.tables.instances.values()]
    assert sorted(statuses) == [Status.DELETED, Status.RUNNING]


def change_instance(clean_run: Evidence, which: Status, **changes: object) -> None:
    tables = clean_run.tables
    instance_id, row = next(it for it in tables.instances.items() if it[1].instance.status is which)
    tables.instances[instance_id] = replace(row, instance=replace(row.instance, **changes))  # type: ignore[arg-type]


def forget_the_machine(clean_run: Evidence) -> None:
    change_instance(clean_run, Status.RUNNING, cloud_id=None)


def raise_the_dead(clean_run: Evidence) -> None:
    machine = next(it for it in clean_run.world.machines.values() if it.gone_at is not None)
    machine.gone_at, machine.turns = None, [StatusChange(machine.created_at, "running")]


def double_the_machine(clean_run: Evidence) -> None:
    machine = next(it for it in clean_run.world.alive() if it.id not in clean_run.decoys)
    clean_run.world.machines["twin"] = replace(machine, id="twin")


def never_rest(clean_run: Evidence) -> None:
    clean_run.quiet = False


def stumble(clean_run: Evidence) -> None:
    job_id, job = next(iter(clean_run.tables.jobs.items()))
    clean_run.tables.jobs[job_id] = replace(job, error="KeyError")


def undo_the_delete(clean_run: Evidence) -> None:
    change_instance(clean_run, Status.DELETED, status=Status.DELETING)


def fail_without_a_word(clean_run: Evidence) -> None:
    change_instance(clean_run, Status.RUNNING, status=Status.FAILED)


def go_back(clean_run: Evidence) -> None:
    key, event = next(it for it in clean_run.tables.events.items() if it[1].after == "running")
    clean_run.tables.events[key] = replace(event, after="creating")


def lose_an_event(clean_run: Evidence) -> None:
    key = next(key for key, event in clean_run.tables.events.items() if not event.after)
    del clean_run.tables.events[key]


def change_the_bytes(clean_run: Evidence) -> None:
    clean_run.received_webhooks.append(replace(clean_run.received_webhooks[0], body=b"other"))


def tell_too_early(clean_run: Evidence) -> None:
    clean_run.received_webhooks[0] = replace(clean_run.received_webhooks[0], committed=False)


def leave_untold(clean_run: Evidence) -> None:
    delivery_id, delivery = next(iter(clean_run.tables.deliveries.items()))
    clean_run.tables.deliveries[delivery_id] = replace(delivery, state=DeliveryState.DEAD)


def never_write_the_webhook(clean_run: Evidence) -> None:
    del clean_run.tables.deliveries[next(iter(clean_run.tables.deliveries))]


def answer_one_key_twice(clean_run: Evidence) -> None:
    clean_run.accepted.append(Accepted("create", "inst_other", 0.0, "key-0"))


def send_without_intent(clean_run: Evidence) -> None:
    clean_run.create_calls[0] = replace(clean_run.create_calls[0], intended=False)


def send_twice(clean_run: Evidence) -> None:
    clean_run.create_calls.append(clean_run.create_calls[0])


def touch_a_foreign_machine(clean_run: Evidence) -> None:
    call = Call(ApiEndpoint.STOP, machine_id=next(iter(clean_run.decoys)))
    clean_run.world.record.note(clean_run.world.now(), call, "ok")


def remove_a_foreign_machine(clean_run: Evidence) -> None:
    clean_run.world.delete(next(iter(clean_run.decoys)))


def call_during_an_outage(clean_run: Evidence) -> None:
    clean_run.outages.append(Window(0.0, 60.0, calls=500))


def bill_for_nothing(clean_run: Evidence) -> None:
    machine = next(it for it in clean_run.world.machines.values() if it.gone_at is not None)
    early = machine.created_at - timedelta(days=1).total_seconds()
    machine.turns.insert(0, StatusChange(early, "running"))


def pay_too_much(clean_run: Evidence) -> None:
    dear = replace(clean_run.create_calls[0], usd_per_hour=Fraction(3, 10), hourly_usd_max=Decimal("0.27"))
    clean_run.create_calls[0] = dear


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
        (touch_a_foreign_machine, "I9 foreign machines"),
        (remove_a_foreign_machine, "I9 foreign machines"),
        (call_during_an_outage, "I11 budget"),
        (bill_for_nothing, "I13 ledger"),
        (pay_too_much, "I18 price cap"),
    ],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_a_broken_promise_is_seen(clean_run: Evidence, spoil: Callable[[Evidence], None], rule: str) -> None:
    spoil(clean_run)
    assert rule in rules(clean_run)
