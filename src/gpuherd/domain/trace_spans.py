"""The trace spans of a rental and of a delivery."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from hashlib import blake2b
from urllib.parse import unquote

from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.domain.instance.operation import Failure, Operation, OperationState
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState
from gpuherd.ports.clock_port import ulid_number

Attribute = str | int | float | bool


class SpanKind(Enum):
    """Which side of a call the span is, if any."""

    INTERNAL = "internal"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Trace:
    """All work on one subject: a rental, an operation or a delivery.

    The trace id is derived from the subject's id, so any process may add spans at any time.
    """

    # None: the trace has only this one part.
    subject: str | None = None
    # The rental that caused it, if it is not the rental itself.
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """One piece of finished work. It contains no words of a user or of the cloud."""

    name: str
    begun: datetime
    ended: datetime
    # None: a child of the span that is open where it is recorded.
    trace: Trace | None = None
    # The parent of all other spans of its trace.
    is_root: bool = False
    # A trace has only one span of this name. If two processes report it, it is the same span.
    is_single: bool = False
    kind: SpanKind = SpanKind.INTERNAL
    failed: bool = False
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8


def trace_id_of(subject: str) -> int:
    """Return the id of the trace of a subject: the 128 bits of its ULID."""
    number = ulid_number(subject.rpartition("_")[2])
    # Ids in another format have a trace too. Zero is not a valid trace id.
    return number or _hashed(subject, TRACE_ID_BYTES)


def root_span_id_of(subject: str) -> int:
    """Return the id of the root span of the trace."""
    return single_span_id_of(subject, "")


def single_span_id_of(subject: str, name: str) -> int:
    """Return the id of the only span of this name in a trace."""
    return _hashed(f"{subject} {name}", SPAN_ID_BYTES)


def _hashed(text: str, size: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1


INSTANCE_ID = "gpuherd.instance.id"
OUTCOME = "gpuherd.outcome"
CODE = "gpuherd.error.code"
ATTEMPT = "gpuherd.attempt"
HTTP_STATUS = "http.response.status_code"


def trace_of(instance: Instance) -> Trace:
    """Return the trace to which work for an instance belongs now.

    The rental trace ends when the instance is usable or has failed, because a trace must not last for weeks.
    Later work has its own trace with a link to the rental.
    """
    if instance.operation is not None and instance.operation.is_running:
        return Trace(instance.operation.id, instance.id)
    if is_renting(instance) or instance.releasing:
        return Trace(instance.id)
    return Trace(None, instance.id)


def is_renting(instance: Instance) -> bool:
    """Return True if it was never usable and still may become so."""
    return instance.ready_at is None and instance.last_error is None and instance.status is not Status.DELETED


def queued_since(instance: Instance) -> datetime | None:
    """Return since when the instance waits for its first pass; None if it has had one."""
    if instance.operation is not None and instance.operation.is_running:
        return instance.operation.requested_at if len(instance.operation.phases) <= 1 else None
    return instance.created_at if instance.sequence <= 1 and is_renting(instance) else None


def spans_of_change(before: Instance, after: Instance, now: datetime) -> Iterator[EndedSpan]:
    """Yield the spans that end with this change, except operations."""
    wait, still = before.waiting_for, after.waiting_for
    if wait is not None and wait.since is not None and (still is None or still.what is not wait.what):
        yield EndedSpan(
            f"wait: {wait.what.value}", wait.since, now, trace_of(before), attributes=_about(before)
        )
    if is_renting(before) and not is_renting(after):
        yield _rental(after, now)


def spans_of_operations(instance: Instance, operations: Iterable[Operation]) -> Iterator[EndedSpan]:
    """Yield the root spans of the operations that have ended."""
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


def _about(instance: Instance) -> dict[str, Attribute]:
    return {INSTANCE_ID: instance.id}


def _code(error: Failure | None) -> dict[str, Attribute]:
    return {} if error is None else {CODE: error.code}


ACCEPTED = "ok"


def try_span(
    delivery: Delivery, outcome: str, status: int | None, begun: datetime, ended: datetime
) -> EndedSpan:
    """Return the span of one try. The delivery is in its state before the try."""
    attributes = {**_delivery_spans_about(delivery), OUTCOME: outcome, ATTEMPT: delivery.tries + 1}
    if status is not None:
        attributes[HTTP_STATUS] = status
    return EndedSpan(
        "webhook try",
        begun,
        ended,
        _trace_of(delivery),
        kind=SpanKind.CLIENT,
        failed=outcome != ACCEPTED,
        attributes=attributes,
    )


def delivery_span(delivery: Delivery, now: datetime) -> EndedSpan:
    """Return the span of a delivery that was accepted or given up."""
    return EndedSpan(
        "delivery",
        delivery.created_at,
        now,
        _trace_of(delivery),
        is_root=True,
        failed=delivery.state is DeliveryState.DEAD,
        attributes={**_delivery_spans_about(delivery), OUTCOME: delivery.state.value},
    )


def _trace_of(delivery: Delivery) -> Trace:
    return Trace(delivery.id, None if delivery.instance_id == ACCOUNT else delivery.instance_id)


def _delivery_spans_about(delivery: Delivery) -> dict[str, Attribute]:
    return {"gpuherd.delivery.id": delivery.id, "gpuherd.event.type": delivery.type}


_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


def otlp_headers(text: str) -> dict[str, str]:
    """Return the headers of `name=value,name=value`. Raises `ValueError` without quoting a header."""
    headers = {}
    for pair in filter(None, (it.strip() for it in text.split(","))):
        name, found, value = (it.strip() for it in pair.partition("="))
        value = unquote(value)
        if not found or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError("must be name=value, several with commas between them; other characters as %XX")
        headers[name.lower()] = value
    return headers
