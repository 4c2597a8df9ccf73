"""Change the lease of an instance, and note that somebody uses it."""

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
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import Change, Instances
from gpuherd.ports.job_port import Jobs
from gpuherd.usecases.instances.change_goal import WRITE_TRIES_MAX
from gpuherd.usecases.instances.check_launch import EndRules, check_lease
from gpuherd.usecases.instances.read_instance import FindInstance
from gpuherd.usecases.money.judge_budgets import BudgetCache
from gpuherd.usecases.service.make_jobs import JobFactory

AUDIT_ACTION = "instance.lease"


@dataclass(frozen=True)
class LeaseOrder:
    """How long from now, or until when; what becomes of it then, None for what was agreed before."""

    seconds: int | None = None
    until: datetime | None = None
    then: EndAction | None = None


@dataclass(frozen=True, kw_only=True)
class ChangeLease:
    """The use case."""

    instances: Instances
    jobs: Jobs
    find: FindInstance
    job_factory: JobFactory
    rules: EndRules
    clock: Clock
    budgets: BudgetCache
    budget_rules: BudgetRules

    async def set(self, word: str, order: LeaseOrder, caller: Caller = SYSTEM_CALLER) -> Instance:
        """Set the end anew, counted from now. `Conflict` (LEASE_ENDED) after the end."""

        def with_lease(it: Instance) -> Instance:
            now = self.clock.now()
            then = order.then or _agreed_action(it)
            lease = Lease(order.seconds, order.until, then)
            check_lease(lease, caller.limits, now)
            return replace(
                it, terms=replace(it.terms, lease=lease), lease_term=self._term(lease, now), settled=False
            )

        return await self._change(word, with_lease, caller)

    async def remove(self, word: str, caller: Caller = SYSTEM_CALLER) -> Instance:
        """Take the lease away, so that nothing but a person ends it."""
        if (most := caller.limits.max_lease_s) is not None:
            words = f"lease cannot be taken away: instances of this key have one of at most {most} s"
            raise InvalidRequest([FieldProblem("lease", "LEASE_REQUIRED", words)])
        return await self._change(
            word,
            lambda it: replace(it, terms=replace(it.terms, lease=None), lease_term=None, settled=False),
            caller,
        )

    def _term(self, lease: Lease, now: datetime) -> LeaseTerm:
        if lease.until is not None:
            return term_until(lease.until, now, self.rules.lease_warning, lease.then)
        assert lease.seconds is not None, "a lease has a length or a moment"
        return term_of(lease.seconds, now, self.rules.lease_warning, lease.then)

    def _judged_by(self, before: Instance, after: Instance) -> BudgetRules | None:
        """A longer lease needs more of a budget that counts whole leases; a shorter one is always good."""
        if not any(it.strict for it in self.budgets.current()):
            return None
        now = self.clock.now()
        was, will_be = lease_left(before, now), lease_left(after, now)
        if will_be is not None and was is not None and will_be <= was:
            return None
        # guard: a longer lease is judged by a strict budget
        return replace(self.budget_rules, only_strict=True)

    async def _change(self, word: str, wanted: Callable[[Instance], Instance], caller: Caller) -> Instance:
        instance_id = (await self.find(word, caller)).id
        for _ in range(WRITE_TRIES_MAX):
            before = await self.instances.get(instance_id)
            # guard: after the end there is no extension
            _refuse_ended(before, self.clock.now())
            after = wanted(before)
            record = caller.audit_record(
                AUDIT_ACTION, before.id, self.clock.now(), _end_text(before), _end_text(after)
            )
            change = Change(after, audit_record=record, judged_by=self._judged_by(before, after))
            change = await self._with_heir(change)
            try:
                saved = await self.instances.update(change)
            except StaleWrite:
                continue
            # It may wait for something until the end as it was, and must look again for the new one.
            await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(saved)])
            return saved
        raise StaleWrite(f"instance {instance_id} is changing too fast; try again")

    async def _with_heir(self, change: Change) -> Change:
        """Whoever is to take over has the same end."""
        it = change.instance
        if it.chain is None or it.chain.heir is None or not awaits_handover(it):
            return change
        try:
            heir = await self.instances.get(it.chain.heir.id)
        except NotFound:
            return change
        if heir.goal is not Goal.RUNNING:
            return change
        heir = replace(
            heir,
            terms=replace(heir.terms, lease=it.terms.lease),
            lease_term=it.lease_term,
            settled=False,
        )
        return replace(change, also=(Change(heir),))


def _refuse_ended(it: Instance, now: datetime) -> None:
    if it.goal is Goal.DELETED or it.status in TERMINAL_STATUSES:
        words = f"{it.name!r} is {it.status}; there is nothing left that a lease could end"
        raise Conflict(words, code="LEASE_ENDED", details={"status": it.status.value})
    if it.lease_term is not None and (it.lease_term.ended or _ended_unnoticed(it, it.lease_term, now)):
        words = f"the lease of {it.name!r} has ended; start it again for a fresh one of the same length"
        raise Conflict(words, code="LEASE_ENDED", details={"status": it.status.value})


def _ended_unnoticed(it: Instance, term: LeaseTerm, now: datetime) -> bool:
    """Return True if a lease has ended that had nothing to stop.

    Of what is up only what is written down counts: until then an extension is in time.
    """
    return it.status is Status.EXITED and term.is_over(now)


def _agreed_action(it: Instance) -> EndAction:
    return EndAction.STOP if it.terms.lease is None else it.terms.lease.then


def _end_text(it: Instance) -> str:
    term = it.lease_term
    return "" if term is None else f"{term.then} at {term.ends_at.isoformat()}"


# Whoever beats faster writes no more; where nothing ends by silence it only has to look right.
WRITE_INTERVAL = timedelta(seconds=1)


WRITE_INTERVAL_UNWATCHED = timedelta(minutes=1)


@dataclass(frozen=True)
class NoteUse:
    """The use case."""

    instances: Instances
    find: FindInstance
    clock: Clock

    async def __call__(self, word: str, caller: Caller = SYSTEM_CALLER) -> None:
        """Write down that it is in use now."""
        instance_id = (await self.find(word, caller)).id
        for _ in range(WRITE_TRIES_MAX):
            it = await self.instances.get(instance_id)
            now = self.clock.now()
            if it.status in TERMINAL_STATUSES or _is_fresh(it, now):
                return
            try:
                await self.instances.update(Change(replace(it, used_at=now)))
            except StaleWrite:
                continue
            return
        raise StaleWrite(f"instance {instance_id} is changing too fast; try again")


def _is_fresh(it: Instance, now: datetime) -> bool:
    is_watched = it.terms.silence is not None or it.terms.idle is not None
    interval = WRITE_INTERVAL if is_watched else WRITE_INTERVAL_UNWATCHED
    # Both ways: after a wall clock that stepped back, the last word seems to lie in the future.
    return it.used_at is not None and abs(now - it.used_at) < interval
