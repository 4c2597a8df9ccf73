"""How a page says which requests it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]
Routes = Mapping[tuple[str, str], Handler]
