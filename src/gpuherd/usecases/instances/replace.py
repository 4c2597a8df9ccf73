"""Replace by hand: let another instance take over from one that runs, or that was lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.access.caller import SYSTEM_CALLER, Caller
from gpuherd.domain.errors import Conflict, StaleWrite
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.lifecycle import goals
from gpuherd.domain.instance.lifecycle.handover import awaits_handover, is_replaceable
from gpuherd.domain.instance.operation import OperationKind, requested
from gpuherd.domain.succession.chain import Why
from gpuherd.ports.access import IdempotencyClaim
from gpuherd.ports.instances import Instances
from gpuherd.ports.jobs import Jobs
from gpuherd.usecases.instances.change_goal import WRITE_TRIES_MAX, AcceptedGoal
from gpuherd.usecases.instances.find import FindInstance
from gpuherd.usecases.jobs.kinds import JobFactory
from gpuherd.usecases.succession.make_heir import AUDIT_ACTION, MakeHeir


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
        if (put_aside := goals.superseded(before, now)) is not None:
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
