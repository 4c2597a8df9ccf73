"""A call to Novita as a span: which call it was and how it ended, and nothing else of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpuherd.adapters.novita.novita_transport import CallRecord, call_span
from gpuherd.domain.trace_spans import SpanKind

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        ("/gpu/instance/create", "novita create"),
        ("/gpu/instance", "novita get"),
        ("/repository/auth/save", "novita repository/auth/save"),
    ],
)
def test_a_call_is_told_by_its_path_its_status_and_its_outcome(endpoint: str, name: str) -> None:
    record = CallRecord(endpoint, "server_error", 503, duration_s=1.0, method="POST", attempt=2)
    span = call_span(record, NOW, NOW + timedelta(seconds=1))
    assert (span.name, span.kind, span.failed, span.trace) == (name, SpanKind.CLIENT, True, None)
    assert span.attributes == {
        "http.request.method": "POST",
        "url.path": endpoint,
        "gpuherd.attempt": 2,
        "gpuherd.outcome": "server_error",
        "http.response.status_code": 503,
    }
