"""JSON replies without a detour through models, and the way from a request to the plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.codec.model import Model
from gpuherd.entrypoints.plane import Plane
from gpuherd.usecases.compact_json import compact

JSON_TYPE = (b"content-type", b"application/json")


class JsonReply(Response):
    """A whole reply. The framework would look through the headers for those that are always here."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str] | None = None):
        self.status_code, self.body, self.background = status, body, None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), JSON_TYPE]
        if headers:
            self.raw_headers += [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
            ]


def json_reply(value: Model, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return one of the contract's objects as JSON."""
    return JsonReply(compact(value), status, headers)


def bytes_reply(body: bytes, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON that is encoded already."""
    return JsonReply(body, 200, headers)


def header(request: Request, name: bytes) -> bytes | None:
    """Return the first header of this name, without the index that the framework would build for it."""
    return dict(reversed(request.scope["headers"])).get(name)


def plane_of(request: Request) -> Plane:
    """Return the use cases that this application was built with."""
    return cast(Plane, request.app.state.plane)
