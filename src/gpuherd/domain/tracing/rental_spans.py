"""What a change of an instance says about its rental: the waits, boots and ends that are spans.

They are written when they have ended, from times that are stored: a crash in the middle loses none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from gpuherd.domain.instance.failure import Failure
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.operation import Operation, OperationState
from gpuherd.domain.tracing.span import Attribute, EndedSpan, Trace

INSTANCE_ID = "gpuherd.instance.id"
OUTCOME = "gpuherd.outcome"
CODE = "gpuherd.error.code"
ATTEMPT = "gpuherd.attempt"
HTTP_STATUS = "http.response.status_code"


def trace_of(it: Instance) -> Trace:
    """Return the trace that work for an instance belongs to now.

    The rental ends when it can be used or has failed; a trace does not go on for weeks. Whatever comes later
    has a trace of its own, and a link to the rental.
    """
    if it.operation is not None and it.operation.is_running:
        return Trace(it.operation.id, it.id)
    if is_renting(it) or it.releasing:
        return Trace(it.id)
    return Trace(None, it.id)


def is_renting(it: Instance) -> bool:
    """Tell whether it was never usable so far, and still may be."""
    return it.ready_at is None and it.last_error is None and it.status is not Status.DELETED


def queued_since(it: Instance) -> datetime | None:
    """Return since when an instance waits for its first turn, on this way; None if it has had one."""
    if it.operation is not None and it.operation.is_running:
        return it.operation.requested_at if len(it.operation.phases) <= 1 else None
    return it.created_at if it.sequence <= 1 and is_renting(it) else None


def spans_of_change(before: Instance, after: Instance, now: datetime) -> Iterator[EndedSpan]:
    """Yield what has ended with this change, but for operations."""
    wait, still = before.waiting_for, after.waiting_for
    if wait is not None and wait.since is not None and (still is None or still.what is not wait.what):
        yield EndedSpan(
            f"wait: {wait.what.value}", wait.since, now, trace_of(before), attributes=_about(before)
        )
    if is_renting(before) and not is_renting(after):
        yield _rental(after, now)


def spans_of_operations(instance: Instance, operations: Iterable[Operation]) -> Iterator[EndedSpan]:
    """Yield the roots of the operations that have ended."""
    for it in operations:
        if it.ended_at is not None and not it.is_running:
            attributes = {**_about(instance), OUTCOME: it.state.value, **_code(it.error)}
            yield EndedSpan(
                it.kind.value,
                it.requested_at,
                it.ended_at,
                Trace(it.id, instance.id),
                is_root=True,
                failed=it.state is OperationState.FAILED,
                attributes=attributes,
            )


def _rental(after: Instance, now: datetime) -> EndedSpan:
    outcome = "usable" if after.ready_at is not None else after.status.value
    chain = after.chain
    attributes: dict[str, Attribute] = {**_about(after), OUTCOME: outcome}
    if after.rental is not None:
        attributes["gpuherd.region"] = after.rental.region
    error = None if after.ready_at is not None else after.last_error
    attributes |= _code(error)
    return EndedSpan(
        "rental",
        after.created_at,
        after.ready_at or now,
        Trace(after.id, None if chain is None else chain.replaces),
        is_root=True,
        failed=error is not None,
        attributes=attributes,
    )


def _about(it: Instance) -> dict[str, Attribute]:
    return {INSTANCE_ID: it.id}


def _code(error: Failure | None) -> dict[str, Attribute]:
    return {} if error is None else {CODE: error.code}
