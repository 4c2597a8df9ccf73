"""One order to start, stop or delete: given once, and told to whoever gave it."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from gpuherd.clock import Clock
from gpuherd.domain.operation import OperationPhase, OperationState
from gpuherd.domain.waiting import WaitFor
from gpuherd.entrypoints.cli.connection import Reply
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.failures import NotAcknowledged, command, wait_command
from gpuherd.entrypoints.cli.output import Output, safe
from gpuherd.entrypoints.cli.problems import CannotConnect, not_ours
from gpuherd.entrypoints.cli.story import estimate


async def ordered(found: Details, order: Awaitable[Reply], clock: Clock) -> Details:
    """Return the server's answer to `order` about what was found, with the operation that it began."""
    try:
        reply = await order
    except CannotConnect as trouble:
        if not trouble.sent:
            raise
        advice = f"see how it is with: {command('show', found)}; to say it again does no harm"
        raise NotAcknowledged(advice, trouble) from trouble
    operation_id = Details(reply.body).text("operationId")
    if not operation_id:
        raise not_ours(reply.status)
    requested = {"phase": OperationPhase.REQUESTED.value, "at": clock.now().isoformat()}
    operation = {"operationId": operation_id, "status": OperationState.RUNNING, "phases": [requested]}
    return Details(reply.body, operation)


def known_so_far(found: Details, answer: Details) -> Details:
    """Return what was found as it is after the order: the answer to that is short."""
    return replace(answer, raw={**found.raw, **answer.raw, "statusReason": answer.raw.get("message")})


def say_ordered(output: Output, details: Details, what: WaitFor, clock: Clock) -> None:
    """Tell about an order that nobody waits for."""
    if not output.for_people:
        output.answer(details.raw, details.id)
        return
    left = estimate(details, what, clock)
    words = f"{safe(details.name)} is {safe(details.status)}" + (f", {left}" if left else "")
    output.out.print(words, soft_wrap=True)
    output.note(f"follow it with: {wait_command(details, what)}")
