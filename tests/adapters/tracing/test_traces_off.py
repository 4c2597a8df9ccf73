"""Where nobody keeps traces, nothing of them stands in the way of a request or a turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuherd.adapters.otel_tracer import TracedLeases
from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.http.request_middleware import TracingMiddleware
from gpuherd.simulator.world.world import World
from gpuherd.usecases.service.run_jobs import TracedHandler
from tests.adapters.tracing.exported import TracingProcess
from tests.support.fake_clock import FakeClock
from tests.support.herd import FileHerd, Herd


def in_the_way(herd: Herd) -> set[type]:
    parts = (build_application(herd.plane), herd.advance.instance_leases, *herd.run_job.handlers.values())
    return {type(it) for it in parts} & {TracingMiddleware, TracedLeases, TracedHandler}


def test_only_where_traces_are_kept_something_is_in_the_way(
    tmp_path: Path,
    world: World,
    clock: FakeClock,
    processes: Callable[..., tuple[Herd, TracingProcess]],
) -> None:
    plain = FileHerd(tmp_path / "plain.db", world, clock)
    assert in_the_way(plain) == set()
    plain.close()
    assert in_the_way(processes()[0]) == {TracingMiddleware, TracedLeases, TracedHandler}
