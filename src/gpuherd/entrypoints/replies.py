"""JSON replies without a detour through models, and the way from a request to the plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.codec.model import Model
from gpuherd.entrypoints.plane import Plane
from gpuherd.usecases.compact_json import compact


def json_reply(value: Model, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return one of the contract's objects as JSON."""
    return Response(compact(value), status_code=status, media_type="application/json", headers=headers)


def bytes_reply(body: bytes, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON that is encoded already."""
    return Response(body, media_type="application/json", headers=headers)


def header(request: Request, name: bytes) -> bytes | None:
    """Return the first header of this name, without the index that the framework would build for it."""
    for key, value in request.scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def plane_of(request: Request) -> Plane:
    """Return the use cases that this application was built with."""
    return cast(Plane, request.app.state.plane)
