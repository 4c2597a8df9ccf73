"""Hand over to a replacement: in the passes of the original, make it, hand over to it, or let it go.

Nothing here calls the cloud: replacements are instances like others.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import structlog

from gpuherd.domain.api_key import SYSTEM_CALLER
from gpuherd.domain.errors import (
    BudgetExhausted,
    NotFound,
    QuotaExceeded,
)
from gpuherd.domain.instance import goal_rules, instance_event
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lineage import (
    Chain,
    Heir,
    ReplacementOutcome,
    Why,
)
from gpuherd.domain.instance.operation import Failure, OperationKind
from gpuherd.domain.instance.plan import time_to_ready
from gpuherd.domain.instance.replacement import (
    HANDOVER_RECHECK,
    CancelHeir,
    ForgetHeir,
    GiveUpReplacing,
    LookAgain,
    Retire,
    Succeed,
    SuccessionStep,
    lead_time,
    lineage_of,
    may_be_replaced,
    outcome_of_handover,
    predecessor_of,
    succession_step,
    was_taken_back,
)
from gpuherd.ports.instance_port import Change
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.instances.replace_instance import (
    ACTOR,
    AUDIT_ACTION,
    make_replacement,
    removal_of,
    wake_ended,
)
from gpuherd.usecases.reconcile.reconcile_context import InstancePass
from gpuherd.usecases.services import Services

log = structlog.get_logger()


# After a limit or a budget has refused a replacement, gpuherd asks again after this time.
REFUSED_RETRY = timedelta(seconds=60)


async def follow_replacement(this_pass: InstancePass) -> timedelta | None:
    """Take the next step of a handover, and return how long to wait before the next one.

    Return None if there is nothing to do, and zero if the pass must look again at once.
    """
    step = await _next_handover_step(this_pass)
    match step:
        case Succeed(why):
            return await _make_replacement(this_pass, why)
        case Retire():
            await _retire(this_pass)
        case CancelHeir(reason):
            return await _cancel(this_pass, reason)
        case ForgetHeir():
            await _forget(this_pass)
        case GiveUpReplacing():
            await _give_up(this_pass)
        case LookAgain(at):
            return at - this_pass.services.clock.now()
        case None:
            return None
    return timedelta(0)


async def _next_handover_step(this_pass: InstancePass) -> SuccessionStep | None:
    services, instance = this_pass.services, this_pass.instance
    if not may_be_replaced(instance):
        return None
    known = lineage_of(instance, await _replacement_of(services, instance))
    listed_since = None
    if instance.goal is Goal.RUNNING and not was_taken_back(instance):
        last = await services.stores.observations.last_believable_list()
        listed_since = None if last is None else last.started_at
    is_alone = await _is_alone(services, instance)
    original = predecessor_of(instance, this_pass.observation, listed_since, is_alone=is_alone)
    lead = timedelta(0)
    if original.is_notice_confirmed and instance.reclaim is not None and known.heir is None:
        boot = time_to_ready(await services.stores.instances.ready_times_s(instance.product_name))
        lead = lead_time(boot, services.rules.reclaim_notice)
    return succession_step(original, known, lead, services.clock.now())


async def _is_alone(services: Services, instance: Instance) -> bool:
    """Return True if no other instance of the lineage can have a machine, except its own replacement."""
    chain = instance.chain
    if chain is None:
        return True
    lineage = await services.stores.instances.of_lineage(chain.lineage)
    own = {instance.id, None if chain.heir is None else chain.heir.id}
    return all(other.status is Status.DELETED for other in lineage if other.id not in own)


async def _make_replacement(this_pass: InstancePass, why: Why) -> timedelta:
    services, instance = this_pass.services, this_pass.instance
    limits = services.key_cache.limits_of(instance.owner)
    change = await make_replacement(services, instance, why, limits)
    assert change.heir is not None, "a replacement is made"
    replacement = change.heir.instance
    # On the change of the original, so that the lock of the audit log comes before all others.
    record = SYSTEM_CALLER.audit_record(AUDIT_ACTION, instance.id, services.clock.now(), after=replacement.id)
    try:
        await this_pass.write(replace(change, audit_record=record))
    except (QuotaExceeded, BudgetExhausted) as refusal:
        await _record_refused(this_pass, refusal)
        return REFUSED_RETRY
    log.info("instance.replacing", instance_id=instance.id, heir=replacement.id, why=why.value)
    return timedelta(0)


async def _record_refused(this_pass: InstancePass, refusal: QuotaExceeded | BudgetExhausted) -> None:
    """Report once that a replacement cannot be made, and why."""
    instance = this_pass.instance
    chain = instance.chain or Chain(instance.id)
    if chain.refused:
        return
    details = {"code": refusal.code, **dict(refusal.details)}
    await this_pass.save(
        replace(instance, chain=replace(chain, refused=True)),
        NewEvent(instance_event.REPLACEMENT_REFUSED, refusal.message, details),
    )
    this_pass.services.meter.replacement(ReplacementOutcome.REFUSED.value)


async def _retire(this_pass: InstancePass) -> None:
    """Delete the original as if the user had asked: its replacement can be used."""
    services, before, now = this_pass.services, this_pass.instance, this_pass.services.clock.now()
    chain, heir = _heir_in(before)
    reason = f"{heir.id} has taken over"
    after = goal_rules.delete(before, services.ids.new("op_"), now)
    taken_over = replace(chain, heir=replace(heir, has_taken_over=True))
    after = replace(after, chain=taken_over, reason=f"asked to delete: {reason}")
    new_event = NewEvent(
        instance_event.GOAL_EVENTS[after.status],
        after.reason,
        {},
        before.status.value,
        after.status.value,
        instance_event.Cause(instance_event.CauseCode.SUCCESSION, reason),
    )
    change = services.event_recorder.change(after, new_event, actor=ACTOR)
    operation = before.operation
    if operation is not None and operation.is_running:
        is_replace = operation.kind is OperationKind.REPLACE
        ended = operation.succeeded(now) if is_replace else operation.superseded(now)
        change = replace(change, operations=(ended, *change.operations))
    replacement = await _replacement_of(services, before)
    await this_pass.write(change)
    usable_since = now if replacement is None or replacement.ready_at is None else replacement.ready_at
    outcome, gap_s = outcome_of_handover(before, usable_since)
    services.meter.replacement(outcome.value, gap_s)
    log.info("instance.retired", instance_id=before.id, heir=heir.id)


async def _cancel(this_pass: InstancePass, reason: str) -> timedelta:
    """Remove the replacement. The original remembers it until it is proven gone, and has no other before."""
    services, instance = this_pass.services, this_pass.instance
    replacement = await _replacement_of(services, instance)
    along = None if replacement is None else removal_of(services, replacement, reason)
    if along is None:
        return HANDOVER_RECHECK
    change = Change(instance, also=(along,))
    await this_pass.write(change)
    await wake_ended(services, change)
    return timedelta(0)


async def _forget(this_pass: InstancePass) -> None:
    """Forget a replacement that is gone, so that the original may have another."""
    services, instance = this_pass.services, this_pass.instance
    replacement = await _replacement_of(services, instance)
    chain, known = _heir_in(instance)
    error = None if replacement is None else replacement.last_error
    after = replace(instance, chain=chain.without_heir(None if error is None else services.clock.now()))
    change = services.event_recorder.change(after)
    operation = instance.operation
    if operation is not None and operation.is_running and operation.kind is OperationKind.REPLACE:
        failure = error or Failure("REPLACEMENT_FAILED", f"{known.id} is gone", services.clock.now())
        ended = operation.failed(replace(failure, at=services.clock.now()))
        change = services.event_recorder.change(replace(after, operation=ended))
        change = replace(change, operations=(ended,))
    await this_pass.write(change)
    outcome = ReplacementOutcome.CANCELLED if error is None else ReplacementOutcome.FAILED
    services.meter.replacement(outcome.value)


async def _give_up(this_pass: InstancePass) -> None:
    """Report that the instance was replaced too often in one day, and is not replaced any more."""
    instance = this_pass.instance
    chain, most = instance.chain or Chain(instance.id), instance.replacement.max_replacements
    reason = f"it was replaced {most} times in 24 h, and is not any more"
    await this_pass.save(
        replace(instance, chain=replace(chain, gave_up=True)),
        NewEvent(instance_event.REPLACEMENT_GAVE_UP, reason, {"maxReplacements": most}),
    )
    this_pass.services.meter.replacement(ReplacementOutcome.GAVE_UP.value)


def _heir_in(instance: Instance) -> tuple[Chain, Heir]:
    assert instance.chain is not None and instance.chain.heir is not None, "only a handover has these steps"
    return instance.chain, instance.chain.heir


async def wake_original(services: Services, instance: Instance) -> None:
    """Start a pass of the original when its replacement has settled. Else it would begin in half a minute."""
    if instance.chain is None or instance.chain.replaces is None:
        return
    original = await _found(services, instance.chain.replaces)
    if original is None or original.status is Status.DELETED:
        return
    if original.chain and original.chain.heir:
        await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(original)])


async def _replacement_of(services: Services, instance: Instance) -> Instance | None:
    if instance.chain is None or instance.chain.heir is None:
        return None
    return await _found(services, instance.chain.heir.id)


async def _found(services: Services, instance_id: str) -> Instance | None:
    try:
        return await services.stores.instances.get(instance_id)
    except NotFound:
        return None
