"""Waits for one instance by long poll; an outage of the server is waited out, not reported."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from gpuherd.client.effects import Effects, pause
from gpuherd.client.errors import ApiError, ConnectionFailed, GpuherdError, InstanceFailed, WaitTimedOut
from gpuherd.client.models.instance import Instance, Operation
from gpuherd.client.retrying import NO_RETRIES, RetryingCaller
from gpuherd.client.transport.wire import get, path_segment

Until = Literal["ready", "exited", "deleted"]
OnProgress = Callable[[Instance], None]
OnAnswer = Callable[[Instance, Operation | None], None]
OnTrouble = Callable[[GpuherdError], None]

# The server answers at once when it is over. With somebody to tell, it is asked for the stages between, too.
POLL_S = 20
PROGRESS_POLL_S = 2
# What a busy server may need beyond the time it was asked to wait.
REPLY_GRACE_S = 10.0
# A server that does not hold the question back is asked once a second, not as fast as it can answer.
POLL_INTERVAL_MIN_S = 1.0
RETRY_AFTER_MAX_S = 30.0


@dataclass(frozen=True)
class Listeners:
    """Who is told while an instance is waited for."""

    # Each change of the status or its reason.
    on_progress: OnProgress | None = None
    # Every answer, with the operation that is followed.
    on_answer: OnAnswer | None = None
    # Every time that the server could not say how it is.
    on_trouble: OnTrouble | None = None

    @property
    def poll_s(self) -> int:
        return POLL_S if self.on_progress is None and self.on_answer is None else PROGRESS_POLL_S


def wait_for(
    caller: RetryingCaller, word: str, until: Until, timeout_s: float, listeners: Listeners
) -> Effects[Instance]:
    """Return the instance when it is `until`, or raise `InstanceFailed` or `WaitTimedOut`."""
    deadline = caller.clock.monotonic() + timeout_s
    instance = Instance.of((yield from caller.call(get(_path(word)))))
    left_s = deadline - caller.clock.monotonic()
    return (yield from follow(caller, instance, until, left_s, listeners))


def follow(
    caller: RetryingCaller,
    instance: Instance,
    until: Until,
    timeout_s: float,
    listeners: Listeners,
    operation: Operation | None = None,
) -> Effects[Instance]:
    """Wait for an instance of which it is known how it is now; the end of an operation decides, if given."""
    clock = caller.clock
    deadline = clock.monotonic() + timeout_s
    notify = _Notifier(listeners)
    if operation is None:
        operation = yield from _start_under_way(caller, instance, until)
    notify(instance, operation)
    trouble = ""
    is_over = outcome_of(instance, until, operation) is not None
    while not is_over:
        asked_at = clock.monotonic()
        left_s = deadline - asked_at
        if left_s <= 0:
            raise WaitTimedOut(instance, until, timeout_s, trouble, operation)
        pace_s = POLL_INTERVAL_MIN_S
        try:
            instance, operation, is_over = yield from _look(
                caller, instance.id, until, operation, left_s, listeners.poll_s
            )
        except (ConnectionFailed, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_temporary:
                raise
            trouble, pace_s = str(error), _pace_s(error)
            if listeners.on_trouble is not None:
                listeners.on_trouble(error)
        else:
            trouble = ""
            notify(instance, operation)
            if is_over:
                break
        spent_s = clock.monotonic() - asked_at
        yield from pause(max(0.0, min(pace_s, left_s) - spent_s))
    if not outcome_of(instance, until, operation):
        raise InstanceFailed(instance, until, operation)
    return instance


def outcome_of(instance: Instance, until: Until, operation: Operation | None = None) -> bool | None:
    """Tell whether an instance is what was waited for; False: not without a new order, None: not yet.

    `ready` means usable. What an operation has come to counts more than the status.
    """
    if operation is not None:
        return None if operation.status == "running" else operation.status == "succeeded"
    match until:
        case "ready":
            is_down = instance.status == "exited" or instance.goal == "stopped"
            return instance.usable or (False if is_down or _is_leaving(instance) else None)
        case "exited":
            return instance.status == "exited" or (False if _is_leaving(instance) else None)
        case "deleted":
            stays = instance.status == "failed" and instance.goal != "deleted"
            return instance.status == "deleted" or (False if stays else None)


def _is_leaving(instance: Instance) -> bool:
    return instance.status in ("failed", "deleting", "deleted") or instance.goal == "deleted"


def _look(
    caller: RetryingCaller,
    instance_id: str,
    until: Until,
    operation: Operation | None,
    left_s: float,
    poll_s: int,
) -> Effects[tuple[Instance, Operation | None, bool]]:
    """Return how it is, what is followed, and whether there is nothing left to wait for."""
    wait_s = max(1, min(poll_s, math.ceil(left_s)))
    # By id from now on: a name may become somebody else's, and a deleted instance has none.
    request = get(_path(instance_id), wait=until, timeout=wait_s)
    request = replace(request, timeout_s=min(wait_s + REPLY_GRACE_S, left_s + POLL_INTERVAL_MIN_S))
    reply, answer = yield from caller.exchange(request, NO_RETRIES)
    instance = Instance.of(answer)
    if operation is None:
        operation = yield from _start_under_way(caller, instance, until)
        is_over = operation is None and reply.headers.get("x-wait-timed-out") != "true"
        return instance, operation, is_over
    operation = yield from _operation(caller, operation.operation_id)
    if outcome_of(instance, until, operation) is None:
        return instance, operation, False
    # The end of the operation may be younger than the instance that we have.
    request = replace(get(_path(instance_id)), timeout_s=REPLY_GRACE_S)
    return Instance.of((yield from caller.call(request, NO_RETRIES))), operation, True


def _start_under_way(caller: RetryingCaller, instance: Instance, until: Until) -> Effects[Operation | None]:
    """Return the start that is under way although the instance is still exited, if there is one."""
    if until != "ready" or instance.status != "exited" or not instance.operation_id:
        return None
    operation = yield from _operation(caller, instance.operation_id)
    is_start = operation.type in ("start", "restart") and operation.status == "running"
    return operation if is_start else None


def _operation(caller: RetryingCaller, operation_id: str) -> Effects[Operation]:
    request = replace(get(f"/api/operations/{path_segment(operation_id)}"), timeout_s=REPLY_GRACE_S)
    return Operation.of((yield from caller.call(request, NO_RETRIES)))


def _pace_s(error: GpuherdError) -> float:
    asked_for_s = getattr(error, "retry_after_s", None) or 0.0
    return min(max(POLL_INTERVAL_MIN_S, asked_for_s), RETRY_AFTER_MAX_S)


def _path(word: str) -> str:
    return f"/api/instances/{path_segment(word)}"


class _Notifier:
    """Tells the listeners what they asked for."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._told: tuple[str, str | None] | None = None

    def __call__(self, instance: Instance, operation: Operation | None) -> None:
        if self._listeners.on_answer is not None:
            self._listeners.on_answer(instance, operation)
        state = (instance.status, instance.status_reason)
        if self._listeners.on_progress is not None and state != self._told:
            self._told = state
            self._listeners.on_progress(instance)
