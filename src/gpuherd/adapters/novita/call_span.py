"""A call to Novita as a span."""

from __future__ import annotations

from datetime import datetime

from gpuherd.adapters.novita.transport import CallRecord
from gpuherd.domain.tracing.rental_spans import ATTEMPT, HTTP_STATUS, OUTCOME
from gpuherd.domain.tracing.span import Attribute, EndedSpan, SpanKind

# What the calls are called that a rental is made of.
NAMES = {
    "/gpu/instance/create": "create",
    "/gpu/instance": "get",
    "/gpu/instance/start": "start",
    "/gpu/instance/stop": "stop",
    "/gpu/instance/delete": "delete",
    "/gpu/instance/restart": "restart",
    "/gpu/instances": "list",
}


def call_span(call: CallRecord, begun: datetime, ended: datetime) -> EndedSpan:
    """Return one try of one call, as a part of what is open."""
    attributes: dict[str, Attribute] = {
        "http.request.method": call.method,
        # Without the query: no id is in it.
        "url.path": call.endpoint,
        ATTEMPT: call.attempt,
        OUTCOME: call.outcome,
    }
    if call.status is not None:
        attributes[HTTP_STATUS] = call.status
    name = NAMES.get(call.endpoint, call.endpoint.strip("/"))
    is_failed = call.outcome != "ok"
    return EndedSpan(
        f"novita {name}", begun, ended, kind=SpanKind.CLIENT, failed=is_failed, attributes=attributes
    )
