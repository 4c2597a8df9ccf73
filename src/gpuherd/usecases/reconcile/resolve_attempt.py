"""Resolve: a create call got no clear answer, so look whether its machine exists before anything else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.observation import ObservedMachine, SettlingPolicy, is_proven_not_created
from gpuherd.domain.cloud.tag import machine_tag
from gpuherd.domain.instance import events
from gpuherd.domain.instance.attempt import Attempt, AttemptState
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.reconcile.bind_found import by_evidence
from gpuherd.usecases.reconcile.bind_machine import BindMachine


@dataclass(frozen=True)
class ResolveAttempt:
    """Adopts the machine of an unanswered create call, or gives the call up when its absence is proven."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    bind: BindMachine
    clock: Clock
    settling: SettlingPolicy

    async def __call__(
        self, leased: LeasedInstance, attempt: Attempt
    ) -> tuple[LeasedInstance, timedelta | None]:
        """Return the instance, and how long to wait before the next look if the outcome is still unknown."""
        if attempt.state is AttemptState.SENT:
            # A pass died between its intent and the answer: the call may have gone out.
            leased, attempt = await self._doubt(leased, attempt)
        if found := _tagged(leased, attempt):
            machine = found.machine
            new_event = NewEvent(
                events.MACHINE_FOUND,
                "found by its tag after the create call got no answer",
                {"attempt": attempt.n, "cloudInstanceId": machine.cloud_id},
            )
            bound = await self.bind(
                leased, attempt, machine.cloud_id, "found by its tag", new_event, made_at=machine.created_at
            )
            return bound, None
        if is_proven_not_created(attempt.sent_at, leased.lists, self.clock.now(), self.settling):
            return await self._abandon(leased, attempt), None
        return leased, self.settling.list_spacing

    async def _doubt(self, leased: LeasedInstance, attempt: Attempt) -> tuple[LeasedInstance, Attempt]:
        unsure = replace(
            attempt,
            state=AttemptState.UNKNOWN,
            error_code="INTERRUPTED",
            error="gpuherd was interrupted during the create call",
        )
        new_event = NewEvent(events.OUTCOME_UNKNOWN, unsure.error, {"attempt": attempt.n})
        instance = replace(
            leased.instance,
            reason="the create call was interrupted; looking for its machine",
            waiting_for=None,
        )
        leased = await self.instance_leases.save(
            leased, self.event_recorder.change(instance, new_event, attempt=unsure)
        )
        return leased, unsure

    async def _abandon(self, leased: LeasedInstance, attempt: Attempt) -> LeasedInstance:
        given_up = replace(attempt, state=AttemptState.ABANDONED, closed_at=self.clock.now())
        instance = replace(leased.instance, reason="the create call had no effect", waiting_for=None)
        return await self.instance_leases.save(leased, self.event_recorder.change(instance, attempt=given_up))


def _tagged(leased: LeasedInstance, attempt: Attempt) -> ObservedMachine | None:
    """Return the machine that carries exactly this attempt's tag; the likeliest, should there be several."""
    # guard: exact tag
    matches = [
        it
        for it in leased.observations
        if machine_tag(it.machine) == attempt.tag and it.machine.phase is not Phase.ABSENT
    ]
    return min(matches, key=by_evidence, default=None)
