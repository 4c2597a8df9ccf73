"""Idempotency keys of requests."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import (
    ASGIApp,
    Message,
    Receive,
    Scope,
    Send,
)

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.entrypoints.http.json_body import read_body
from gpuherd.entrypoints.http_auth import declared_route
from gpuherd.entrypoints.route_scopes import NATIVE_CLAIMS
from gpuherd.ports.access_port import IdempotencyClaim, StoredReply
from gpuherd.usecases.access.audit_requests import answer_once, claim_request
from gpuherd.usecases.services import Services

IDEMPOTENCY_HEADER = b"idempotency-key"
REPLAYED_HEADER = "Idempotency-Replayed"
_KEY_PATTERN = re.compile(rb"[\x21-\x7e]{1,255}")


def claim_of(scope: Scope, body: Any, services: Services) -> IdempotencyClaim | None:
    """Return the claim that a request makes, None if it makes none."""
    if IDEMPOTENCY_HEADER not in dict(scope["headers"]):
        return None
    sent = [value for name, value in scope["headers"] if name == IDEMPOTENCY_HEADER]
    if len(sent) > 1 or not _KEY_PATTERN.fullmatch(sent[0]):
        message = "Idempotency-Key must be given once, with 1 to 255 visible ASCII characters"
        raise InvalidRequest([FieldProblem("Idempotency-Key", "INVALID_IDEMPOTENCY_KEY", message)])
    key = sent[0].decode("ascii")
    return claim_request(services, scope["caller"].key_id, key, scope["method"], scope["path"], body=body)


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


# What is shown once is not kept, and so is not in the second reply.
SECRET_FIELDS = ("key", "secret", "webhookSecret")


class IdempotencyMiddleware:
    """Runs behind authorization."""

    def __init__(self, app: ASGIApp, services: Services):
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not (_has_key(scope) and _needs_claim(scope)):
            await self._app(scope, receive, send)
            return
        raw = await read_body(receive)
        claim = claim_of(scope, _parsed_or_hex(raw), self._services)
        assert claim is not None, "there is a header"
        reply = _BufferedReply()

        async def answer() -> StoredReply | None:
            await self._app(scope, _replay_body(raw, receive), reply)
            return reply.kept() if reply.status < 300 else None

        if (stored := await answer_once(self._services, claim, answer)) is not None:
            await _replay(stored)(scope, receive, send)
            return
        for message in reply.messages:
            await send(message)


class _BufferedReply:
    """A reply that is buffered until its claim is finished."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    def kept(self) -> StoredReply:
        body = b"".join(message.get("body", b"") for message in self.messages[1:])
        shown = ("location", "content-type")
        headers = {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}
        return StoredReply(
            self.status,
            {name: value for name, value in headers.items() if name in shown},
            _without_secrets(body),
        )


def _has_key(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] in SAFE_METHODS or "caller" not in scope:
        return False
    return any(name == IDEMPOTENCY_HEADER for name, _ in scope["headers"])


def _needs_claim(scope: Scope) -> bool:
    route = declared_route(scope)
    return route is not None and route not in NATIVE_CLAIMS


def _replay_body(raw: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return again


def _parsed_or_hex(raw: bytes) -> Any:
    """Return what a body says; one that is no JSON will be refused, and is nothing but its bytes."""
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return raw.hex()


def _replay(kept: StoredReply) -> Response:
    return Response(kept.body, status_code=kept.status, headers={**kept.headers, REPLAYED_HEADER: "true"})


def _without_secrets(body: bytes) -> str:
    if not body:
        return ""
    value = json.loads(body)
    return to_json({name: None if name in SECRET_FIELDS else it for name, it in value.items()}).decode()
