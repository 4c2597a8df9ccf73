"""Replace an instance: store the request, make the replacement, and end a lineage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from gpuherd.domain.api_key import Limits
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import Conflict, NotFound, StaleWrite
from gpuherd.domain.instance import goal_rules, instance_event
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.launch_spec import LaunchSpec, OnFailure
from gpuherd.domain.instance.lineage import Chain, Heir, Why
from gpuherd.domain.instance.operation import OperationKind, requested
from gpuherd.domain.instance.plan import time_to_ready
from gpuherd.domain.instance.quota import hourly_usd
from gpuherd.domain.instance.replacement import awaits_handover, is_replaceable
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
from gpuherd.usecases.services import Services

# How long a replacement waits for capacity. After that the next one does.
CAPACITY_WAIT_S = 7 * 24 * 3600
AUDIT_ACTION = "instance.replace"
ACTOR = "succession"
_REASONS = {
    Why.NOTICE: "the cloud takes this spot machine back; another instance takes over",
    Why.LOST: "the cloud took this spot machine back; another instance takes over",
    Why.ASKED: "asked to replace; another instance takes over",
}


async def replace_instance(services: Services, request: GoalRequest) -> AcceptedGoal:
    """Store the request together with the replacement. The passes of the original do the rest.

    A replacement under way is returned again. `Conflict` if nothing can be replaced, `QuotaExceeded` if the
    replacement would exceed the limits or a budget.
    """
    if (known := await claimed_goal(services, request.claim)) is not None:
        return known
    instance_id = (await find_requested(services, request)).id
    for _ in range(WRITE_TRIES_MAX):
        before = await services.stores.instances.get(instance_id)
        operation = before.operation
        if awaits_handover(before) and operation is not None and operation.is_running:
            if request.claim is not None:
                await services.stores.instances.claim_operation(request.claim, before)
            return AcceptedGoal(before, operation)
        await _refuse(services, before)
        try:
            return await _accept(services, request, before)
        except StaleWrite:
            if (known := await claimed_goal(services, request.claim)) is not None:
                return known
    raise StaleWrite(f"instance {instance_id} is changing too fast; try again")


async def _refuse(services: Services, instance: Instance) -> None:
    if not is_replaceable(instance):
        raise Conflict(
            "only what can be used, or was taken back, can be replaced; "
            f"{instance.name!r} is {instance.status}",
            code="INSTANCE_NOT_REPLACEABLE",
            details={"status": instance.status.value},
        )
    chain = instance.chain
    members = () if chain is None else await services.stores.instances.of_lineage(chain.lineage)
    unfinished = [it.id for it in members if it.id != instance.id and it.status is not Status.DELETED]
    if unfinished:
        raise Conflict(
            f"a replacement of {instance.name!r} is under way: {', '.join(unfinished)}",
            code="REPLACEMENT_IN_PROGRESS",
            details={"instances": unfinished},
        )


async def _accept(services: Services, request: GoalRequest, before: Instance) -> AcceptedGoal:
    now, caller = services.clock.now(), request.caller
    operation = requested(services.ids.new("op_"), OperationKind.REPLACE, now)
    asked = replace(before, operation=operation, correlation_id=caller.correlation_id)
    change = await make_replacement(services, asked, Why.ASKED, caller.limits, actor=caller.key_id)
    if (superseded := goal_rules.superseded(before, now)) is not None:
        change = replace(change, operations=(superseded, *change.operations))
    assert change.heir is not None, "a replacement is made"
    record: AuditRecord = caller.audit_record(AUDIT_ACTION, before.id, now, after=change.heir.instance.id)
    saved = await services.stores.instances.update(replace(change, audit_record=record), request.claim)
    await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(saved)])
    return accepted_goal(saved)


async def make_replacement(
    services: Services, original: Instance, why: Why, limits: Limits, actor: str = "gpuherd"
) -> Change:
    """Return the change that makes the replacement: both instances change in one transaction.

    The write fails with `StaleWrite` if the link is taken, and with `QuotaExceeded` or `BudgetExhausted` if
    the replacement would exceed a limit of its owner or a budget. For limits it counts in the place of the
    original.
    """
    now, chain = services.clock.now(), original.chain or Chain(original.id)
    heir = Heir(services.ids.new(ID_PREFIX), chain.next_link, why, now)
    wish = _wish(services, original, why, limits)
    boot = time_to_ready(await services.stores.instances.ready_times_s(original.product_name))
    # guard: an heir has the end of its predecessor
    replacement = Instance(
        id=heir.id,
        name=original.name,
        wish=wish,
        goal=Goal.RUNNING,
        status=Status.CREATING,
        created_at=now,
        deadline=now + timedelta(seconds=wish.patience_s) + services.rules.instance_max_wait,
        estimated_ready_at=now + boot,
        owner=original.owner,
        correlation_id=original.correlation_id,
        expected_hourly_usd=hourly_usd(original),
        disk_hourly_usd=original.disk_hourly_usd,
        reason=f"takes over from {original.id}, looking for an offer",
        webhook_url=original.webhook_url,
        labels=original.labels,
        # A failed replacement must be gone before the next one is made.
        on_failure=OnFailure.DELETE,
        health_check=original.health_check,
        replacement=original.replacement,
        chain=chain.of_heir(original.id, heir),
        # The same end, and not a fresh one.
        terms=original.terms,
        lease_term=original.lease_term,
        used_at=original.used_at,
    )
    details = {"replacedBy": heir.id, "link": heir.link, "why": why.value}
    replacing = NewEvent(instance_event.REPLACING, _REASONS[why], details)
    after = replace(original, chain=chain.with_heir(heir), settled=False)
    change = services.event_recorder.change(after, replacing, actor=actor)
    return replace(change, heir=_of_replacement(services, replacement, original, limits))


def _wish(services: Services, original: Instance, why: Why, limits: Limits) -> LaunchSpec:
    wish = original.wish
    if why is not Why.ASKED and wish.capacity_wait_s < CAPACITY_WAIT_S:
        # Too expensive or sold out: the replacement waits in line as long as the original is wanted.
        wish = replace(wish, capacity_wait_s=CAPACITY_WAIT_S)
    is_bound = services.budget_cache.binds(original.owner, original.labels)
    if (limits.max_hourly_usd is not None or is_bound) and wish.hourly_usd_max is None:
        # As for a create: the counted price is the highest that it may cost.
        wish = replace(wish, hourly_usd_max=hourly_usd(original))
    return wish


def _of_replacement(services: Services, replacement: Instance, original: Instance, limits: Limits) -> Change:
    created = NewEvent(
        instance_event.CREATED,
        f"takes over from {original.id}",
        {"replaces": original.id},
        after=Status.CREATING.value,
    )
    change = services.event_recorder.change(replacement, created)
    rules = services.rules.budget_rules if services.budget_cache.current() else None
    # guard: budgets hold for an heir
    # guard: the limits hold for an heir
    return replace(
        change,
        jobs=(services.job_factory.reconcile_job(change.instance), *change.jobs),
        limits=limits if limits.on_rentals else None,
        judged_by=rules,
    )


async def end_lineage(services: Services, before: Instance, change: Change) -> Change:
    """Return the change that ends an instance, with the ends of the other members that go with it."""
    if before.chain is None or change.instance.goal is Goal.RUNNING or before.goal is Goal.DELETED:
        return change
    heir = before.chain.heir
    if heir is not None and awaits_handover(before):
        replacement = await _find(services, heir.id)
        if replacement is not None:
            chain = before.chain.without_heir(None)
            ended = replace(change, instance=replace(change.instance, chain=chain))
            removal = removal_of(services, replacement, "its predecessor is not wanted any more")
            return ended if removal is None else replace(ended, also=(*ended.also, removal))
    return await _with_original(services, before, change)


async def end_original(services: Services, replacement: Instance) -> Change | None:
    """Return what a delete means for the original of a replacement that is being deleted already.

    The replacement may have failed. Then the original would make the next one, which the user does not want.
    """
    if replacement.goal is not Goal.DELETED:
        return None
    change = await _with_original(services, replacement, Change(replacement))
    return change.also[0] if change.also else None


async def wake_ended(services: Services, change: Change) -> None:
    """Wake the jobs of the instances that end along with another one."""
    if change.also:
        await services.stores.jobs.wake_or_enqueue(
            [services.job_factory.reconcile_job(other.instance) for other in change.also]
        )


def removal_of(services: Services, instance: Instance, reason: str) -> Change | None:
    """Return the change that deletes an instance without a request; None if it is being deleted already."""
    return _ended(services, instance, reason, goal_rules.delete)


async def _with_original(services: Services, before: Instance, change: Change) -> Change:
    """Add the end of the original to the end of a replacement that was never usable."""
    chain = before.chain
    if chain is None or chain.replaces is None or before.ready_at is not None:
        return change
    original = await _find(services, chain.replaces)
    if original is None or original.goal is not Goal.RUNNING or original.chain is None:
        return change
    if original.chain.heir is None or original.chain.heir.id != before.id:
        return change
    also = None
    if not original.usable and change.instance.goal is Goal.DELETED:
        reason = "its heir was deleted before it took over"
        also = _ended(services, original, reason, goal_rules.delete)
    elif not original.usable and goal_rules.can_stop(original):
        also = _ended(services, original, "its heir was stopped before it took over", goal_rules.stop)
    if also is None:
        # The original is usable, or keeps its data. It gets no other replacement.
        also = Change(replace(original, chain=replace(original.chain, gave_up=True), settled=False))
    return replace(change, also=(*change.also, also))


def _ended(
    services: Services,
    instance: Instance,
    reason: str,
    goal: Callable[[Instance, str, datetime], Instance],
) -> Change | None:
    now = services.clock.now()
    after = goal(instance, services.ids.new("op_"), now)
    if after is instance:
        return None
    after = replace(after, reason=f"{after.reason}: {reason}")
    if after.chain is not None and awaits_handover(after):
        after = replace(after, chain=after.chain.without_heir(None))
    cause = instance_event.Cause(instance_event.CauseCode.SUCCESSION, reason)
    type_ = instance_event.GOAL_EVENTS[after.status]
    new_event = NewEvent(type_, after.reason, {}, instance.status.value, after.status.value, cause)
    change = services.event_recorder.change(after, new_event, actor=ACTOR)
    superseded = goal_rules.superseded(instance, now)
    return change if superseded is None else replace(change, operations=(superseded, *change.operations))


async def _find(services: Services, instance_id: str) -> Instance | None:
    try:
        return await services.stores.instances.get(instance_id)
    except NotFound:
        return None
