"""Start, restart, stop and delete: store what the user wants. A job does the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.api_key import Caller, Limits
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import CircuitOpen, Conflict, StaleWrite
from gpuherd.domain.instance import goal_rules, instance_event
from gpuherd.domain.instance.goal_rules import StartOrder
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.plan import time_to_ready
from gpuherd.domain.money.budget import BudgetRules
from gpuherd.ports.instance_port import Change
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.instances.goal_request import (
    WRITE_TRIES_MAX,
    AcceptedGoal,
    GoalRequest,
    accepted_goal,
    claimed_goal,
    find_requested,
)
from gpuherd.usecases.instances.replace_instance import end_lineage, end_original, wake_ended
from gpuherd.usecases.services import Services


@dataclass(frozen=True)
class StartOptions:
    """What a start may ask for. None keeps what the instance has."""

    health_check: HealthCheck | None = None
    webhook_url: str | None = None
    capacity_wait_s: int = 0


NO_OPTIONS = StartOptions()


async def start_instance(
    services: Services, request: GoalRequest, options: StartOptions = NO_OPTIONS
) -> AcceptedGoal:
    """Start a stopped instance. `Conflict` if it is not stopped; `CircuitOpen` while Novita does not answer.

    The last accepted goal wins. An operation under way ends as superseded.
    """
    if (known := await claimed_goal(services, request.claim)) is not None:
        return known
    instance, rules = await find_requested(services, request), services.rules
    order = StartOrder(
        health_check=options.health_check,
        webhook_url=options.webhook_url,
        max_wait=rules.instance_max_wait,
        expected=await _expected(services, instance),
        lease_warning=rules.lease_warning,
        capacity_wait_s=options.capacity_wait_s,
    )

    def wanted(before: Instance) -> Instance:
        started = goal_rules.start(before, order, services.ids.new("op_"), services.clock.now())
        _refuse_in_vain(services, "start")
        return started

    # guard: starts are judged by budgets
    judged_by = rules.budget_rules if services.budget_cache.current() else None
    return await _change(services, request, instance.id, wanted, request.caller.limits, judged_by)


async def restart_instance(services: Services, request: GoalRequest) -> AcceptedGoal:
    """Restart a running instance. `Conflict` if it does not run. `CircuitOpen` as for a start."""
    if (known := await claimed_goal(services, request.claim)) is not None:
        return known
    instance = await find_requested(services, request)
    order = StartOrder(
        max_wait=services.rules.instance_max_wait, expected=await _expected(services, instance)
    )

    def wanted(before: Instance) -> Instance:
        restarted = goal_rules.restart(before, order, services.ids.new("op_"), services.clock.now())
        _refuse_in_vain(services, "restart")
        return restarted

    return await _change(services, request, instance.id, wanted)


async def stop_instance(services: Services, request: GoalRequest) -> AcceptedGoal:
    """Stop an instance. Its data stays."""
    return await _end(services, request, goal_rules.stop)


async def delete_instance(services: Services, request: GoalRequest) -> AcceptedGoal:
    """Delete an instance in any status. A create under way is resolved first, then its machine is deleted."""
    return await _end(services, request, goal_rules.delete)


async def _end(
    services: Services, request: GoalRequest, goal: Callable[[Instance, str, datetime], Instance]
) -> AcceptedGoal:
    if (known := await claimed_goal(services, request.claim)) is not None:
        return known
    instance = await find_requested(services, request)

    def wanted(before: Instance) -> Instance:
        return goal(before, services.ids.new("op_"), services.clock.now())

    return await _change(services, request, instance.id, wanted)


async def _expected(services: Services, instance: Instance) -> timedelta:
    return time_to_ready(await services.stores.instances.ready_times_s(instance.product_name))


def _refuse_in_vain(services: Services, what: str) -> None:
    if services.breaker_state() == "OPEN":
        raise CircuitOpen(f"Novita has not answered lately; try the {what} again in a while")


async def _change(
    services: Services,
    request: GoalRequest,
    instance_id: str,
    wanted: Callable[[Instance], Instance],
    limits: Limits | None = None,
    judged_by: BudgetRules | None = None,
) -> AcceptedGoal:
    """Store the goal with its event, audit record and operation, and wake the job."""
    instances, claim = services.stores.instances, request.claim
    for _ in range(WRITE_TRIES_MAX):
        before = await instances.get(instance_id)
        try:
            after = wanted(before)
        except Conflict:
            # An equal request may have been accepted a moment ago, and be the reason.
            if (known := await claimed_goal(services, claim)) is not None:
                return known
            raise
        if after is before:
            # guard: a delete of an heir that goes already ends its predecessor
            if not await _end_original(services, before):
                continue
            if claim is not None:
                await instances.claim_operation(claim, before)
            return await claimed_goal(services, claim) or accepted_goal(before)
        after = replace(after, correlation_id=request.caller.correlation_id)
        change = _change_of(services, request.caller, before, after)
        change = replace(change, limits=limits, judged_by=judged_by)
        # guard: a stop or delete takes the heir with it
        change = await end_lineage(services, before, change)
        try:
            saved = await instances.update(change, claim)
        except StaleWrite:
            if (known := await claimed_goal(services, claim)) is not None:
                return known
            continue
        await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(saved)])
        await wake_ended(services, change)
        return accepted_goal(saved)
    raise StaleWrite(f"instance {instance_id} is changing too fast; try again")


def _change_of(services: Services, caller: Caller, before: Instance, after: Instance) -> Change:
    """Return the change with its event, its audit record, and the operation that ends as superseded."""
    now, operation = services.clock.now(), accepted_goal(after).operation
    cause = instance_event.Cause(instance_event.REQUEST_CAUSES[operation.kind])
    type_ = instance_event.GOAL_EVENTS[after.status]
    new_event = NewEvent(type_, after.reason, {}, before.status.value, after.status.value, cause)
    change = services.event_recorder.change(after, new_event, actor=caller.key_id)
    if (superseded := goal_rules.superseded(before, now)) is not None:
        change = replace(change, operations=(superseded, *change.operations))
    was, now_is = before.status.value, f"{after.status.value} ({operation.id})"
    record: AuditRecord = caller.audit_record(f"instance.{operation.kind}", after.id, now, was, now_is)
    return replace(change, audit_record=record)


async def _end_original(services: Services, instance: Instance) -> bool:
    """End the original of a replacement that is being deleted. Return False if the original has changed."""
    change = await end_original(services, instance)
    if change is None:
        return True
    try:
        saved = await services.stores.instances.update(change)
    except StaleWrite:
        return False
    await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(saved)])
    return True
