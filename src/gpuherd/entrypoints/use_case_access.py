"""The use cases that requests and pages reach, and plain replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from structlog.typing import EventDict, WrappedLogger

from gpuherd.contract.wire_models import ReplyModel
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.replica_port import Replica
from gpuherd.ports.telemetry_port import Meter, MetricsPage, Tracer
from gpuherd.usecases.cloud.guard_creates import AccountGuard, VanishingBrake
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.services import Services


@dataclass(frozen=True)
class ShownSetting:
    """A setting, fit for everybody's eyes."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Plane:
    """What the outside may use of the inside."""

    services: Services
    account: AccountGuard
    vanishing: VanishingBrake
    catalogue: CatalogueCache
    targets: EgressPolicy
    clock: Clock
    ids: Ids
    meter: Meter
    tracer: Tracer
    metrics: MetricsPage
    # False before everything runs and as soon as a shutdown begins.
    is_ready: Callable[[], bool]
    # All processes on the same database. Empty for a process with its own SQLite file.
    replicas: Callable[[], Sequence[Replica]] = tuple
    # The settings in force, without anything secret.
    settings_shown: Callable[[], Sequence[ShownSetting]] = tuple


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


def json_reply(value: ReplyModel, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return one of the contract's objects as JSON."""
    return JsonReply(to_json(value), status, headers)


def bytes_reply(body: bytes, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON that is encoded already."""
    return JsonReply(body, 200, headers)


def header(request: Request, name: bytes) -> bytes | None:
    """Return the first header of this name, without the index that the framework would build for it."""
    return dict(reversed(request.scope["headers"])).get(name)


def plane_of(request: Request) -> Plane:
    """Return the use cases that this application was built with."""
    return cast(Plane, request.app.state.plane)


# Anything else could forge a log line or a header, so it is replaced, not passed on.
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class RequestContext:
    """The ids of the request that is being answered."""

    request_id: str
    correlation_id: str
    at: datetime


current_request: ContextVar[RequestContext] = ContextVar("request")


def add_request_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the request in the midst of which something is logged, as a processor of structlog."""
    request = current_request.get(None)
    if request is not None:
        event.setdefault("request_id", request.request_id)
        event.setdefault("correlation_id", request.correlation_id)
    return event


def sanitized_id(value: bytes) -> str | None:
    """Return an id that a client sent, if it is harmless."""
    return value.decode("ascii") if _SAFE_ID.fullmatch(value) else None
