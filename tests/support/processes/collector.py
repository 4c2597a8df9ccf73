"""A collector of traces: takes what a process exports, and outlives it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.processes.services import taking_posts


class Collector:
    """All bytes that came, and the spans in them."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.authorizations: set[str | None] = set()
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.got.append(await request.read())
        self.authorizations.add(request.headers.get("Authorization"))
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
    async with taking_posts("/v1/traces", it.take) as it.url:
        yield it
