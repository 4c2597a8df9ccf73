"""Start, restart, stop and delete the machine of an instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from gpuherd.contract.wire_models import iso
from gpuherd.domain.errors import (
    CloudError,
    CloudRefused,
    CloudUnavailable,
    MachineGone,
    OutcomeUnknown,
    OutOfStock,
)
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import (
    Goal,
    Instance,
    Status,
    Waiting,
    WaitingFor,
)
from gpuherd.domain.instance.instance_state import start_waits_until
from gpuherd.domain.instance.next_step import REPEAT_DELETE_AFTER, shows_restart
from gpuherd.domain.instance.operation import Failure, OperationPhase
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.reconcile.reconcile_context import RECHECK_SOON, InstancePass, Pause
from gpuherd.usecases.reconcile.record_status import RESTART_RECHECK
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline
from gpuherd.usecases.reconcile.verify_machine import (
    Ownership,
    listed_under_our_id,
    ownership_before_removal,
    ownership_before_stop,
)
from gpuherd.usecases.services import Services

log = structlog.get_logger()


HELD_RELEASE_RECHECK = timedelta(seconds=30)


# After this time gpuherd asks again for a machine that is to be stopped or removed and that the cloud denied.
DENIED_RECHECK = timedelta(seconds=5)


class RepeatedRequests:
    """Remembers which stop or removal of an earlier process this process has requested again."""

    def __init__(self, started_at: datetime):
        self._started_at = started_at
        self._instance_ids: set[str] = set()

    def without_lost_request(self, instance: Instance) -> Instance:
        """Return the instance without a request that an earlier process may have written, but not sent."""
        operation, requested_at = instance.operation, instance.asked_at
        is_going = instance.goal is not Goal.RUNNING or instance.releasing
        if not is_going or requested_at is None or requested_at > self._started_at:
            return instance
        if instance.id in self._instance_ids:
            return instance
        # A request from before the present operation was another one, and may still take effect.
        if operation is not None and not instance.releasing and requested_at < operation.requested_at:
            return instance
        # guard: a stop that was only written down goes out after a kill
        return replace(instance, asked_at=None)

    def note(self, instance_id: str) -> None:
        """Remember that this process requests it again."""
        self._instance_ids.add(instance_id)


async def request_delete(this_pass: InstancePass) -> Pause:
    """Ask the cloud to remove the machine, if the machine is still the instance's own."""
    services, is_wanted = this_pass.services, this_pass.instance.goal is Goal.DELETED
    # guard: under the alarm nothing is given back by itself
    if not is_wanted and (reason := await services.alarm.reason()):
        # The other database may have made this machine, and its user may be content with it.
        return Pause(HELD_RELEASE_RECHECK, f"the machine is not given back: {reason}")
    # guard: a delete is repeated on our own machine only
    if (owner := await ownership_before_removal(services, this_pass.locked)) is not Ownership.OURS:
        return await _leave_alone(this_pass, owner)
    return await _request_once(this_pass, services.cloud.delete_machine)


async def request_stop(this_pass: InstancePass) -> Pause:
    """Ask the cloud to stop the machine, if the machine is still the instance's own."""
    services = this_pass.services
    # guard: a stop under an id that may be another's is preceded by a question
    if (owner := await ownership_before_stop(services, this_pass.locked)) is not Ownership.OURS:
        return await _leave_alone(this_pass, owner)
    return await _request_once(this_pass, services.cloud.stop_machine)


async def _leave_alone(this_pass: InstancePass, owner: Ownership) -> Pause:
    """Leave a machine that is not ours now. The lists must prove that ours is gone."""
    instance = this_pass.instance
    operation, requested_at = instance.operation, instance.asked_at
    # A request from before the present operation was another one.
    is_first = requested_at is None or (operation is not None and requested_at < operation.requested_at)
    if owner is Ownership.DENIED and is_first and listed_under_our_id(this_pass.locked) is not None:
        # The machine may exist all the same, and cost money. If no list has ever shown it, however, only the
        # lists since the first request prove that it is gone.
        return Pause(DENIED_RECHECK)
    # guard: a removal that is asked for again keeps the lists since the first request
    if owner is Ownership.DENIED and not is_first and _has_list_since(this_pass.locked, requested_at):
        # That list counts towards the proof. With a later time of the request it would not.
        return Pause(REPEAT_DELETE_AFTER)
    await this_pass.save(replace(instance, asked_at=this_pass.services.clock.now()))
    return Pause(RECHECK_SOON)


def _has_list_since(locked: LeasedInstance, requested_at: datetime | None) -> bool:
    lists = (record for record in locked.lists if record.believable)
    return requested_at is not None and any(record.started_at > requested_at for record in lists)


CloudCall = Callable[[str, float], Awaitable[None]]


async def _request_once(this_pass: InstancePass, call: CloudCall) -> Pause:
    """Ask the cloud once. The lists show the effect; the reply does not prove it."""
    return _await_effect(this_pass, await _send_request(this_pass, call))


def _await_effect(this_pass: InstancePass, error: CloudError | None) -> Pause:
    """Return a pause until the lists may show an effect."""
    if error is not None:
        # Novita has refused starts that went through all the same: look, and ask again if nothing moves.
        log.info(
            "machine.request_not_confirmed",
            instance_id=this_pass.instance.id,
            code=error.code,
            reason=error.message,
        )
    return Pause(RECHECK_SOON)


async def _send_request(this_pass: InstancePass, call: CloudCall) -> CloudError | None:
    """Write that the cloud is asked, ask it, and return its error if there is one."""
    clock = this_pass.services.clock
    before, decided_s = this_pass.instance, clock.boottime()
    await this_pass.save(replace(before, asked_at=clock.now()))
    try:
        # guard: a removal is made promptly or not at all
        check_send_deadline(clock, decided_s)
        await call(before.cloud_id or "", decided_s + SEND_WITHIN_S)
    except CloudUnavailable:
        await this_pass.save(replace(this_pass.instance, asked_at=None))
        raise
    except (OutcomeUnknown, MachineGone, OutOfStock, CloudRefused) as error:
        # Do not read the instance again: a goal that the user has set meanwhile must make the next save fail.
        return error
    return None


async def start_machine(this_pass: InstancePass) -> Pause | None:
    """Ask the cloud to start the machine, now or when the next try of a waiting start is due."""
    services, wait, now = this_pass.services, this_pass.instance.start_wait, this_pass.services.clock.now()
    if wait is not None:
        pause = min(wait.next_try_at(now) - now, _time_left_to_wait(services, this_pass.instance))
        # guard: a start that waits is not asked for at every pass
        if pause > timedelta(0):
            return Pause(pause)
    error = await _send_request(this_pass, services.cloud.start_machine)
    if isinstance(error, OutOfStock):
        # guard: a start that is refused does not put aside a goal that came meanwhile
        if (left := _time_left_to_wait(services, this_pass.instance)) > timedelta(0):
            return await _wait_for_gpus(this_pass, error, left)
        # The machine holds the user's data: it stays exited, and can be started later.
        await _record_exited(this_pass, Failure(error.code, error.message, services.clock.now()))
        return None
    if wait is not None and wait.refusals and error is None:
        reason = "the cloud has GPUs for it"
        granted = replace(this_pass.instance, reason=reason, waiting_for=None, start_wait=None)
        await this_pass.save(granted, NewEvent(instance_event.GRANTED, reason))
    return _await_effect(this_pass, error)


def _time_left_to_wait(services: Services, instance: Instance) -> timedelta:
    """Return for how long a start may still wait for capacity, whatever the clock does."""
    if instance.start_wait is None or instance.operation is None:
        return timedelta(0)
    ahead = services.clock_adjustments.ahead_since(instance.operation.requested_at)
    # guard: a clock that is set ahead ends no wait of a start
    return start_waits_until(instance) + ahead - services.clock.now()


async def _wait_for_gpus(this_pass: InstancePass, error: OutOfStock, left: timedelta) -> Pause:
    """Let a start that was refused for lack of stock wait for its next try."""
    instance, now = this_pass.instance, this_pass.services.clock.now()
    assert instance.start_wait is not None, "only a start that may wait does"
    wait = instance.start_wait.refused(error.message, now)
    # The cloud has surely not started it, so gpuherd may ask again.
    await this_pass.save(replace(instance, start_wait=wait, asked_at=None))
    until = iso(now + left)
    return Pause(
        min(wait.next_try_at(now) - now, left),
        f"waiting for capacity until {until}: {error.message}",
        Waiting(WaitingFor.CAPACITY, error.message, now),
        {"for": WaitingFor.CAPACITY.value, "code": error.code, "until": until},
    )


async def abandon_start(this_pass: InstancePass, code: str, reason: str) -> None:
    """End a start whose time is over. If the machine comes up all the same, the next passes follow it."""
    now = this_pass.services.clock.now()
    # The user wanted it up and may still want it: its data is kept as long as if it had stopped now.
    stopped = replace(this_pass.instance, stopped_at=now)
    this_pass.locked = replace(this_pass.locked, instance=stopped)
    timeout = NewEvent(instance_event.TIMEOUT, reason, {"code": code, "start": True})
    log.warning("instance.start_abandoned", instance_id=stopped.id, code=code, reason=reason)
    before = (timeout,) if code == "STARTUP_TIMEOUT" else ()
    await _record_exited(this_pass, Failure(code, reason, now), *before)


async def _record_exited(this_pass: InstancePass, failure: Failure, *earlier: NewEvent) -> None:
    """Record that the start had no effect: the machine stands still, and can be started again."""
    before, status = this_pass.instance, Status.EXITED
    exited = replace(
        before,
        goal=Goal.STOPPED,
        status=status,
        reason=failure.message,
        waiting_for=None,
        start_wait=None,
        last_error=failure,
    )
    refused = NewEvent(
        instance_event.START_REFUSED,
        failure.message,
        {"code": failure.code},
        before.status.value,
        status.value,
    )
    back = NewEvent(instance_event.STATUS_EVENTS[status], failure.message)
    await this_pass.save(exited, *earlier, refused, back)


async def restart_machine(this_pass: InstancePass) -> Pause | None:
    """Ask the cloud to restart the machine, once."""
    services = this_pass.services
    error = await _send_request(this_pass, services.cloud.restart_machine)
    if isinstance(error, OutOfStock | CloudRefused):
        await abandon_restart(this_pass, error.code, f"the cloud refused the restart: {error.message}")
        return None
    operation = this_pass.instance.operation
    if error is None and operation is not None:
        accepted = operation.reached(OperationPhase.RESTARTING, services.clock.now())
        await this_pass.save(replace(this_pass.instance, operation=accepted))
    return Pause(RECHECK_SOON)


async def look_for_restart(this_pass: InstancePass) -> Pause | None:
    """Ask the cloud for this one machine, to see whether the restart has taken effect."""
    try:
        machine = await this_pass.services.cloud.get_machine(this_pass.instance.cloud_id or "")
    except MachineGone:
        return Pause(RESTART_RECHECK)
    if not shows_restart(this_pass.instance, machine):
        return Pause(RESTART_RECHECK)
    await confirm_restart(this_pass)
    return None


async def confirm_restart(this_pass: InstancePass) -> None:
    """Record that the restart has taken effect."""
    instance, now = this_pass.instance, this_pass.services.clock.now()
    assert instance.operation is not None, "every restart is an operation"
    seen = instance.operation.reached(OperationPhase.RESTARTING, now).reached(OperationPhase.STARTING, now)
    await this_pass.save(replace(instance, operation=seen, reason="the machine restarts"))


async def abandon_restart(this_pass: InstancePass, code: str, reason: str) -> None:
    """Record that the restart has failed, or may have. The next passes follow the machine as it is."""
    instance, services = this_pass.instance, this_pass.services
    assert instance.operation is not None, "every restart is an operation"
    ended = instance.operation.failed(Failure(code, reason, services.clock.now()))
    as_it_is = replace(instance, operation=ended, reason=reason, waiting_for=None, asked_at=None)
    new_event = NewEvent(instance_event.RESTART_FAILED, reason, {"code": code})
    log.warning("instance.restart_failed", instance_id=instance.id, code=code, reason=reason)
    change = services.event_recorder.change(as_it_is, new_event)
    await this_pass.write(replace(change, operations=(ended,)))
