"""Traces, where they are asked for; else nothing of them is imported."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpuherd.bootstrap.data_dir import CannotStart
from gpuherd.clock import Clock, Ids, Random
from gpuherd.domain.tracing.otlp_headers import otlp_headers
from gpuherd.ports.tracing.null_tracer import NullTracer
from gpuherd.ports.tracing.tracer import Tracer
from gpuherd.resilience.daemon_thread import run_in_daemon_thread
from gpuherd.settings import Settings

# So long the end of the service waits for the last spans; an exporter that is down gets none of them.
CLOSE_LIMIT_S = 2.0


@dataclass(frozen=True)
class Traces:
    """Who takes the spans, and how to end it."""

    tracer: Tracer
    close: Callable[[], Awaitable[None]]


async def _nothing() -> None: ...


def open_traces(settings: Settings, clock: Clock, rng: Random, ids: Ids) -> Traces:
    """Return who takes the spans; `CannotStart` if the extra is missing that it needs."""
    if settings.otlp_endpoint is None:
        return Traces(NullTracer(), _nothing)
    try:
        from gpuherd.adapters.tracing.otel_tracer import OtelTracer  # noqa: PLC0415  an extra
        from gpuherd.adapters.tracing.otlp import OtlpExporter  # noqa: PLC0415  an extra
        from gpuherd.adapters.tracing.otlp_encoder import OtlpEncoder  # noqa: PLC0415  an extra
        from gpuherd.adapters.tracing.span_queue import SpanQueue  # noqa: PLC0415  an extra
    except ModuleNotFoundError as error:
        raise CannotStart(
            "GPUHERD_OTLP_ENDPOINT is set, and traces need an extra that is not installed: "
            "pip install 'gpuherd[otel]'"
        ) from error
    headers = {} if settings.otlp_headers is None else otlp_headers(settings.otlp_headers.reveal())
    queue = SpanQueue(OtlpExporter(settings.otlp_endpoint, OtlpEncoder(ids.new("proc_")), headers))

    async def close() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await run_in_daemon_thread(queue.close, "gpuherd-traces")

    return Traces(OtelTracer(queue, clock, rng, ratio=settings.trace_ratio), close)
