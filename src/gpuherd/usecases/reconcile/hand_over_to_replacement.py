"""Follow a succession: in the passes of an instance, make its heir, hand over to it, or let it go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog

from gpuherd.domain.api_key import NO_LIMITS, SYSTEM_CALLER, Limits
from gpuherd.domain.cloud.machine import counted_on_until
from gpuherd.domain.errors import (
    BudgetExhausted,
    CloudError,
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
from gpuherd.domain.instance.offer_ranking import billing_modes, rank_offers, require_offers
from gpuherd.domain.instance.operation import Failure, OperationKind
from gpuherd.domain.instance.plan import time_to_ready
from gpuherd.domain.instance.replacement import (
    HANDOVER_RECHECK,
    SCARCE_STOCK,
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
from gpuherd.domain.instance.step_types import Observation
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import (
    Change,
    InstanceLeases,
    Instances,
    LeasedInstance,
)
from gpuherd.ports.job_port import Jobs
from gpuherd.ports.observation_port import Observations
from gpuherd.ports.telemetry_port import Meter, NullMeter
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.instances.replace_instance import (
    ACTOR,
    AUDIT_ACTION,
    NoticeLengths,
    make_replacement,
    removal_of,
    wake_ended,
)
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.services import Services

log = structlog.get_logger()


# So long after a limit or a budget said no it is asked again.
REFUSED_RETRY = timedelta(seconds=60)


def _unlimited(_: str) -> Limits:
    return NO_LIMITS


@dataclass(frozen=True, kw_only=True)
class FollowSuccession:
    """Decides and acts in the passes of a predecessor. It calls no cloud: heirs are instances like others."""

    instances: Instances
    instance_leases: InstanceLeases
    observations: Observations
    jobs: Jobs
    job_factory: JobFactory
    event_recorder: EventRecorder
    catalogue: CatalogueCache
    services: Services
    clock: Clock
    ids: Ids
    # How long after its notice a spot machine is usually lost.
    notices: NoticeLengths
    meter: Meter = field(default_factory=NullMeter)
    # What the owner of an instance may use.
    limits_of: Callable[[str], Limits] = field(default=_unlimited)

    async def decide(self, leased: LeasedInstance, observation: Observation) -> SuccessionStep | None:
        """Return what is to be done now for a handover; None for nothing."""
        it = leased.instance
        if not may_be_replaced(it):
            return None
        heir = await self._heir(it)
        known = lineage_of(it, heir)
        listed_since = None
        if it.goal is Goal.RUNNING and not was_taken_back(it):
            last = await self.observations.last_believable_list()
            listed_since = None if last is None else last.started_at
        old = predecessor_of(it, observation, listed_since, is_alone=await self._is_alone(it))
        lead, is_scarce = timedelta(0), False
        if old.is_notice_confirmed and it.reclaim is not None and known.heir is None:
            boot = time_to_ready(await self.instances.ready_times_s(it.product_name))
            usual = await self.notices.usual()
            old = replace(old, loss_expected_at=counted_on_until(it.reclaim, usual))
            lead, is_scarce = lead_time(boot, usual), await self._is_scarce(it)
        return succession_step(old, known, lead, self.clock.now(), is_scarce=is_scarce)

    async def apply(self, step: SuccessionStep, leased: LeasedInstance) -> tuple[LeasedInstance, timedelta]:
        """Take a step; return the instance after it, and how long to wait before the next look."""
        match step:
            case Succeed(why):
                return await self._succeed(leased, why)
            case Retire():
                return await self._retire(leased), timedelta(0)
            case CancelHeir(reason):
                return await self._cancel(leased, reason)
            case ForgetHeir():
                return await self._forget(leased), timedelta(0)
            case GiveUpReplacing():
                return await self._give_up(leased), timedelta(0)
            case LookAgain(at):
                return leased, at - self.clock.now()

    async def wake_predecessor(self, it: Instance) -> None:
        """Let a predecessor hear at once how its heir stands; without this it looks in half a minute."""
        if it.chain is None or it.chain.replaces is None:
            return
        old = await self._found(it.chain.replaces)
        if old is not None and old.status is not Status.DELETED and old.chain and old.chain.heir:
            await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(old)])

    async def _succeed(self, leased: LeasedInstance, why: Why) -> tuple[LeasedInstance, timedelta]:
        it = leased.instance
        change = await make_replacement(self.services, it, why, self.limits_of(it.owner))
        assert change.heir is not None, "an heir is made"
        heir = change.heir.instance
        # On the change of the old one, so that the lock of the audit log comes before all others.
        record = SYSTEM_CALLER.audit_record(AUDIT_ACTION, it.id, self.clock.now(), after=heir.id)
        try:
            leased = await self.instance_leases.save(leased, replace(change, audit_record=record))
        except (QuotaExceeded, BudgetExhausted) as refusal:
            return await self._refused(leased, refusal), REFUSED_RETRY
        log.info("instance.replacing", instance_id=it.id, heir=heir.id, why=why.value)
        return leased, timedelta(0)

    async def _refused(
        self, leased: LeasedInstance, refusal: QuotaExceeded | BudgetExhausted
    ) -> LeasedInstance:
        """Tell once that an heir cannot be made, and why."""
        it = leased.instance
        chain = it.chain or Chain(it.id)
        if chain.refused:
            return leased
        told = replace(it, chain=replace(chain, refused=True))
        new_event = NewEvent(
            instance_event.REPLACEMENT_REFUSED,
            refusal.message,
            {"code": refusal.code, **dict(refusal.details)},
        )
        saved = await self._save(leased, told, new_event)
        self.meter.replacement(ReplacementOutcome.REFUSED.value)
        return saved

    async def _retire(self, leased: LeasedInstance) -> LeasedInstance:
        """Delete the old one, as if a person had asked: its heir can be used."""
        it = leased.instance
        chain, heir = _heir_in(it)
        reason = f"{heir.id} has taken over"
        now = self.clock.now()
        after = goal_rules.delete(it, self.ids.new("op_"), now)
        taken_over = replace(chain, heir=replace(heir, has_taken_over=True))
        after = replace(after, chain=taken_over, reason=f"asked to delete: {reason}")
        cause = instance_event.Cause(instance_event.CauseCode.SUCCESSION, reason)
        new_event = NewEvent(
            instance_event.GOAL_EVENTS[after.status],
            after.reason,
            {},
            it.status.value,
            after.status.value,
            cause,
        )
        change = self.event_recorder.change(after, new_event, actor=ACTOR)
        operation = it.operation
        if operation is not None and operation.is_running:
            is_replace = operation.kind is OperationKind.REPLACE
            ended = operation.succeeded(now) if is_replace else operation.superseded(now)
            change = replace(change, operations=(ended, *change.operations))
        young = await self._heir(it)
        saved = await self.instance_leases.save(leased, change)
        usable_since = now if young is None or young.ready_at is None else young.ready_at
        outcome, gap_s = outcome_of_handover(it, usable_since)
        self.meter.replacement(outcome.value, gap_s)
        if it.reclaim is not None and outcome is ReplacementOutcome.WARM:
            await self.notices.note_unharmed()
        log.info("instance.retired", instance_id=it.id, heir=heir.id)
        return saved

    async def _cancel(self, leased: LeasedInstance, reason: str) -> tuple[LeasedInstance, timedelta]:
        """Remove the heir. It is remembered until it is proven to be gone: only then there may be another."""
        it, heir = leased.instance, await self._heir(leased.instance)
        along = None if heir is None else removal_of(self.services, heir, reason)
        if along is None:
            return leased, HANDOVER_RECHECK
        change = Change(it, also=(along,))
        leased = await self.instance_leases.save(leased, change)
        await wake_ended(self.services, change)
        return leased, timedelta(0)

    async def _forget(self, leased: LeasedInstance) -> LeasedInstance:
        it, heir = leased.instance, await self._heir(leased.instance)
        chain, known = _heir_in(it)
        error = None if heir is None else heir.last_error
        after = replace(it, chain=chain.without_heir(None if error is None else self.clock.now()))
        change = self.event_recorder.change(after)
        operation = it.operation
        if operation is not None and operation.is_running and operation.kind is OperationKind.REPLACE:
            failure = error or Failure("REPLACEMENT_FAILED", f"{known.id} is gone", self.clock.now())
            ended = operation.failed(replace(failure, at=self.clock.now()))
            change = replace(self.event_recorder.change(replace(after, operation=ended)), operations=(ended,))
        saved = await self.instance_leases.save(leased, change)
        outcome = ReplacementOutcome.CANCELLED if error is None else ReplacementOutcome.FAILED
        self.meter.replacement(outcome.value)
        return saved

    async def _give_up(self, leased: LeasedInstance) -> LeasedInstance:
        it = leased.instance
        chain = it.chain or Chain(it.id)
        reason = f"it was replaced {it.replacement.max_replacements} times in 24 h, and is not any more"
        given_up = replace(it, chain=replace(chain, gave_up=True))
        details = {"maxReplacements": it.replacement.max_replacements}
        saved = await self._save(
            leased, given_up, NewEvent(instance_event.REPLACEMENT_GAVE_UP, reason, details)
        )
        self.meter.replacement(ReplacementOutcome.GAVE_UP.value)
        return saved

    async def _is_alone(self, it: Instance) -> bool:
        """Return True if nobody else of its lineage can have a machine, but its own heir."""
        chain = it.chain
        if chain is None:
            return True
        others = [other for other in await self.instances.of_lineage(chain.lineage) if other.id != it.id]
        heir_id = None if chain.heir is None else chain.heir.id
        return all(other.status is Status.DELETED for other in others if other.id != heir_id)

    async def _is_scarce(self, it: Instance) -> bool:
        """Return True if the catalogue shows hardly anything that would do."""
        try:
            offers = await self.catalogue.offers_of(billing_modes(it.wish))
            ranking = rank_offers(require_offers(offers, it.wish), it.wish)
        except (CloudError, NotFound):
            return False
        return all(offer.stock in SCARCE_STOCK for offer in ranking.accepted)

    async def _heir(self, it: Instance) -> Instance | None:
        return None if it.chain is None or it.chain.heir is None else await self._found(it.chain.heir.id)

    async def _found(self, instance_id: str) -> Instance | None:
        try:
            return await self.instances.get(instance_id)
        except NotFound:
            return None

    async def _save(
        self, leased: LeasedInstance, instance: Instance, *new_events: NewEvent
    ) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance, *new_events))


def _heir_in(it: Instance) -> tuple[Chain, Heir]:
    assert it.chain is not None and it.chain.heir is not None, "only a handover has these steps"
    return it.chain, it.chain.heir
