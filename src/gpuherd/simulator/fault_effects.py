"""Applies faults to calls and machines."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from gpuherd.simulator import simulated_machine
from gpuherd.simulator.faults import (
    ApiEndpoint,
    Call,
    Fault,
    FaultKind,
    Faults,
)
from gpuherd.simulator.simulated_machine import SimulatedMachine, Times
from gpuherd.simulator.simulated_request import (
    ConnectionCut,
    GarbageReply,
    SimulatedError,
    instance_not_found,
    insufficient_resource,
    invalid_state,
)
from gpuherd.simulator.world_state import WorldState

T = TypeVar("T")
HANG_S = 60.0
LATE_COMMIT_S = 30.0


async def ask(world: WorldState, endpoint: ApiEndpoint, operation: Callable[[], T]) -> T:
    """Execute a call about the account."""
    return await carry_out(world, Call(endpoint), operation)


async def ask_about(
    world: WorldState, endpoint: ApiEndpoint, machine_id: str, operation: Callable[[], T]
) -> T:
    """Execute a call about one machine. Faults may select it by name and place."""
    try:
        call = world.call_about(endpoint, world.find(machine_id))
    except SimulatedError:
        call = Call(endpoint, machine_id=machine_id)
    return await carry_out(world, call, operation)


async def carry_out(world: WorldState, call: Call, operation: Callable[[], T]) -> T:
    """Run `operation` for `call`. Faults may add `ConnectionCut` or `GarbageReply`."""
    world.record.count(call)
    try:
        result = await _run(world, call, operation)
    except SimulatedError as error:
        world.record.note(world.now(), call, f"{error.status} {error.reason}")
        raise
    except ConnectionCut as cut:
        world.record.note(world.now(), call, "cut after commit" if cut.committed else "cut before commit")
        raise
    except GarbageReply as garbage:
        world.record.note(world.now(), call, f"garbage {garbage.style}")
        raise
    world.record.note(world.now(), call, "ok")
    return result


async def _run(world: WorldState, call: Call, operation: Callable[[], T]) -> T:
    _refuse(world, call)
    hang = world.faults.draw(FaultKind.HANG, call)
    if hang is not None and hang.chosen_style == "before_commit":
        await world.clock.sleep(_or_default(hang.seconds, HANG_S))
    _lose_before_commit(world, call)
    result = operation()
    if hang is not None and hang.chosen_style == "after_commit":
        await world.clock.sleep(_or_default(hang.seconds, HANG_S))
    _garble_reply(world.faults, call, result)
    return result


def _refuse(world: WorldState, call: Call) -> None:
    """Return an error and do nothing."""
    if fault := world.faults.draw(FaultKind.OUTAGE, call):
        raise _outage(fault)
    if fault := world.faults.draw(FaultKind.RATE_LIMIT, call):
        headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        raise SimulatedError(429, "RATE_LIMIT_EXCEEDED", "too many requests", headers=headers)
    if fault := world.faults.draw(FaultKind.REFUSE, call):
        raise _refusal(world, fault, call)
    if world.faults.draw(FaultKind.SOLD_OUT, call):
        if call.endpoint is ApiEndpoint.MIGRATE:
            raise SimulatedError(400, "MIGRATE_INSUFFICIENT_RESOURCE", "no host has room for the instance")
        raise insufficient_resource(call.product_id)
    if world.faults.draw(FaultKind.GET_404_GLITCH, call):
        raise instance_not_found(call.machine_id)


def _refusal(world: WorldState, fault: Fault, call: Call) -> SimulatedError:
    error = _error(fault, 500, "UNKNOWN")
    if fault.chosen_style != "quotes_login" or call.request is None:
        return error
    auth = world.account.registry_auths.get(call.request.image_auth_id)
    login = f"{auth.username}:{auth.password}" if auth else call.request.image_auth
    # As it stands in the registry's auth header, and in the URL.
    header = base64.b64encode(login.encode()).decode()
    quoted = f"GET https://{quote(login, safe=':')}@registry/v2/ (Basic {header}): {login} is not allowed"
    return SimulatedError(error.status, error.reason, f"{error.message}: {quoted}")


def _lose_before_commit(world: WorldState, call: Call) -> None:
    """Cut the connection before anything is done, or do everything later."""
    if world.faults.draw(FaultKind.LOST_REPLY_BEFORE_COMMIT, call):
        raise ConnectionCut(committed=False)
    if fault := world.faults.draw(FaultKind.LATE_COMMIT, call):
        world.commit_later(_or_default(fault.seconds, LATE_COMMIT_S), call)
        raise ConnectionCut(committed=False)


def _garble_reply(faults: Faults, call: Call, result: object) -> None:
    """Return another reply than the true one."""
    if faults.draw(FaultKind.LOST_REPLY_AFTER_COMMIT, call):
        raise ConnectionCut(committed=True)
    if fault := faults.draw(FaultKind.ERROR_AFTER_COMMIT, call):
        raise _error(fault, 500, "UNKNOWN")
    if faults.draw(FaultKind.START_WENT_THROUGH, call):
        raise invalid_state("start", "starting")
    if fault := faults.draw(FaultKind.GARBAGE, call):
        raise GarbageReply(fault.chosen_style, result)


def _outage(fault: Fault) -> Exception:
    match fault.chosen_style:
        case "cut":
            return ConnectionCut(committed=False)
        case "html":
            return SimulatedError(fault.status or 502, "BAD_GATEWAY", "Bad Gateway", from_gateway=True)
        case _:
            return _error(fault, 503, "UNKNOWN")


def _error(fault: Fault, status: int, reason: str) -> SimulatedError:
    return SimulatedError(
        fault.status or status, fault.reason or reason, fault.message or "the service is not available"
    )


def _or_default(seconds: float | None, default_s: float) -> float:
    return default_s if seconds is None else seconds


TRUNCATED_NAME_LENGTH = 32
PULL_ACCESS_DENIED = "failed to pull image: pull access denied or the repository does not exist"


class FailedPull(NamedTuple):
    """Why an image cannot be pulled, and whether the cloud retries forever."""

    message: str
    stuck: bool


def kept_name(faults: Faults, call: Call) -> str:
    """Return the name that the cloud stores; without a fault, the given one."""
    fault = faults.draw(FaultKind.DROP_NAME, call)
    if fault is None:
        return call.name
    match fault.chosen_style:
        case "truncate":
            return call.name[:TRUNCATED_NAME_LENGTH]
        case "replace":
            return f"instance-{call.machine_id[:6]}"
        case _:
            return ""


def unlisted_s(faults: Faults, call: Call) -> float:
    """Return how long a new machine is missing from the list."""
    fault = faults.draw(FaultKind.LIST_LAG, call)
    return 0.0 if fault is None else fault.seconds or 10.0


def slowed_s(faults: Faults, call: Call, seconds: float) -> float:
    """Return the duration of a pull or start; infinity if it never ends."""
    fault = faults.draw(FaultKind.SLOW_PULL, call)
    if fault is None:
        return seconds
    return math.inf if fault.factor is None else seconds * fault.factor


def failed_pull(faults: Faults, call: Call, *, allowed: bool) -> FailedPull | None:
    """Return how the pull fails; None if neither a fault nor a missing login makes it fail."""
    fault = faults.draw(FaultKind.PULL_FAILURE, call)
    if fault is not None:
        return FailedPull(fault.message or PULL_ACCESS_DENIED, stuck=fault.chosen_style == "stuck")
    return None if allowed else FailedPull(PULL_ACCESS_DENIED, stuck=False)


def plan_reclaim(
    faults: Faults, call: Call, machine: SimulatedMachine, running_at: float, times: Times, speed: float
) -> float | None:
    """Announce an eviction if a fault requires it; return when it is over."""
    if machine.request.billing_mode != "spot" or not math.isfinite(running_at) or machine.failure is not None:
        return None
    fault = faults.draw(FaultKind.RECLAIM, call)
    if fault is None:
        return None
    after_s = times.spot_guaranteed if fault.seconds is None else fault.seconds / speed
    notice_s = times.spot_notice if fault.notice_s is None else fault.notice_s / speed
    return simulated_machine.announce_reclaim(
        machine,
        running_at + after_s,
        notice_s,
        times,
        show_time_at_notice=fault.chosen_style == "time_at_notice",
    )
