"""Remove one safeguard, and the simulation must notice: else it proves nothing about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from gpuherd.bootstrap import build_services
from gpuherd.domain.cloud.observation import Witness
from gpuherd.domain.cloud.offer import DiskTariff
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState
from gpuherd.ports.instance_port import Change, InstanceLeases, LeasedInstance
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.usecases.cloud import observe_cloud
from gpuherd.usecases.events.deliver_webhook import deliver_webhook
from gpuherd.usecases.events.record_event import EventRecorder
from gpuherd.usecases.reconcile import adopt_machine, rent_machine
from gpuherd.usecases.reconcile.reconcile_context import InstancePass
from gpuherd.usecases.services import Services
from proof.chaos.fault_plan import FaultPlan
from proof.chaos.operation import UserOperation
from proof.chaos.process import Pace
from proof.chaos.report import judge
from proof.chaos.schedules import Schedule, draw_schedule
from tests.support import herd as support_herd

# The search ends with the first storm that shows it.
SEEDS = 500

Patch = pytest.MonkeyPatch


def directed(
    *faults: Fault,
    witness_instance: bool = False,
    ops: tuple[UserOperation, ...] = (UserOperation(0.0, "create"),),
) -> Schedule:
    """Return a schedule in which exactly this goes wrong."""
    fault_plan = FaultPlan(Random(1), fault_phase_s=600.0, late_max_s=0.0, faults=list(faults))
    return Schedule(1, "default", Pace(), int(witness_instance), ops, fault_plan, downtime_s=0.0)


def rules_broken(schedule: Schedule) -> set[str]:
    return {violation.rule for _, violation in judge(schedule)[0].violations}


def caught_by_seeds(rule: str, first: int = 0) -> bool:
    return any(rule in rules_broken(draw_schedule(seed)) for seed in range(first, first + SEEDS))


def do_not_wait(patch: Patch) -> None:
    patch.setattr(adopt_machine, "is_proven_not_created", lambda *_: True)


def forget_the_call(patch: Patch) -> None:
    """A call that was under way when the process died is taken for one that was never made."""

    async def doubt(this_pass: InstancePass, attempt: Attempt) -> Attempt:
        refused = replace(attempt, state=AttemptState.REJECTED)
        await this_pass.save(this_pass.instance, attempt=refused)
        return refused

    patch.setattr(adopt_machine, "_doubt", doubt)


def call_before_the_intent(patch: Patch) -> None:
    real = rent_machine._record_intent

    async def intend(this_pass: InstancePass, order: Any) -> Any:
        services = this_pass.services
        unsaved = _UnsavedLeases(services.stores.instance_leases)
        this_pass.services = replace(services, stores=replace(services.stores, instance_leases=unsaved))
        intent = await real(this_pass, order)
        this_pass.services = services
        return intent

    patch.setattr(rent_machine, "_record_intent", intend)


class _UnsavedLeases:
    """Passes whose saves are not written."""

    def __init__(self, instance_leases: InstanceLeases):
        self.acquire, self.refresh, self.release = (
            instance_leases.acquire,
            instance_leases.refresh,
            instance_leases.release,
        )

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        return leased


def tell_afterwards(patch: Patch) -> None:
    """Events without their webhooks, as if those were written in a transaction of their own that was lost."""
    real = EventRecorder.change

    def change(self: EventRecorder, *args: Any, **kwargs: Any) -> Change:
        return replace(real(self, *args, **kwargs), deliveries=(), jobs=())

    patch.setattr(EventRecorder, "change", change)


def never_collect(patch: Patch) -> None:
    async def collect(services: Services) -> bool:
        return False

    patch.setattr(support_herd, "collect_orphans", collect)


def give_a_webhook_up(patch: Patch) -> None:
    async def deliver(services: Services, job: Any) -> Any:
        if job.attempts:
            raise KeyError("a mistake in the program")
        return await deliver_webhook(services, job)

    patch.setattr(build_services, "deliver_webhook", deliver)


def forget_the_disk(patch: Patch) -> None:
    patch.setattr(DiskTariff, "hourly_usd", lambda *_: Decimal(0))


@pytest.mark.parametrize(
    ("remove_safeguard", "rule", "first"),
    [
        (do_not_wait, "I2 single", 0),
        # One storm in eighty shows it: the search begins where one is known.
        (forget_the_call, "I2 single", 240),
        (call_before_the_intent, "I8 intent", 0),
        (tell_afterwards, "I6 webhooks", 0),
        (give_a_webhook_up, "I3 rest", 0),
        (forget_the_disk, "I18 price cap", 0),
    ],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_a_missing_guard_is_noticed_in_random_storms(
    monkeypatch: Patch, remove_safeguard: Callable[[Patch], None], rule: str, first: int
) -> None:
    remove_safeguard(monkeypatch)
    assert caught_by_seeds(rule, first)


LOST = Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1)
BLIND = Fault(FaultKind.EMPTY_LIST, for_s=500)


def test_an_outage_that_answers_with_empty_lists_is_noticed_by_whoever_believes_it(
    monkeypatch: Patch,
) -> None:
    outage = directed(LOST, BLIND, witness_instance=True)
    assert rules_broken(outage) == set()
    monkeypatch.setattr(observe_cloud, "judge_witness", lambda *_: Witness.SEEN)
    assert "I2 single" in rules_broken(outage)


def test_a_surplus_machine_that_nobody_collects_is_noticed(monkeypatch: Patch) -> None:
    too_late = directed(Fault(FaultKind.LATE_COMMIT, count=1, seconds=1500))
    assert rules_broken(too_late) == {"I2 single", "waste"}
    never_collect(monkeypatch)
    assert "I1 known" in rules_broken(too_late)
