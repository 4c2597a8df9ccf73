"""Webhooks as spans: each try, and the delivery as a whole.

A delivery has a trace of its own: its receiver may be away for days, and the rental is over by then.
"""

from __future__ import annotations

from datetime import datetime

from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.domain.tracing.rental_spans import ATTEMPT, HTTP_STATUS, OUTCOME
from gpuherd.domain.tracing.span import Attribute, EndedSpan, SpanKind, Trace
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryState

ACCEPTED = "ok"


def try_span(
    delivery: Delivery, outcome: str, status: int | None, begun: datetime, ended: datetime
) -> EndedSpan:
    """Return one try; the delivery is as it was before it."""
    attributes = {**_about(delivery), OUTCOME: outcome, ATTEMPT: delivery.tries + 1}
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
    """Return a delivery that has ended: its receiver took it, or it was given up."""
    return EndedSpan(
        "delivery",
        delivery.created_at,
        now,
        _trace_of(delivery),
        is_root=True,
        failed=delivery.state is DeliveryState.DEAD,
        attributes={**_about(delivery), OUTCOME: delivery.state.value},
    )


def _trace_of(delivery: Delivery) -> Trace:
    return Trace(delivery.id, None if delivery.instance_id == ACCOUNT else delivery.instance_id)


def _about(delivery: Delivery) -> dict[str, Attribute]:
    return {"gpuherd.delivery.id": delivery.id, "gpuherd.event.type": delivery.type}
