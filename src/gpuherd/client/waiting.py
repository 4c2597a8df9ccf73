"""Waits for one instance by long poll; an outage of the server is waited out, not reported."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from gpuherd.client.effects import Effects, pause
from gpuherd.client.errors import (
    ConnectionFailed,
    GpuherdError,
    InstanceFailed,
    TooManyRequests,
    Unavailable,
    WaitTimedOut,
)
from gpuherd.client.models.instance import Instance
from gpuherd.client.retrying import NO_RETRIES, RetryingCaller
from gpuherd.client.wire import get, path_segment

Until = Literal["ready", "exited", "deleted"]
OnProgress = Callable[[Instance], None]

# The server answers at once when it is over. With somebody to tell, it is asked for the stages between, too.
POLL_S = 20
PROGRESS_POLL_S = 2
# What a busy server may need beyond the time it was asked to wait.
REPLY_GRACE_S = 10.0
# A server that does not hold the question back is asked once a second, not as fast as it can answer.
POLL_INTERVAL_MIN_S = 1.0
RETRY_AFTER_MAX_S = 30.0


def wait_for(
    caller: RetryingCaller, word: str, until: Until, timeout_s: float, on_progress: OnProgress | None
) -> Effects[Instance]:
    """Return the instance when it is `until`, or raise `InstanceFailed` or `WaitTimedOut`."""
    deadline = caller.clock.monotonic() + timeout_s
    instance = Instance.of((yield from caller.call(get(_path(word)))))
    left_s = deadline - caller.clock.monotonic()
    return (yield from follow(caller, instance, until, left_s, on_progress))


def follow(
    caller: RetryingCaller, instance: Instance, until: Until, timeout_s: float, on_progress: OnProgress | None
) -> Effects[Instance]:
    """Wait for an instance of which it is known how it is now."""
    clock = caller.clock
    deadline = clock.monotonic() + timeout_s
    notify = _ProgressNotifier(on_progress)
    notify(instance)
    trouble = ""
    while True:
        if is_reached(instance, until):
            return instance
        asked_at = clock.monotonic()
        left_s = deadline - asked_at
        if left_s <= 0:
            raise WaitTimedOut(instance, until, timeout_s, trouble)
        pace_s = POLL_INTERVAL_MIN_S
        try:
            instance, is_over = yield from _look(caller, instance.id, until, left_s, on_progress is not None)
        except (ConnectionFailed, Unavailable, TooManyRequests) as error:
            trouble, pace_s = str(error), _pace_s(error)
        else:
            trouble = ""
            notify(instance)
            if is_over:
                if is_reached(instance, until):
                    return instance
                raise InstanceFailed(instance, until)
        spent_s = clock.monotonic() - asked_at
        yield from pause(max(0.0, min(pace_s, left_s) - spent_s))


def is_reached(instance: Instance, until: Until) -> bool:
    """Tell whether an instance is what was waited for; `ready` means usable."""
    return instance.usable if until == "ready" else instance.status == until


def _look(
    caller: RetryingCaller, instance_id: str, until: Until, left_s: float, has_listener: bool
) -> Effects[tuple[Instance, bool]]:
    """Return how it is, and whether the server says that there is nothing left to wait for."""
    wait_s = max(1, min(PROGRESS_POLL_S if has_listener else POLL_S, math.ceil(left_s)))
    # By id from now on: a name may become somebody else's, and a deleted instance has none.
    request = get(_path(instance_id), wait=until, timeout=wait_s)
    request = replace(request, timeout_s=min(wait_s + REPLY_GRACE_S, left_s + POLL_INTERVAL_MIN_S))
    reply, answer = yield from caller.exchange(request, NO_RETRIES)
    return Instance.of(answer), reply.headers.get("x-wait-timed-out") != "true"


def _pace_s(error: GpuherdError) -> float:
    asked_for_s = getattr(error, "retry_after_s", None) or 0.0
    return min(max(POLL_INTERVAL_MIN_S, asked_for_s), RETRY_AFTER_MAX_S)


def _path(word: str) -> str:
    return f"/api/instances/{path_segment(word)}"


class _ProgressNotifier:
    """Calls back once for each change."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._notified: tuple[str, str | None] | None = None

    def __call__(self, instance: Instance) -> None:
        state = (instance.status, instance.status_reason)
        if self._on_progress is not None and state != self._notified:
            self._notified = state
            self._on_progress(instance)
