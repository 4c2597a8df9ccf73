"""Change the lease of an instance, and note that the user uses the instance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.api_key import SYSTEM_CALLER, Caller
from gpuherd.domain.errors import (
    Conflict,
    FieldProblem,
    InvalidRequest,
    NotFound,
    StaleWrite,
)
from gpuherd.domain.instance.instance import (
    TERMINAL_STATUSES,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.lease import (
    EndAction,
    Lease,
    LeaseTerm,
    term_of,
    term_until,
)
from gpuherd.domain.instance.replacement import awaits_handover
from gpuherd.domain.money.budget import BudgetRules, lease_left
from gpuherd.ports.instance_port import Change
from gpuherd.usecases.instances.check_launch import check_lease
from gpuherd.usecases.instances.goal_request import WRITE_TRIES_MAX
from gpuherd.usecases.instances.read_instance import find_instance
from gpuherd.usecases.services import Services

AUDIT_ACTION = "instance.lease"
# An instance that may end by silence: a heartbeat within this time of the last one is not written.
WRITE_INTERVAL = timedelta(seconds=1)
# Any other instance: the last use is only shown.
WRITE_INTERVAL_UNWATCHED = timedelta(minutes=1)


@dataclass(frozen=True)
class LeaseOrder:
    """The new end: a length from now, or a moment. `then` is None to keep the agreed action."""

    seconds: int | None = None
    until: datetime | None = None
    then: EndAction | None = None


async def set_lease(
    services: Services, id_or_name: str, order: LeaseOrder, caller: Caller = SYSTEM_CALLER
) -> Instance:
    """Set the end anew, counted from now. `Conflict` (LEASE_ENDED) after the end."""
    warning = services.rules.lease_warning

    def with_lease(instance: Instance) -> Instance:
        now = services.clock.now()
        lease = Lease(order.seconds, order.until, order.then or _agreed_action(instance))
        check_lease(lease, caller.limits, now)
        return replace(
            instance,
            terms=replace(instance.terms, lease=lease),
            lease_term=_term(lease, now, warning),
            settled=False,
        )

    return await _change(services, id_or_name, with_lease, caller)


async def remove_lease(services: Services, id_or_name: str, caller: Caller = SYSTEM_CALLER) -> Instance:
    """Remove the lease. A key with a longest lease may not do that."""
    if (most := caller.limits.max_lease_s) is not None:
        words = f"lease cannot be taken away: instances of this key have one of at most {most} s"
        raise InvalidRequest([FieldProblem("lease", "LEASE_REQUIRED", words)])

    def without_lease(instance: Instance) -> Instance:
        return replace(instance, terms=replace(instance.terms, lease=None), lease_term=None, settled=False)

    return await _change(services, id_or_name, without_lease, caller)


def _agreed_action(instance: Instance) -> EndAction:
    return EndAction.STOP if instance.terms.lease is None else instance.terms.lease.then


def _term(lease: Lease, now: datetime, warning: timedelta) -> LeaseTerm:
    if lease.until is not None:
        return term_until(lease.until, now, warning, lease.then)
    assert lease.seconds is not None, "a lease has a length or a moment"
    return term_of(lease.seconds, now, warning, lease.then)


async def _change(
    services: Services, id_or_name: str, wanted: Callable[[Instance], Instance], caller: Caller
) -> Instance:
    instances = services.stores.instances
    instance_id = (await find_instance(services, id_or_name, caller)).id
    for _ in range(WRITE_TRIES_MAX):
        before, now = await instances.get(instance_id), services.clock.now()
        # guard: after the end there is no extension
        _refuse_ended(before, now)
        after = wanted(before)
        record = caller.audit_record(AUDIT_ACTION, before.id, now, _end_text(before), _end_text(after))
        change = Change(after, audit_record=record, judged_by=_judged_by(services, before, after))
        try:
            saved = await instances.update(await _with_replacement(services, change))
        except StaleWrite:
            continue
        # A pass may wait for the old end. It must see the new one.
        await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(saved)])
        return saved
    raise StaleWrite(f"instance {instance_id} is changing too fast; try again")


def _refuse_ended(instance: Instance, now: datetime) -> None:
    if instance.goal is Goal.DELETED or instance.status in TERMINAL_STATUSES:
        words = f"{instance.name!r} is {instance.status}; there is nothing left that a lease could end"
        raise Conflict(words, code="LEASE_ENDED", details={"status": instance.status.value})
    if (term := instance.lease_term) is not None and (term.ended or _ended_unnoticed(instance, term, now)):
        words = f"the lease of {instance.name!r} has ended; start it again for a fresh one of the same length"
        raise Conflict(words, code="LEASE_ENDED", details={"status": instance.status.value})


def _ended_unnoticed(instance: Instance, term: LeaseTerm, now: datetime) -> bool:
    """Return True if the lease of a stopped instance has ended: there was nothing to stop.

    For a running instance only the stored end counts. Until then an extension is in time.
    """
    return instance.status is Status.EXITED and term.is_over(now)


def _end_text(instance: Instance) -> str:
    term = instance.lease_term
    return "" if term is None else f"{term.then} at {term.ends_at.isoformat()}"


def _judged_by(services: Services, before: Instance, after: Instance) -> BudgetRules | None:
    """Return the rules that judge the change: a longer lease needs more of a strict budget."""
    if not any(budget.strict for budget in services.budget_cache.current()):
        return None
    now = services.clock.now()
    left_before, left_after = lease_left(before, now), lease_left(after, now)
    if left_after is not None and left_before is not None and left_after <= left_before:
        return None
    # guard: a longer lease is judged by a strict budget
    return replace(services.rules.budget_rules, only_strict=True)


async def _with_replacement(services: Services, change: Change) -> Change:
    """Give the replacement under way the same end."""
    instance = change.instance
    if instance.chain is None or instance.chain.heir is None or not awaits_handover(instance):
        return change
    try:
        replacement = await services.stores.instances.get(instance.chain.heir.id)
    except NotFound:
        return change
    if replacement.goal is not Goal.RUNNING:
        return change
    replacement = replace(
        replacement,
        terms=replace(replacement.terms, lease=instance.terms.lease),
        lease_term=instance.lease_term,
        settled=False,
    )
    return replace(change, also=(Change(replacement),))


async def note_use(services: Services, id_or_name: str, caller: Caller = SYSTEM_CALLER) -> None:
    """Store that the instance is in use now."""
    instance_id = (await find_instance(services, id_or_name, caller)).id
    for _ in range(WRITE_TRIES_MAX):
        instance, now = await services.stores.instances.get(instance_id), services.clock.now()
        if instance.status in TERMINAL_STATUSES or _is_fresh(instance, now):
            return
        try:
            await services.stores.instances.update(Change(replace(instance, used_at=now)))
        except StaleWrite:
            continue
        return
    raise StaleWrite(f"instance {instance_id} is changing too fast; try again")


def _is_fresh(instance: Instance, now: datetime) -> bool:
    is_watched = instance.terms.silence is not None or instance.terms.idle is not None
    interval = WRITE_INTERVAL if is_watched else WRITE_INTERVAL_UNWATCHED
    # Both ways: after a step of the wall clock, the last use may seem to lie in the future.
    return instance.used_at is not None and abs(now - instance.used_at) < interval
