"""A collector of traces: takes what a process exports, and outlives it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """All bytes that came, and the spans in them."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.got.append(await request.read())
        return web.Response()

    def spans(self) -> list[Span]:
        requests = [ExportTraceServiceRequest.FromString(it) for it in self.got]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextlib.asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    it = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", it.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    it.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield it
    finally:
        await runner.cleanup()
