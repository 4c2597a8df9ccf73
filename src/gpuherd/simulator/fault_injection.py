"""The one way in.

Each call is counted, and by fault delayed, refused, lost or garbled.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from gpuherd.simulator.calls import ApiEndpoint, Call
from gpuherd.simulator.errors import (
    ConnectionCut,
    GarbageReply,
    SimulatedError,
    instance_not_found,
    insufficient_resource,
    invalid_state,
)
from gpuherd.simulator.faults.fault import Fault, FaultKind, Faults
from gpuherd.simulator.world.state import WorldState

T = TypeVar("T")

HANG_S = 60.0
LATE_COMMIT_S = 30.0


async def ask(world: WorldState, endpoint: ApiEndpoint, operation: Callable[[], T]) -> T:
    """Carry out a call about the account."""
    return await carry_out(world, Call(endpoint), operation)


async def ask_about(world: WorldState, endpoint: ApiEndpoint, machine_id: str, operation: Callable[[], T]) -> T:
    """Carry out a call about one machine; faults may choose it by its name and place."""
    try:
        call = world.call_about(endpoint, world.find(machine_id))
    except SimulatedError:
        call = Call(endpoint, machine_id=machine_id)
    return await carry_out(world, call, operation)


async def carry_out(world: WorldState, call: Call, operation: Callable[[], T]) -> T:
    """Run `operation` for `call`; raises what it raises, or `ConnectionCut`, `GarbageReply` by fault."""
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
    """Answer with an error and do nothing."""
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
    # As it stands in the header with which the registry was asked, and in the URL.
    header = base64.b64encode(login.encode()).decode()
    quoted = f"GET https://{quote(login, safe=':')}@registry/v2/ (Basic {header}): {login} is not allowed"
    return SimulatedError(error.status, error.reason, f"{error.message}: {quoted}")


def _lose_before_commit(world: WorldState, call: Call) -> None:
    """Let the connection die with nothing done, or with everything done only later."""
    if world.faults.draw(FaultKind.LOST_REPLY_BEFORE_COMMIT, call):
        raise ConnectionCut(committed=False)
    if fault := world.faults.draw(FaultKind.LATE_COMMIT, call):
        world.commit_later(_or_default(fault.seconds, LATE_COMMIT_S), call)
        raise ConnectionCut(committed=False)


def _garble_reply(faults: Faults, call: Call, result: object) -> None:
    """Let the caller hear something else than what happened."""
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
