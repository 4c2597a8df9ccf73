"""What a worker process serves.

Its health and metrics; every other path is refused with a pointer to an API replica.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from gpuherd.entrypoints.problems import problem, problem_response

SERVED = frozenset({"/livez", "/readyz", "/health", "/metrics"})


class WorkerOnlyMiddleware:
    """Passes on only what monitoring asks about this process."""

    def __init__(self, inside: ASGIApp):
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in SERVED:
            await self._inside(scope, receive, send)
            return
        detail = "this process is a worker (serve --role worker); ask a replica that serves the API"
        await problem_response(problem(404, "NOT_SERVED_HERE", detail))(scope, receive, send)
