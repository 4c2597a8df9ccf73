"""Record what happens to an instance: its status, its connection, its health, or why it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from gpuherd.domain.cloud.machine import Machine, Phase, ReclaimNotice
from gpuherd.domain.errors import MachineGone
from gpuherd.domain.instance import instance_event, step_types
from gpuherd.domain.instance.health import Health, HealthStatus, explain_health
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_state import is_restarting, is_starting_again, must_release
from gpuherd.domain.instance.operation import Failure
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.reconcile.reconcile_context import RECHECK_SOON, InstancePass, Pause
from gpuherd.usecases.reconcile.verify_machine import verify_tag

log = structlog.get_logger()


# A health check has a job of its own. So often a pass makes sure that this job exists.
HEALTH_JOB_CHECK = timedelta(seconds=30)


# A restart takes ten seconds or so: this often is enough to see it.
RESTART_RECHECK = timedelta(seconds=3)


async def read_details(this_pass: InstancePass) -> Pause | None:
    """Ask the cloud for the machine, because the list does not show how to connect."""
    services, instance = this_pass.services, this_pass.instance
    try:
        machine = await services.cloud.get_machine(instance.cloud_id or "")
    except MachineGone:
        # One "not found" proves nothing; the lists decide whether it vanished.
        return Pause(RECHECK_SOON)
    if machine.phase is not Phase.RUNNING:
        return Pause(RESTART_RECHECK if is_restarting(instance) else RECHECK_SOON)
    await verify_tag(this_pass, machine)
    await record_running(this_pass, machine, services.clock.now())
    return None


async def record_running(this_pass: InstancePass, machine: Machine, seen_at: datetime) -> None:
    """Record that the machine runs and how to connect, as was seen at that moment."""
    before, now = this_pass.instance, this_pass.services.clock.now()
    running = replace(
        before,
        # If the user started it in the cloud's console, the user wants it to run.
        goal=Goal.RUNNING,
        status=Status.RUNNING,
        reason="running",
        waiting_for=None,
        ports=machine.ports,
        connection=machine.connection,
        started_at=seen_at,
        start_wait=None,
        # What was known of an earlier run says nothing about this one.
        health=None,
        reclaim=None,
    )
    new_events = [
        NewEvent(
            instance_event.STATUS_EVENTS[Status.RUNNING], "", {}, before.status.value, Status.RUNNING.value
        )
    ]
    if before.health_check is None:
        running = replace(running, ready_at=before.ready_at or now, usable_at=_usable_at(before, now))
        new_events += [NewEvent(instance_event.READY, "usable"), *_takes_over(before)]
    await this_pass.save(running, *new_events)


async def request_health_round(this_pass: InstancePass) -> Pause:
    """Leave the check to a job of its own: an application that hangs must not hold the lease, nor a slot."""
    services = this_pass.services
    change = services.event_recorder.change(this_pass.instance)
    health_job = services.job_factory.health_job(this_pass.instance)
    await this_pass.write(replace(change, jobs=(*change.jobs, health_job)))
    return Pause(HEALTH_JOB_CHECK)


async def record_health(this_pass: InstancePass, health: Health) -> None:
    """Record what a round has shown, and what follows from it."""
    before, now = this_pass.instance, this_pass.services.clock.now()
    match health.status:
        case HealthStatus.PASSED:
            ready = replace(
                before,
                status=Status.READY,
                reason="the application answers",
                waiting_for=None,
                health=health,
                ready_at=before.ready_at or now,
                usable_at=_usable_at(before, now),
            )
            new_event = NewEvent(
                instance_event.READY, ready.reason, {}, before.status.value, Status.READY.value
            )
            await this_pass.save(ready, new_event, *_takes_over(before))
        case HealthStatus.FAILED:
            this_pass.locked = replace(this_pass.locked, instance=replace(before, health=health))
            reason = f"the application did not answer as it should: {explain_health(health)}"
            await record_failure(this_pass, "HEALTH_CHECK_FAILED", reason)
        case _:
            reason = f"waiting for the application: {explain_health(health)}"
            await this_pass.save(replace(before, health=health, reason=reason, waiting_for=None))


async def record_status(this_pass: InstancePass, step: step_types.Become) -> None:
    """Record a new status. Nothing has to be done in the cloud for this."""
    before, status, now = this_pass.instance, step.status, this_pass.services.clock.now()
    stopped_at = now if status is Status.EXITED else before.stopped_at
    reason = step.reason or _REASONS.get(status, "")
    # Also where no list has shown a notice.
    reclaim = before.reclaim or ReclaimNotice(now, None, now) if step.is_loss else before.reclaim
    changed = replace(
        before, status=status, reason=reason, waiting_for=None, stopped_at=stopped_at, reclaim=reclaim
    )
    # guard: what was thought lost was not silent
    if changed.usable and not before.usable:
        # While it was thought lost, or moved, the user could not use it.
        changed = replace(changed, usable_at=_usable_at(before, now))
    new_event = NewEvent(
        instance_event.STATUS_EVENTS[status], changed.reason, {}, before.status.value, status.value
    )
    await this_pass.save(changed, new_event)


async def record_release(this_pass: InstancePass) -> None:
    """Record that the machine of an ended instance is gone."""
    released = replace(this_pass.instance, releasing=False)
    await this_pass.save(released, NewEvent(instance_event.RELEASED, "the machine is gone"))


async def record_failure(
    this_pass: InstancePass, code: str, reason: str, details: Mapping[str, Any] | None = None
) -> None:
    """Record that the instance has failed, and why. Its machine is given back unless the user keeps it."""
    before, now = this_pass.instance, this_pass.services.clock.now()
    has_machine = before.cloud_id is not None or this_pass.locked.open_attempt is not None
    failed = replace(
        before,
        status=Status.FAILED,
        reason=reason,
        waiting_for=None,
        last_error=Failure(code, reason, now, dict(details or {})),
        releasing=must_release(before) and has_machine,
        asked_at=None,
    )
    event_details = {"code": code, "start": is_starting_again(before), **(details or {})}
    # An instance that had failed before, and was kept, does not change its status.
    change = () if before.status is Status.FAILED else (before.status.value, Status.FAILED.value)
    new_events = [NewEvent(instance_event.FAILED, reason, event_details, *change)]
    if code in _TIMEOUTS:
        new_events.insert(0, NewEvent(instance_event.TIMEOUT, reason, event_details))
    log.warning("instance.failed", instance_id=before.id, code=code, reason=reason)
    await this_pass.save(failed, *new_events)


def _takes_over(instance: Instance) -> tuple[NewEvent, ...]:
    """Return the event of a replacement that can be used for the first time."""
    original = None if instance.chain is None else instance.chain.replaces
    if original is None or instance.ready_at is not None:
        return ()
    return (NewEvent(instance_event.REPLACED, f"takes over from {original}", {"replaces": original}),)


def _usable_at(instance: Instance, now: datetime) -> datetime | None:
    """Return the begin of a run, if an end for lack of use depends on it."""
    return now if instance.terms.silence is not None or instance.terms.idle is not None else None


_TIMEOUTS = frozenset({"INSTANCE_TIMEOUT", "OUTCOME_UNKNOWN", "STARTUP_TIMEOUT"})


_REASONS = {
    Status.STARTING: "the machine is starting",
    Status.HEALTH_CHECKING: "asking the application whether it is up",
    Status.EXITED: "the machine stopped",
    Status.MIGRATING: "the cloud moves the machine to another host",
    Status.DELETED: "the machine is gone",
}
