"""Traces are off unless asked for, and off costs nothing: not even an import."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys

import pytest

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap import build_cloud
from gpuherd.bootstrap.build_cloud import open_traces
from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.domain.trace_spans import EndedSpan, Trace
from gpuherd.ports.clock_port import Ids
from gpuherd.ports.telemetry_port import NullTracer
from gpuherd.settings import Settings

ON = {"GPUHERD_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@pytest.mark.proves("T4")
def test_off_by_default_and_nothing_of_it_is_imported() -> None:
    # The framework may use the API of OpenTelemetry; the rest is ours to ask for.
    ours = ("opentelemetry.sdk", "opentelemetry.exporter", "google.protobuf", "gpuherd.adapters.otel_tracer")
    said = f"import sys, gpuherd.bootstrap.serve; print(*[it for it in sys.modules if it.startswith({ours})])"
    ran = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
    clock = SystemClock()
    traces = open_traces(Settings.model_validate({}), clock, random.Random(1), Ids(clock, random.Random(1)))
    assert isinstance(traces.tracer, NullTracer) and not traces.tracer.is_on


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        it for it in sys.modules if it.startswith(("opentelemetry", "gpuherd.adapters.otel_tracer"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    clock = SystemClock()
    with pytest.raises(CannotStart, match=r"pip install 'gpuherd\[otel\]'"):
        open_traces(Settings.model_validate(ON), clock, random.Random(1), Ids(clock, random.Random(1)))


async def test_the_end_of_the_service_waits_a_moment_for_the_last_spans_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build_cloud, "CLOSE_LIMIT_S", 0.05)
    clock = SystemClock()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = {"GPUHERD_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        settings = Settings.model_validate(address)
        traces = open_traces(settings, clock, random.Random(1), Ids(clock, random.Random(1)))
        traces.tracer.record(EndedSpan("turn", clock.now(), clock.now(), Trace("inst_1")))
        async with asyncio.timeout(5):
            await traces.close()
