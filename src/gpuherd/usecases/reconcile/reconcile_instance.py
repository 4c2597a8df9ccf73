"""Reconcile one instance under its lease: observe, decide, act, record, until there is only waiting left."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gpuherd.domain.cloud.observation import ObservedMachine, is_proven_absent
from gpuherd.domain.errors import (
    CloudUnavailable,
    GpuherdError,
    KeyRefused,
    MachineGone,
    MachineHeld,
    NotFound,
)
from gpuherd.domain.instance import instance_event, step_types
from gpuherd.domain.instance.instance import Instance, Status, Waiting, WaitingFor
from gpuherd.domain.instance.instance_state import instance_ending, wait_at_most
from gpuherd.domain.instance.next_step import next_step
from gpuherd.domain.instance.replacement import PROOF_RECHECK
from gpuherd.domain.instance.scheduled_end import End, Ending, WarnData, WarnLease
from gpuherd.domain.instance.step_types import Observation, Step
from gpuherd.domain.job import (
    Done,
    Job,
    Outcome,
    Snooze,
)
from gpuherd.domain.money.budget import budget_end
from gpuherd.ports.instance_port import Change, LeasedInstance
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.instances.tell_timeline import wait_record
from gpuherd.usecases.reconcile.adopt_machine import adopt_own_machine, resolve_attempt
from gpuherd.usecases.reconcile.command_machine import (
    abandon_restart,
    abandon_start,
    confirm_restart,
    look_for_restart,
    request_delete,
    request_stop,
    restart_machine,
    start_machine,
)
from gpuherd.usecases.reconcile.end_instance import (
    announce_reclaim,
    end_instance,
    follow_reclaim,
    withdraw_reclaim,
)
from gpuherd.usecases.reconcile.hand_over_to_replacement import follow_replacement, wake_original
from gpuherd.usecases.reconcile.reconcile_context import InstancePass, Pause, Rest
from gpuherd.usecases.reconcile.record_status import (
    read_details,
    record_failure,
    record_release,
    record_running,
    record_status,
    request_health_round,
)
from gpuherd.usecases.reconcile.rent_machine import rent_machine, wait_for_lost_create
from gpuherd.usecases.reconcile.verify_machine import (
    is_id_passed_on,
    is_of_other_call,
    own_listed_machine,
    verify_tag,
)
from gpuherd.usecases.service.make_jobs import reconcile_job_kind
from gpuherd.usecases.service.run_jobs import bind_correlation_id
from gpuherd.usecases.services import Services

# More steps than any instance needs in a row. The limit stops a mistake that would loop for ever.
STEPS_MAX = 50


LEASE_BUSY_RETRY = timedelta(seconds=1)
ACCOUNT_RECHECK = timedelta(seconds=2)
CLOUD_UNAVAILABLE_RETRY = timedelta(seconds=5)
MACHINE_HELD_RETRY = timedelta(seconds=5)


async def reconcile_instance(services: Services, job: Job) -> Outcome:
    """Run one pass: lock, observe, decide, act, save. Safe to repeat, late, and in parallel."""
    leases = services.stores.instance_leases
    try:
        locked = await leases.acquire(job.instance_id or "", job.id)
    except NotFound:
        # The store has lost it after the job was taken; else the job would look for it for ever.
        return Done()
    if locked is None:
        return Snooze(LEASE_BUSY_RETRY, "another pass is under way")
    bind_correlation_id(locked.instance)
    this_pass = InstancePass(services, job, locked)
    try:
        return await _run_pass(this_pass)
    except MachineHeld as held:
        # The instance that holds the id learns from the same list that its machine is gone.
        return Snooze(MACHINE_HELD_RETRY, held.message)
    finally:
        await leases.release(this_pass.locked)


async def _run_pass(this_pass: InstancePass) -> Outcome:
    # guard: another key is confirmed before anything is done
    # guard: another key is confirmed before anything is done, in a storm
    if not await this_pass.services.account.is_confirmed():
        # What the cloud says now may be about another account than ours.
        return await _pause_pass(this_pass, _until_confirmed(this_pass.services))
    if (listed := own_listed_machine(this_pass.locked)) is not None:
        await verify_tag(this_pass, listed.machine)
    for _ in range(STEPS_MAX):
        try:
            result = await take_step(this_pass)
        except (CloudUnavailable, KeyRefused) as error:
            # Nothing has changed in the cloud.
            await this_pass.reread()
            result = _wait_for_cloud(this_pass.services, error)
        if isinstance(result, Rest):
            return await _settle_pass(this_pass, result)
        if result is not None:
            return await _pause_pass(this_pass, result)
    raise GpuherdError(f"instance {this_pass.instance.id} took {STEPS_MAX} steps and is not done")


def _until_confirmed(services: Services) -> Pause:
    if not services.account.in_doubt:
        # Just started: the first list will show it.
        return Pause(ACCOUNT_RECHECK)
    reason = "it is not known yet whether the key is of the account that our machines are on"
    return Pause(
        ACCOUNT_RECHECK,
        f"waiting for the cloud: {reason}",
        Waiting(WaitingFor.CLOUD, reason, services.clock.now()),
        wait_record(WaitingFor.CLOUD),
    )


def _wait_for_cloud(services: Services, error: CloudUnavailable | KeyRefused) -> Pause:
    requested_s = error.retry_after_s if isinstance(error, CloudUnavailable) else None
    return Pause(
        timedelta(seconds=requested_s) if requested_s else CLOUD_UNAVAILABLE_RETRY,
        f"waiting for the cloud: {error.message}",
        Waiting(WaitingFor.CLOUD, error.message, services.clock.now()),
        wait_record(WaitingFor.CLOUD, error),
    )


async def take_step(this_pass: InstancePass) -> Pause | Rest | None:
    """Take the next step. Return how the pass ends, or None if another step follows.

    `CloudUnavailable` or `KeyRefused` from here: nothing has changed in the cloud.
    """
    services = this_pass.services
    adjusted = services.clock_adjustments.with_lease(this_pass.instance)
    if adjusted is not this_pass.instance:
        await this_pass.write(Change(adjusted))
    due = await _due_ending(services, this_pass.instance)
    this_pass.observation = await _observe(this_pass, must_answer=due is None)
    now, handover = services.clock.now(), None
    if due is None:
        handover = await follow_replacement(this_pass)
        if handover == timedelta(0):
            return None
    known = services.repeated_requests.without_lost_request(this_pass.instance)
    step = next_step(
        services.clock_adjustments.with_deadline(known),
        this_pass.locked.open_attempt,
        this_pass.observation,
        now,
        due,
    )
    match step:
        case step_types.Wait(delay):
            return Pause(min(delay, handover or delay))
        case step_types.Settled() if handover is not None and handover <= PROOF_RECHECK:
            return Pause(handover)
        case step_types.Settled():
            # A handover that is to come is no reason to ask the cloud more often.
            return Rest(None if handover is None else now + handover)
        case step_types.Stop() | step_types.Delete() if known is not this_pass.instance:
            # guard: a lost stop is asked for once more only
            services.repeated_requests.note(known.id)
    services.tracer.step(type(step).__name__)
    return await _carry_out(this_pass, step)


async def _due_ending(services: Services, instance: Instance) -> Ending | None:
    """Return the end that is due: of a budget first, then of the instance's own terms."""
    now, adjustments = services.clock.now(), services.clock_adjustments
    by_budget = await _budget_end(services, instance, now)
    return by_budget or instance_ending(adjustments.with_times_of_use(instance), now, adjustments.up_since())


async def _budget_end(services: Services, instance: Instance, now: datetime) -> End | None:
    """Return how a budget ends the instance. Before that, read the budgets again."""
    budgets = services.budget_cache
    if budget_end(instance, budgets.current(), now) is None:
        return None
    await budgets.refresh()
    return budget_end(instance, budgets.current(), now)


async def _observe(this_pass: InstancePass, *, must_answer: bool) -> Observation:
    """Return what the cloud shows of the machine. Lists and a question together prove that it is gone.

    An end that is due is recorded although the cloud cannot answer. Then its stop follows later.
    """
    services, locked, instance = this_pass.services, this_pass.locked, this_pass.instance
    listed = own_listed_machine(locked)
    if instance.cloud_id is None:
        return Observation()
    passed_on = listed is None and is_id_passed_on(locked)
    settling = services.rules.settling
    if not passed_on and not is_proven_absent(listed, instance.asked_at, locked.lists, settling):
        return _listed_observation(listed)
    try:
        machine = await services.cloud.get_machine(instance.cloud_id)
    except MachineGone:
        return Observation(listed.machine if listed else None, absent=True)
    except (CloudUnavailable, KeyRefused):
        # guard: an end is written down although the cloud cannot be asked
        if must_answer:
            raise
        return _listed_observation(listed)
    # If another call's machine has our id, ours is gone.
    return Observation(absent=True) if is_of_other_call(machine, locked) else Observation(machine)


def _listed_observation(listed: ObservedMachine | None) -> Observation:
    if listed is None:
        return Observation()
    is_listed = listed.missing_since is None
    return Observation(listed.machine, changed_at=listed.changed_at, is_listed=is_listed)


async def _carry_out(this_pass: InstancePass, step: Step) -> Pause | None:
    """Do in the cloud and in the store what a step means."""
    # guard: an instance that ends after a loss of the store takes its machine with it
    if _ends_without_machine(step, this_pass.locked):
        # The store may have lost the call that made a machine. Then no instance would own that machine.
        await this_pass.reread()
        if await adopt_own_machine(this_pass):
            return None
        if (pause := await wait_for_lost_create(this_pass)) is not None:
            return pause
    match step:
        case step_types.Resolve():
            return await resolve_attempt(this_pass)
        case step_types.Rent():
            return await rent_machine(this_pass)
        case step_types.ReadDetails():
            return await read_details(this_pass)
        case step_types.RunHealthCheck():
            return await request_health_round(this_pass)
        case step_types.Start():
            return await start_machine(this_pass)
        case step_types.Restart():
            return await restart_machine(this_pass)
        case step_types.LookForRestart():
            return await look_for_restart(this_pass)
        case step_types.Stop():
            return await request_stop(this_pass)
        case step_types.Delete():
            return await request_delete(this_pass)
        case _:
            await _record(this_pass, step)
            return None


async def _record(this_pass: InstancePass, step: Step) -> None:
    """Carry out a step that changes nothing in the cloud."""
    match step:
        case step_types.UseListedDetails(machine, since):
            # Its tag was verified when the pass began.
            await record_running(this_pass, machine, since)
        case step_types.Become():
            await record_status(this_pass, step)
        case step_types.AnnounceReclaim():
            await announce_reclaim(this_pass)
        case step_types.FollowReclaim(reclaim_at):
            await follow_reclaim(this_pass, reclaim_at)
        case step_types.WithdrawReclaim():
            await withdraw_reclaim(this_pass)
        case End() | WarnLease() | WarnData():
            await end_instance(this_pass, step)
        case step_types.Fail(code, reason):
            await record_failure(this_pass, code, reason)
        case step_types.AbandonStart(code, reason):
            await abandon_start(this_pass, code, reason)
        case step_types.ConfirmRestart():
            await confirm_restart(this_pass)
        case step_types.AbandonRestart(code, reason):
            await abandon_restart(this_pass, code, reason)
        case step_types.Released():
            await record_release(this_pass)


def _ends_without_machine(step: Step, locked: LeasedInstance) -> bool:
    """Return True if an instance ends that has never had a machine, as far as is known."""
    ends = isinstance(step, step_types.Fail) or step == step_types.Become(Status.DELETED)
    # guard: an instance that has had its machine takes no other one with it
    return ends and locked.instance.last_cloud_id is None and locked.open_attempt is None


async def _pause_pass(this_pass: InstancePass, pause: Pause) -> Outcome:
    """End the pass for a while. The job gets another kind if the activity of the instance has changed."""
    services, job = this_pass.services, this_pass.job
    if _begins_wait(this_pass.instance, pause):
        await _record_wait(this_pass, pause)
    delay = _until_due(services, this_pass.instance, pause.delay)
    instance = _as_waiting(this_pass.instance, pause)
    if instance.line_since is not None:
        services.capacity_line.note(instance)
    if reconcile_job_kind(instance) != job.kind:
        # Due when this job would have been: at once, it would only find out that there is nothing to do.
        next_job = replace(services.job_factory.reconcile_job(instance), delay=delay)
        await this_pass.write(Change(instance, finished_job=job.id, jobs=(next_job,), releases_lease=True))
        return Done(written=True)
    if instance != this_pass.instance:
        await this_pass.write(Change(instance, releases_lease=True))
    return Snooze(delay, instance.reason)


def _begins_wait(instance: Instance, pause: Pause) -> bool:
    """Return True if this pause begins a wait that goes on record."""
    if pause.waiting is None or pause.record is None:
        return False
    return instance.waiting_for is None or instance.waiting_for.what is not pause.waiting.what


async def _record_wait(this_pass: InstancePass, pause: Pause) -> None:
    """Put on record that a wait begins. The passes in between are not worth a record."""
    waiting = _as_waiting(this_pass.instance, pause)
    cause = None if pause.waiting is None else instance_event.cause_of_wait(pause.waiting)
    new_event = NewEvent(instance_event.WAITING, pause.reason, dict(pause.record or {}), cause=cause)
    await this_pass.save(waiting, new_event)


def _until_due(services: Services, instance: Instance, delay: timedelta) -> timedelta:
    adjustments = services.clock_adjustments
    adjusted = adjustments.with_deadline(adjustments.with_times_of_use(replace(instance, look_at=None)))
    return wait_at_most(adjusted, delay, services.clock.now())


def _as_waiting(instance: Instance, pause: Pause) -> Instance:
    """Return the instance with the reason of the pause, if users should see one."""
    if not pause.reason:
        return instance
    if pause.waiting is None:
        return replace(instance, reason=pause.reason, waiting_for=None)
    waiting, line_since = pause.waiting.continuing(instance.waiting_for), instance.line_since
    if waiting.what is WaitingFor.CAPACITY and line_since is None:
        line_since = waiting.since or pause.waiting.since
    return replace(instance, reason=pause.reason, waiting_for=waiting, line_since=line_since)


async def _settle_pass(this_pass: InstancePass, rest: Rest) -> Outcome:
    """Finish the job: there is nothing to do until the goal or the machine changes."""
    resting = replace(this_pass.instance, settled=True, look_at=rest.look_at)
    await this_pass.write(Change(resting, finished_job=this_pass.job.id, releases_lease=True))
    await wake_original(this_pass.services, resting)
    return Done(written=True)
