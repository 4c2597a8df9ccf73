"""Waits for one instance by long poll; an outage of the server is waited out, not reported."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from gpuherd.client.asking import ONCE, Asker
from gpuherd.client.errors import (
    ConnectionFailed,
    GpuherdError,
    InstanceFailed,
    TooManyRequests,
    Unavailable,
    WaitTimedOut,
)
from gpuherd.client.models.instance import Instance
from gpuherd.client.steps import Steps, pause
from gpuherd.client.wire import get, part

Until = Literal["ready", "exited", "deleted"]
OnProgress = Callable[[Instance], None]

# The server answers at once when it is over. With somebody to tell, it is asked for the stages between, too.
POLL_S = 20
TOLD_POLL_S = 2
# What a busy server may need beyond the time it was asked to wait.
GRACE_S = 10.0
# A server that does not hold the question back is asked once a second, not as fast as it can answer.
PACE_S = 1.0
RETRY_AFTER_MAX_S = 30.0


def wait_for(
    asker: Asker, word: str, until: Until, timeout_s: float, on_progress: OnProgress | None
) -> Steps[Instance]:
    """Return the instance when it is `until`, or raise `InstanceFailed` or `WaitTimedOut`."""
    deadline = asker.clock.monotonic() + timeout_s
    instance = Instance.of((yield from asker.ask(get(_path(word)))))
    left_s = deadline - asker.clock.monotonic()
    return (yield from follow(asker, instance, until, left_s, on_progress))


def follow(
    asker: Asker, instance: Instance, until: Until, timeout_s: float, on_progress: OnProgress | None
) -> Steps[Instance]:
    """Wait for an instance of which it is known how it is now."""
    clock = asker.clock
    deadline = clock.monotonic() + timeout_s
    tell = _Teller(on_progress)
    tell(instance)
    trouble = ""
    while True:
        if is_reached(instance, until):
            return instance
        asked_at = clock.monotonic()
        left_s = deadline - asked_at
        if left_s <= 0:
            raise WaitTimedOut(instance, until, timeout_s, trouble)
        pace_s = PACE_S
        try:
            instance, is_over = yield from _look(asker, instance.id, until, left_s, on_progress is not None)
        except (ConnectionFailed, Unavailable, TooManyRequests) as error:
            trouble, pace_s = str(error), _pace_s(error)
        else:
            trouble = ""
            tell(instance)
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
    asker: Asker, instance_id: str, until: Until, left_s: float, is_told: bool
) -> Steps[tuple[Instance, bool]]:
    """Return how it is, and whether the server says that there is nothing left to wait for."""
    wait_s = max(1, min(TOLD_POLL_S if is_told else POLL_S, math.ceil(left_s)))
    # By id from now on: a name may become somebody else's, and a deleted instance has none.
    request = get(_path(instance_id), wait=until, timeout=wait_s)
    request = replace(request, timeout_s=min(wait_s + GRACE_S, left_s + PACE_S))
    reply, answer = yield from asker.exchange(request, ONCE)
    return Instance.of(answer), reply.headers.get("x-wait-timed-out") != "true"


def _pace_s(error: GpuherdError) -> float:
    asked_for_s = getattr(error, "retry_after_s", None) or 0.0
    return min(max(PACE_S, asked_for_s), RETRY_AFTER_MAX_S)


def _path(word: str) -> str:
    return f"/api/instances/{part(word)}"


class _Teller:
    """Tells each change once."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._told: tuple[str, str | None] | None = None

    def __call__(self, instance: Instance) -> None:
        news = (instance.status, instance.status_reason)
        if self._on_progress is not None and news != self._told:
            self._told = news
            self._on_progress(instance)
