"""Change the goal: start, restart, stop, delete. Writes down what is wanted; a job does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.api_key import SYSTEM_CALLER, Caller, Limits
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import CircuitOpen, Conflict, StaleWrite
from gpuherd.domain.instance import goal_rules, instance_event
from gpuherd.domain.instance.goal_rules import StartOrder
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.lineage import Why
from gpuherd.domain.instance.operation import Operation, OperationKind, requested
from gpuherd.domain.instance.plan import time_to_ready
from gpuherd.domain.instance.replacement import awaits_handover, is_replaceable
from gpuherd.domain.money.budget import BudgetRules
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import Instances
from gpuherd.ports.job_port import Jobs
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.instances.read_instance import FindInstance
from gpuherd.usecases.instances.replace_instance import AUDIT_ACTION, EndLineage, MakeHeir
from gpuherd.usecases.money.judge_budgets import BudgetCache
from gpuherd.usecases.service.make_jobs import JobFactory

# Each try loses only against somebody else's success, so a handful is plenty.
WRITE_TRIES_MAX = 20


@dataclass(frozen=True)
class AcceptedGoal:
    """A goal that is written down: the instance, the operation that it is, and whether it was before."""

    instance: Instance
    operation: Operation
    replayed: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeGoal:
    """The use case. The last goal that was accepted wins; an earlier one under way ends as superseded."""

    instances: Instances
    jobs: Jobs
    find: FindInstance
    event_recorder: EventRecorder
    job_factory: JobFactory
    clock: Clock
    ids: Ids
    max_wait: timedelta
    lease_warning: timedelta
    breaker_state: Callable[[], str]
    budgets: BudgetCache
    budget_rules: BudgetRules
    end_lineage: EndLineage

    async def start(
        self,
        word: str,
        *,
        health_check: HealthCheck | None = None,
        webhook_url: str | None = None,
        capacity_wait_s: int = 0,
        by_name: bool = False,
        caller: Caller = SYSTEM_CALLER,
        claim: IdempotencyClaim | None = None,
    ) -> AcceptedGoal:
        """Start what has exited; `Conflict` otherwise. Known at once to be in vain: `CircuitOpen`."""
        if (known := await self._claimed(claim)) is not None:
            return known
        instance = await self._found(word, by_name, caller)
        expected = await self._expected(instance)
        order = StartOrder(
            health_check, webhook_url, self.max_wait, expected, self.lease_warning, capacity_wait_s
        )

        def wanted(it: Instance) -> Instance:
            started = goal_rules.start(it, order, self.ids.new("op_"), self.clock.now())
            self._refuse_in_vain("start")
            return started

        # guard: starts are judged by budgets
        judged_by = self.budget_rules if self.budgets.current() else None
        return await self._change(instance.id, wanted, caller, claim, caller.limits, judged_by)

    async def restart(
        self,
        word: str,
        *,
        by_name: bool = False,
        caller: Caller = SYSTEM_CALLER,
        claim: IdempotencyClaim | None = None,
    ) -> AcceptedGoal:
        """Restart what runs; `Conflict` otherwise. Known at once to be in vain: `CircuitOpen`."""
        if (known := await self._claimed(claim)) is not None:
            return known
        instance = await self._found(word, by_name, caller)
        order = StartOrder(max_wait=self.max_wait, expected=await self._expected(instance))

        def wanted(it: Instance) -> Instance:
            restarted = goal_rules.restart(it, order, self.ids.new("op_"), self.clock.now())
            self._refuse_in_vain("restart")
            return restarted

        return await self._change(instance.id, wanted, caller, claim)

    async def stop(
        self,
        word: str,
        *,
        by_name: bool = False,
        caller: Caller = SYSTEM_CALLER,
        claim: IdempotencyClaim | None = None,
    ) -> AcceptedGoal:
        """Stop what runs."""
        return await self._end(word, goal_rules.stop, by_name, caller, claim)

    async def delete(
        self,
        word: str,
        *,
        by_name: bool = False,
        caller: Caller = SYSTEM_CALLER,
        claim: IdempotencyClaim | None = None,
    ) -> AcceptedGoal:
        """Delete, whatever the state: a create under way is resolved first, then its machine removed."""
        return await self._end(word, goal_rules.delete, by_name, caller, claim)

    async def _end(
        self,
        word: str,
        goal: Callable[[Instance, str, datetime], Instance],
        by_name: bool,
        caller: Caller,
        claim: IdempotencyClaim | None,
    ) -> AcceptedGoal:
        if (known := await self._claimed(claim)) is not None:
            return known
        instance = await self._found(word, by_name, caller)
        return await self._change(
            instance.id, lambda it: goal(it, self.ids.new("op_"), self.clock.now()), caller, claim
        )

    async def _expected(self, instance: Instance) -> timedelta:
        return time_to_ready(await self.instances.ready_times_s(instance.product_name))

    def _refuse_in_vain(self, what: str) -> None:
        if self.breaker_state() == "OPEN":
            raise CircuitOpen(f"Novita has not answered lately; try the {what} again in a while")

    async def _found(self, word: str, by_name: bool, caller: Caller) -> Instance:
        return await (self.find.named(word, caller) if by_name else self.find(word, caller))

    async def _claimed(self, claim: IdempotencyClaim | None) -> AcceptedGoal | None:
        """Return what an earlier, equal request has got."""
        found = None if claim is None else await self.instances.claimed_operation(claim)
        return None if found is None else AcceptedGoal(*found, replayed=True)

    async def _change(
        self,
        instance_id: str,
        wanted: Callable[[Instance], Instance],
        caller: Caller,
        claim: IdempotencyClaim | None,
        limits: Limits | None = None,
        judged_by: BudgetRules | None = None,
    ) -> AcceptedGoal:
        for _ in range(WRITE_TRIES_MAX):
            before = await self.instances.get(instance_id)
            try:
                after = wanted(before)
            except Conflict:
                # The same request may have been accepted a moment ago, and be the very reason.
                if (known := await self._claimed(claim)) is not None:
                    return known
                raise
            if after is before:
                # guard: a delete of an heir that goes already ends its predecessor
                if not await self._predecessor_is_ended(before):
                    continue
                if claim is not None:
                    await self.instances.claim_operation(claim, before)
                return await self._claimed(claim) or _accepted(before)
            after = replace(after, correlation_id=caller.correlation_id)
            put_aside = goal_rules.superseded(before, self.clock.now())
            type_ = instance_event.GOAL_EVENTS[after.status]
            cause = instance_event.Cause(instance_event.REQUEST_CAUSES[_accepted(after).operation.kind])
            new_event = NewEvent(type_, after.reason, {}, before.status.value, after.status.value, cause)
            change = self.event_recorder.change(after, new_event, actor=caller.key_id)
            if put_aside is not None:
                change = replace(change, operations=(put_aside, *change.operations))
            record = self._audit_record(caller, before, after)
            change = replace(change, audit_record=record, limits=limits, judged_by=judged_by)
            # guard: a stop or delete takes the heir with it
            change = await self.end_lineage(before, change)
            try:
                saved = await self.instances.update(change, claim)
            except StaleWrite:
                if (known := await self._claimed(claim)) is not None:
                    return known
                continue
            await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(saved)])
            await self.end_lineage.wake(change)
            return _accepted(saved)
        raise StaleWrite(f"instance {instance_id} is changing too fast; try again")

    async def _predecessor_is_ended(self, it: Instance) -> bool:
        """End what one that goes already was to take over from; False if it has changed meanwhile."""
        along = await self.end_lineage.of_one_that_goes(it)
        if along is None:
            return True
        try:
            saved = await self.instances.update(along)
        except StaleWrite:
            return False
        await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(saved)])
        return True

    def _audit_record(self, caller: Caller, before: Instance, after: Instance) -> AuditRecord:
        operation = _accepted(after).operation
        was, now_is = before.status.value, f"{after.status.value} ({operation.id})"
        return caller.audit_record(f"instance.{operation.kind}", after.id, self.clock.now(), was, now_is)


def _accepted(instance: Instance) -> AcceptedGoal:
    assert instance.operation is not None, "every change of goal is an operation"
    return AcceptedGoal(instance, instance.operation)


@dataclass(frozen=True, kw_only=True)
class ReplaceInstance:
    """The use case. The heir is made with the acceptance; the passes of the old one do the rest."""

    instances: Instances
    jobs: Jobs
    find: FindInstance
    make_heir: MakeHeir
    job_factory: JobFactory

    async def __call__(
        self, word: str, *, caller: Caller = SYSTEM_CALLER, claim: IdempotencyClaim | None = None
    ) -> AcceptedGoal:
        """Accept a replacement; one that is under way is the same. `Conflict` if there is nothing to replace,
        `QuotaExceeded` if the heir would go past the limits or a budget."""
        if (known := await self._claimed(claim)) is not None:
            return known
        instance_id = (await self.find(word, caller)).id
        for _ in range(WRITE_TRIES_MAX):
            before = await self.instances.get(instance_id)
            operation = before.operation
            if awaits_handover(before) and operation is not None and operation.is_running:
                if claim is not None:
                    await self.instances.claim_operation(claim, before)
                return AcceptedGoal(before, operation)
            await self._refuse(before)
            try:
                return await self._accept(before, caller, claim)
            except StaleWrite:
                if (known := await self._claimed(claim)) is not None:
                    return known
        raise StaleWrite(f"instance {instance_id} is changing too fast; try again")

    async def _accept(self, before: Instance, caller: Caller, claim: IdempotencyClaim | None) -> AcceptedGoal:
        now = self.make_heir.clock.now()
        operation = requested(self.make_heir.ids.new("op_"), OperationKind.REPLACE, now)
        asked = replace(before, operation=operation, correlation_id=caller.correlation_id)
        change = await self.make_heir(asked, Why.ASKED, caller.limits, actor=caller.key_id)
        if (put_aside := goal_rules.superseded(before, now)) is not None:
            change = replace(change, operations=(put_aside, *change.operations))
        assert change.heir is not None, "an heir is made"
        record: AuditRecord = caller.audit_record(AUDIT_ACTION, before.id, now, after=change.heir.instance.id)
        saved = await self.instances.update(replace(change, audit_record=record), claim)
        await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(saved)])
        assert saved.operation is not None, "it was just accepted"
        return AcceptedGoal(saved, saved.operation)

    async def _refuse(self, it: Instance) -> None:
        if not is_replaceable(it):
            raise Conflict(
                f"only what can be used, or was taken back, can be replaced; {it.name!r} is {it.status}",
                code="INSTANCE_NOT_REPLACEABLE",
                details={"status": it.status.value},
            )
        others = () if it.chain is None else await self.instances.of_lineage(it.chain.lineage)
        unfinished = [
            other.id for other in others if other.id != it.id and other.status is not Status.DELETED
        ]
        if unfinished:
            raise Conflict(
                f"a replacement of {it.name!r} is under way: {', '.join(unfinished)}",
                code="REPLACEMENT_IN_PROGRESS",
                details={"instances": unfinished},
            )

    async def _claimed(self, claim: IdempotencyClaim | None) -> AcceptedGoal | None:
        found = None if claim is None else await self.instances.claimed_operation(claim)
        return None if found is None else AcceptedGoal(*found, replayed=True)
