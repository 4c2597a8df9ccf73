"""Stands for the dashboard until somebody opens it: no start of a server waits for templates to load."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gpuherd.entrypoints.plane import Plane

APP = "gpuherd.entrypoints.web.app"


class LazyPages:
    """Builds the pages at the first request for one."""

    def __init__(self, plane: Plane, document: Callable[[], dict[str, Any]]):
        self._plane = plane
        self._document = document
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            module = await asyncio.to_thread(importlib.import_module, APP)
            self._app = self._app or module.build_pages(self._plane, self._document)
        await self._app(scope, receive, send)
