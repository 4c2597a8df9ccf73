"""The door of a worker: it tells how it is, and sends everything else to a replica that serves the API."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from gpuherd.entrypoints.http.problems import problem, problem_response

SERVED = frozenset({"/livez", "/readyz", "/health", "/metrics"})


class WorkerDoor:
    """Lets through what machines ask about this process."""

    def __init__(self, inside: ASGIApp):
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in SERVED:
            await self._inside(scope, receive, send)
            return
        detail = "this process is a worker (serve --role worker); ask a replica that serves the API"
        await problem_response(problem(404, "NOT_SERVED_HERE", detail))(scope, receive, send)
