"""Follow one instance until it is usable or over; outages of the server are waited out, not reported."""

from __future__ import annotations

import math
from typing import Protocol
from urllib.parse import quote

from gpuherd.clock import Clock
from gpuherd.entrypoints.cli.connection import ApiClient
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.failures import TimedOut
from gpuherd.entrypoints.cli.problems import ApiProblem, CannotConnect

# Short enough to show each stage soon after it begins; the moment of being ready is told at once anyway.
LONG_POLL_S = 2
# A server that does not hold the question back is asked once a second, not as fast as it can answer.
PACE_S = 1.0
# What a busy server may need beyond the time it was asked to wait.
GRACE_S = 10.0
RETRY_AFTER_MAX_S = 30.0


class Watcher(Protocol):
    """Whoever wants to know how it goes."""

    def saw(self, details: Details) -> None:
        """The server said this."""
        ...

    def unreachable(self, reason: str) -> None:
        """The server said nothing, or that it cannot say anything now."""
        ...


def instance_path(name_or_id: str) -> str:
    """Return the path of one instance; a name may hold anything, so nothing in it is taken as syntax."""
    return "/api/instances/" + quote(name_or_id, safe="").replace(".", "%2E")


async def follow(
    api: ApiClient, details: Details, *, clock: Clock, deadline: float, watcher: Watcher
) -> Details:
    """Return the details once the instance is usable or over; raise TimedOut at `deadline` (monotonic)."""
    watcher.saw(details)
    path = instance_path(details.id)
    reachable = True
    while not (details.usable or details.over):
        asked_at = clock.monotonic()
        left_s = deadline - asked_at
        if left_s <= 0:
            raise TimedOut(details, reachable=reachable)
        wait_s = max(1, min(LONG_POLL_S, math.ceil(left_s)))
        pause_s = PACE_S
        try:
            query = [("wait", "ready"), ("timeout", str(wait_s))]
            reply = await api.get(path, query, timeout_s=min(wait_s + GRACE_S, left_s + 1))
        except CannotConnect as trouble:
            reachable = False
            watcher.unreachable(trouble.reason)
        except ApiProblem as problem:
            if not problem.temporary:
                raise
            reachable = False
            pause_s = min(max(PACE_S, problem.retry_after or 0), RETRY_AFTER_MAX_S)
            watcher.unreachable(problem.detail)
        else:
            reachable = True
            details = Details(reply.body)
            watcher.saw(details)
            if details.usable or details.over:
                break
        spent_s = clock.monotonic() - asked_at
        await clock.sleep(max(0.0, min(pause_s - spent_s, left_s - spent_s)))
    return details
