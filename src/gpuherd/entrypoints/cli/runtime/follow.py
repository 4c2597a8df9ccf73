"""Follow one instance to where it shall come; outages of the server are waited out, not reported."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol
from urllib.parse import quote

from gpuherd.clock import Clock
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.operation import OperationKind, OperationState
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.errors import TimedOut
from gpuherd.entrypoints.cli.runtime.problems import ApiProblem, CannotConnect

# Short enough to show each stage soon after it begins; the moment of being ready is told at once anyway.
LONG_POLL_S = 2
# A server that does not hold the question back is asked once a second, not as fast as it can answer.
PACE_S = 1.0
# What a busy server may need beyond the time it was asked to wait.
GRACE_S = 10.0
RETRY_AFTER_MAX_S = 30.0


class Watcher(Protocol):
    """Is told about every observation while an instance is followed."""

    def observe(self, details: Details) -> None:
        """The server said this."""
        ...

    def unreachable(self, reason: str) -> None:
        """The server said nothing, or that it cannot say anything now."""
        ...


def instance_path(name_or_id: str) -> str:
    """Return the path of one instance; a name may hold anything, so nothing in it is taken as syntax."""
    return "/api/instances/" + quote(name_or_id, safe="").replace(".", "%2E")


def operation_path(operation_id: str) -> str:
    return "/api/operations/" + quote(operation_id, safe="")


async def follow(
    api: ApiClient, details: Details, *, what: WaitFor, clock: Clock, deadline: float, watcher: Watcher
) -> Details:
    """Return the details once `what` is reached or cannot be; raise TimedOut at `deadline` (monotonic).

    Where the details come with an operation, it is followed to its end: that decides.
    """
    watcher.observe(details)
    reachable = True
    while details.reached(what) is None:
        asked_at = clock.monotonic()
        left_s = deadline - asked_at
        if left_s <= 0:
            raise TimedOut(details, what, reachable=reachable)
        pause_s = PACE_S
        try:
            details = await _look(api, details, what, left_s)
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
            watcher.observe(details)
            if details.reached(what) is not None:
                break
        spent_s = clock.monotonic() - asked_at
        await clock.sleep(max(0.0, min(pause_s - spent_s, left_s - spent_s)))
    return details


async def attended(api: ApiClient, details: Details, what: WaitFor) -> Details:
    """Return the details with the start that is under way although they still say exited, if there is one."""
    operation_id = details.text("operationId")
    if what is not WaitFor.READY or details.status != Status.EXITED or not operation_id:
        return details
    operation = (await api.get(operation_path(operation_id), timeout_s=GRACE_S)).body
    under_way = (operation.get("type"), operation.get("status"))
    return (
        replace(details, operation=operation)
        if under_way == (OperationKind.START, OperationState.RUNNING)
        else details
    )


async def _look(api: ApiClient, details: Details, what: WaitFor, left_s: float) -> Details:
    """Ask how it is now; the server holds the question back until there is news, or for a moment."""
    path = instance_path(details.id)
    wait_s = max(1, min(LONG_POLL_S, math.ceil(left_s)))
    query = [("wait", what.value), ("timeout", str(wait_s))]
    reply = await api.get(path, query, timeout_s=min(wait_s + GRACE_S, left_s + 1))
    if not details.operation:
        return await attended(api, Details(reply.body), what)
    followed = operation_path(str(details.operation.get("operationId")))
    operation = (await api.get(followed, timeout_s=GRACE_S)).body
    seen = Details(reply.body, operation)
    if seen.reached(what) is None:
        return seen
    # The end of the operation may be younger than the details that we have.
    return replace(seen, raw=(await api.get(path, timeout_s=GRACE_S)).body)
