"""The web application: the API, and the dashboard beside it."""

from __future__ import annotations

from functools import partial

from starlette.types import ASGIApp

from gpuherd.entrypoints.http.app import build_app
from gpuherd.entrypoints.http.middleware.limit_requests import BODY_TIMEOUT_S
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.web.lazy_pages import LazyPages


def build_application(
    plane: Plane,
    *,
    body_timeout_s: float = BODY_TIMEOUT_S,
    worker: bool = False,
) -> ASGIApp:
    """Return the application for one plane; of a worker, what tells how it is."""
    pages = partial(LazyPages, plane)
    return build_app(plane, pages, body_timeout_s=body_timeout_s, worker=worker)
