"""One reconcile pass over an instance under its lease.

Observe, decide, act, record, until there is nothing to do but wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ObservedMachine, SettlingPolicy, is_proven_absent
from gpuherd.domain.errors import (
    CloudUnavailable,
    GpuherdError,
    KeyRefused,
    MachineGone,
    MachineHeld,
    NotFound,
)
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import (
    Goal,
    Instance,
    Waiting,
    WaitingFor,
)
from gpuherd.domain.instance.instance_state import (
    instance_ending,
    is_machine_of_other_call,
    wait_at_most,
    was_machine_proven_gone,
    was_made_later,
)
from gpuherd.domain.instance.lease import LeaseTerm
from gpuherd.domain.instance.next_step import next_step
from gpuherd.domain.instance.rent_attempt import machine_tag
from gpuherd.domain.instance.replacement import PROOF_RECHECK
from gpuherd.domain.instance.scheduled_end import End, Ending
from gpuherd.domain.instance.step_types import (
    Delete,
    Observation,
    Settled,
    Stop,
    Wait,
)
from gpuherd.domain.job import (
    Done,
    Job,
    Outcome,
    Snooze,
)
from gpuherd.domain.money.budget import budget_end
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.instance_port import Change, InstanceLeases, LeasedInstance
from gpuherd.ports.telemetry_port import NullTracer, Tracer
from gpuherd.usecases.cloud.guard_creates import AccountGuard
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.instances.tell_timeline import wait_record
from gpuherd.usecases.money.judge_budgets import BudgetCache
from gpuherd.usecases.reconcile.adopt_machine import VerifyTag
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.reconcile.hand_over_to_replacement import FollowSuccession
from gpuherd.usecases.reconcile.reconcile_context import RequeueAfter
from gpuherd.usecases.reconcile.record_status import ApplyStep
from gpuherd.usecases.service.make_jobs import JobFactory, reconcile_job_kind
from gpuherd.usecases.service.run_jobs import bind_correlation_id

# More steps than any instance needs in a row; a bound, so that a mistake cannot spin.
STEPS_MAX = 50


LEASE_BUSY_RETRY = timedelta(seconds=1)
ACCOUNT_RECHECK = timedelta(seconds=2)
CLOUD_UNAVAILABLE_RETRY = timedelta(seconds=5)
MACHINE_HELD_RETRY = timedelta(seconds=5)


@dataclass(frozen=True)
class _Move:
    """A lease whose end was moved: as it was written then, by how much in all, and where the clock stood."""

    term: LeaseTerm
    by: timedelta
    total: timedelta

    def is_of(self, term: LeaseTerm) -> bool:
        """Return True if nobody has agreed on another end since."""
        return (term.ends_at, term.set_at) == (self.term.ends_at, self.term.set_at)


@dataclass(frozen=True, kw_only=True)
class AdvanceInstance:
    """The handler of every job that moves an instance."""

    instance_leases: InstanceLeases
    cloud: Cloud
    job_factory: JobFactory
    apply_step: ApplyStep
    verify_tag: VerifyTag
    clock: Clock
    settling: SettlingPolicy
    account: AccountGuard
    clock_steps: ClockStepDetector
    # What costs money costs it while the host sleeps, too.
    lease_clock_steps: ClockStepDetector
    # Since when anybody could have told us that an instance is in use.
    up_since: datetime
    budgets: BudgetCache
    line: CapacityLine
    succession: FollowSuccession
    tracer: Tracer = field(default_factory=NullTracer)
    # Whose stop or removal this process has asked for again.
    _asked_again: set[str] = field(default_factory=set, init=False)
    # Whose end this process has moved because the clock was set ahead.
    _moves: dict[str, _Move] = field(default_factory=dict, init=False)

    async def watch_clock(self) -> None:
        """Notice each step of the clock by itself: two that are seen as one would move the ends wrongly."""
        self.lease_clock_steps.detect_step()

    async def __call__(self, job: Job) -> Outcome:
        try:
            leased = await self.instance_leases.acquire(job.instance_id or "", job.id)
        except NotFound:
            # The store has lost it after the job was taken; else the job would look for it for ever.
            return Done()
        if leased is None:
            return Snooze(LEASE_BUSY_RETRY, "another turn is under way")
        bind_correlation_id(leased.instance)
        try:
            return await self._advance(leased, job)
        except MachineHeld as held:
            # Whoever has the id finds out by the same list that its machine is gone.
            return Snooze(MACHINE_HELD_RETRY, held.message)
        finally:
            await self.instance_leases.release(leased)

    async def _advance(self, leased: LeasedInstance, job: Job) -> Outcome:
        # guard: another key is confirmed before anything is done
        # guard: another key is confirmed before anything is done, in a storm
        if not await self.account.is_confirmed():
            # Whatever the cloud says now may be said of somebody else's account.
            return await self._wait(leased, job, self._until_confirmed())
        if (listed := _observed_machine(leased)) is not None:
            leased = await self.verify_tag(leased, listed.machine)
        for _ in range(STEPS_MAX):
            try:
                leased = await self._with_adjusted_lease(leased)
                over = await self._ending(leased.instance)
                observation = await self._observe(leased, is_over=over is not None)
                now = self.clock.now()
                pause = None
                if over is None and (handover := await self.succession.decide(leased, observation)):
                    leased, pause = await self.succession.apply(handover, leased)
                    if not pause:
                        continue
                known = self._without_lost_request(leased.instance)
                step = next_step(
                    self._with_adjusted_deadline(known), leased.open_attempt, observation, now, over
                )
                if isinstance(step, Wait):
                    return await self._wait(leased, job, RequeueAfter(min(step.delay, pause or step.delay)))
                if isinstance(step, Settled) and pause is not None and pause <= PROOF_RECHECK:
                    return await self._wait(leased, job, RequeueAfter(pause))
                if isinstance(step, Settled):
                    # The cloud need not be asked more often because of a handover that is to come.
                    return await self._settle(leased, job, None if pause is None else now + pause)
                if known is not leased.instance and isinstance(step, (Stop, Delete)):
                    # guard: a lost stop is asked for once more only
                    self._asked_again.add(known.id)
                self.tracer.step(type(step).__name__)
                leased, requeue = await self.apply_step(step, leased)
            except (CloudUnavailable, KeyRefused) as error:
                leased = await self.instance_leases.refresh(leased)
                requeue = RequeueAfter(
                    _cloud_retry_delay(error),
                    f"waiting for the cloud: {error.message}",
                    Waiting(WaitingFor.CLOUD, error.message, self.clock.now()),
                    wait_record(WaitingFor.CLOUD, error),
                )
            if requeue is not None:
                return await self._wait(leased, job, requeue)
        raise GpuherdError(f"instance {leased.instance.id} took {STEPS_MAX} steps and is not done")

    async def _ending(self, it: Instance) -> Ending | None:
        """Return what is due of the ends of an instance: by a budget first, then by its own terms."""
        now = self.clock.now()
        by_budget = await self._budget_end(it, now)
        return by_budget or instance_ending(self._by_steady_clock(it), now, self._up_since())

    async def _budget_end(self, it: Instance, now: datetime) -> End | None:
        """Return how a budget ends it. Before that is done, it is asked whether it is still so."""
        if budget_end(it, self.budgets.current(), now) is None:
            return None
        await self.budgets.refresh()
        return budget_end(it, self.budgets.current(), now)

    def _until_confirmed(self) -> RequeueAfter:
        if not self.account.in_doubt:
            # Just started: the first list tells.
            return RequeueAfter(ACCOUNT_RECHECK)
        words = "it is not known yet whether the key is of the account that our machines are on"
        return RequeueAfter(
            ACCOUNT_RECHECK,
            f"waiting for the cloud: {words}",
            Waiting(WaitingFor.CLOUD, words, self.clock.now()),
            wait_record(WaitingFor.CLOUD),
        )

    def _with_adjusted_deadline(self, it: Instance) -> Instance:
        """A wall clock that was set ahead makes nobody late."""
        deadline = self.clock_steps.deadline_of(it)
        return it if deadline == it.deadline else replace(it, deadline=deadline)

    def _without_lost_request(self, it: Instance) -> Instance:
        """A stop or removal that an earlier process has written down may never have gone out: ask again."""
        operation, asked_at = it.operation, it.asked_at
        is_going = it.goal is not Goal.RUNNING or it.releasing
        if not is_going or asked_at is None or asked_at > self.up_since or it.id in self._asked_again:
            return it
        # What was asked before the present operation was something else, and may still take effect.
        if operation is not None and not it.releasing and asked_at < operation.requested_at:
            return it
        # guard: a stop that was only written down goes out after a kill
        return replace(it, asked_at=None)

    async def _with_adjusted_lease(self, leased: LeasedInstance) -> LeasedInstance:
        """A wall clock that was set ahead ends no lease earlier, nor does the next process; one that is set
        right again ends none later."""
        it = leased.instance
        if it.lease_term is None or it.lease_term.ended:
            return leased
        ahead = self.lease_clock_steps.ahead_since(it.lease_term.set_at)
        step = ahead or -self._set_back(it.id, it.lease_term)
        # guard: a clock that is set ahead ends no lease
        moved = it.lease_term.moved(step, self.clock.now())
        if moved is it.lease_term:
            return leased
        self._note_moved(it.id, it.lease_term, moved)
        return await self.instance_leases.save(leased, Change(replace(it, lease_term=moved)))

    def _set_back(self, instance_id: str, term: LeaseTerm) -> timedelta:
        """Return how much of what this process has moved an end by was taken back by the clock since.

        Never more than that, nor for what another process has moved: of the steps in between nobody knows.
        """
        move = self._moves.get(instance_id)
        # guard: an end that was agreed on anew is not moved back
        if move is None or not move.is_of(term):
            return timedelta(0)
        # guard: a clock that is set back takes no more of a lease than it has moved
        return max(timedelta(0), min(move.by, move.total - self.lease_clock_steps.total()))

    def _note_moved(self, instance_id: str, before: LeaseTerm, after: LeaseTerm) -> None:
        known = self._moves.pop(instance_id, None)
        earlier = known.by if known is not None and known.is_of(before) else timedelta(0)
        by = earlier + (after.ends_at - before.ends_at)
        if by > timedelta(0):
            self._moves[instance_id] = _Move(after, by, self.lease_clock_steps.total())

    def _by_steady_clock(self, it: Instance) -> Instance:
        """Return it with its moments moved along with the clock: nobody was silent, or stopped, for an hour
        that the wall clock has skipped."""
        terms = it.terms
        if terms.silence is None and terms.idle is None and terms.delete_stopped_s is None:
            return it
        # guard: a clock that is set ahead deletes nothing that is stopped
        # guard: a clock that is set ahead is no silence
        return replace(
            it,
            ready_at=self._moved(it.ready_at),
            usable_at=self._moved(it.usable_at),
            used_at=self._moved(it.used_at),
            stopped_at=self._moved(it.stopped_at),
        )

    def _moved(self, moment: datetime | None) -> datetime | None:
        return None if moment is None else moment + self.lease_clock_steps.ahead_since(moment)

    def _up_since(self) -> datetime:
        return self.up_since + self.lease_clock_steps.ahead_since(self.up_since)

    async def _observe(self, leased: LeasedInstance, *, is_over: bool) -> Observation:
        """Return what the cloud shows of the machine. That it is gone takes two: lists, and a question.

        That it is over is written down although the cloud cannot be asked: for what is to be stopped, later.
        """
        it = leased.instance
        listed = _observed_machine(leased)
        if it.cloud_id is None:
            return Observation()
        passed_on = listed is None and _is_id_passed_on(leased)
        if not passed_on and not is_proven_absent(listed, it.asked_at, leased.lists, self.settling):
            return _listed_observation(listed)
        try:
            machine = await self.cloud.get_machine(it.cloud_id)
        except MachineGone:
            return Observation(listed.machine if listed else None, absent=True)
        except (CloudUnavailable, KeyRefused):
            # guard: an end is written down although the cloud cannot be asked
            if not is_over:
                raise
            return _listed_observation(listed)
        # What has our id and is of another call proves that ours is gone.
        return Observation(absent=True) if _is_passed_on(machine, leased) else Observation(machine)

    async def _wait(self, leased: LeasedInstance, job: Job, requeue: RequeueAfter) -> Outcome:
        """Answer that there is nothing to do for a while; under another name if the activity has changed."""
        if _begins_wait(leased.instance, requeue):
            leased = await self._record(leased, requeue)
        requeue = replace(requeue, delay=self._until_due(leased.instance, requeue.delay))
        instance = _as_waiting(leased.instance, requeue)
        if instance.line_since is not None:
            self.line.note(instance)
        if reconcile_job_kind(instance) != job.kind:
            # Due when this one would have been: at once, it would only find out that there is nothing to do.
            activity = replace(self.job_factory.reconcile_job(instance), delay=requeue.delay)
            change = Change(instance, finished_job=job.id, jobs=(activity,), releases_lease=True)
            await self.instance_leases.save(leased, change)
            return Done(written=True)
        if instance != leased.instance:
            await self.instance_leases.save(leased, Change(instance, releases_lease=True))
        return Snooze(requeue.delay, instance.reason)

    def _until_due(self, it: Instance, delay: timedelta) -> timedelta:
        by_steady_clock = self._with_adjusted_deadline(self._by_steady_clock(replace(it, look_at=None)))
        return wait_at_most(by_steady_clock, delay, self.clock.now())

    async def _record(self, leased: LeasedInstance, requeue: RequeueAfter) -> LeasedInstance:
        """Put on record that a wait begins; how often it is looked again meanwhile is not worth it."""
        waiting = _as_waiting(leased.instance, requeue)
        cause = None if requeue.waiting is None else instance_event.cause_of_wait(requeue.waiting)
        new_event = NewEvent(instance_event.WAITING, requeue.reason, dict(requeue.record or {}), cause=cause)
        return await self.instance_leases.save(
            leased, self.apply_step.event_recorder.change(waiting, new_event)
        )

    async def _settle(self, leased: LeasedInstance, job: Job, look_at: datetime | None) -> Outcome:
        resting = replace(leased.instance, settled=True, look_at=look_at)
        await self.instance_leases.save(leased, Change(resting, finished_job=job.id, releases_lease=True))
        await self.succession.wake_predecessor(resting)
        return Done(written=True)


def _observed_machine(leased: LeasedInstance) -> ObservedMachine | None:
    """Return what the lists say of the instance's own machine."""
    listed = _listed_under_our_id(leased)
    return None if listed is None or _is_of_other_machine(listed, leased) else listed


def _listed_under_our_id(leased: LeasedInstance) -> ObservedMachine | None:
    return next((it for it in leased.observations if it.machine.cloud_id == leased.instance.cloud_id), None)


def _is_id_passed_on(leased: LeasedInstance) -> bool:
    """Return True if the lists show that the cloud has given the id of our machine to a later one of ours."""
    listed, bound = _listed_under_our_id(leased), leased.bound_attempt
    if listed is None or bound is None or listed.missing_since is not None:
        return False
    # What had the id before ours is not what got it afterwards. A clock that was set back makes everything
    # seem seen before; then the cloud's own stamps tell.
    is_later = was_made_later(listed.machine, leased.instance, bound)
    # guard: after a step of the clock the cloud's stamps tell who got an id later
    return (is_later or not _was_seen_before_ours(listed, leased)) and _is_passed_on(listed.machine, leased)


def _is_passed_on(machine: Machine, leased: LeasedInstance) -> bool:
    bound = leased.bound_attempt
    return bound is not None and is_machine_of_other_call(machine, leased.instance, bound)


def _is_of_other_machine(listed: ObservedMachine, leased: LeasedInstance) -> bool:
    """Return True if the lists show another machine that has, or had, the id of ours."""
    it, shown = leased.instance, machine_tag(listed.machine)
    bound = leased.bound_attempt
    if bound is None or shown is None or bound.tag in (shown, listed.machine.env_tag):
        return False
    # Seen before ours was bound; or ours is gone, and this one came later. Else it was only renamed.
    # guard: an instance does not delete the machine that has got its id
    is_later = is_machine_of_other_call(listed.machine, it, bound)
    # guard: a vanished instance does not come back with another machine of its id
    return _was_seen_before_ours(listed, leased) or is_later or was_machine_proven_gone(it)


def _was_seen_before_ours(listed: ObservedMachine, leased: LeasedInstance) -> bool:
    """Return True if nothing new was seen under the id of our machine since we have it."""
    bound = leased.bound_attempt
    # guard: what was seen of a gone machine proves nothing about the next one of its id
    return bound is not None and bound.closed_at is not None and listed.changed_at <= bound.closed_at


def _listed_observation(listed: ObservedMachine | None) -> Observation:
    if listed is None:
        return Observation()
    is_listed = listed.missing_since is None
    return Observation(listed.machine, changed_at=listed.changed_at, is_listed=is_listed)


def _begins_wait(it: Instance, requeue: RequeueAfter) -> bool:
    """Return True if this is the beginning of a wait that goes on record."""
    if requeue.waiting is None or requeue.record is None:
        return False
    return it.waiting_for is None or it.waiting_for.what is not requeue.waiting.what


def _as_waiting(it: Instance, requeue: RequeueAfter) -> Instance:
    """Return the instance with why nothing is done for a while, where that is worth telling."""
    if not requeue.reason:
        return it
    if requeue.waiting is None:
        return replace(it, reason=requeue.reason, waiting_for=None)
    waiting, line_since = requeue.waiting.continuing(it.waiting_for), it.line_since
    if waiting.what is WaitingFor.CAPACITY and line_since is None:
        line_since = waiting.since or requeue.waiting.since
    return replace(it, reason=requeue.reason, waiting_for=waiting, line_since=line_since)


def _cloud_retry_delay(error: CloudUnavailable | KeyRefused) -> timedelta:
    asked_s = error.retry_after_s if isinstance(error, CloudUnavailable) else None
    return timedelta(seconds=asked_s) if asked_s else CLOUD_UNAVAILABLE_RETRY
