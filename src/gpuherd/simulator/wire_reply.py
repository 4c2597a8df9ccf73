"""One reply on the wire: JSON, a proxy's page, or garbage, and how aiohttp sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from gpuherd.simulator.novita_shapes import error_shape
from gpuherd.simulator.simulated_request import GarbageReply, SimulatedError

JSON, HTML = "application/json", "text/html"
SERVER_LINE = "<hr><center>nginx</center>"


@dataclass(frozen=True, slots=True)
class WireReply:
    """One reply. With `breaks_off`, the connection ends in the middle of the body."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks_off: bool = False


def json_reply(body: object, status: int = 200) -> WireReply:
    return WireReply(status, _json(body))


def error_reply(error: SimulatedError) -> WireReply:
    """Return an error in the format of the cloud, or of the proxy in front of it."""
    if error.from_gateway:
        return page_reply(error.status, error.message)
    return WireReply(error.status, _json(error_shape(error)), headers=error.headers)


def page_reply(status: int, phrase: str, *, shown_status: int | None = None) -> WireReply:
    """Return an HTML page of a proxy; `shown_status` is the printed status if it differs."""
    title = f"{shown_status or status} {phrase}"
    html = (
        f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n"
        f"<center><h1>{title}</h1></center>\r\n{SERVER_LINE}\r\n</body>\r\n</html>\r\n"
    )
    return WireReply(status, html.encode(), HTML)


def garbage_reply(garbage: GarbageReply) -> WireReply:
    """Return status 200 with content that no client should accept."""
    machine = _json({"id": str(garbage.result)})
    match garbage.style:
        case "cut":
            return WireReply(200, machine, breaks_off=True)
        case "html":
            return page_reply(200, "Bad Gateway", shown_status=502)
        case "wrong_type":
            return WireReply(200, machine, "text/plain")
        case "binary":
            return WireReply(200, bytes(range(256)))
        case style:
            return WireReply(200, _BODIES[style])


_BODIES = {
    "broken_json": b'{"id": "5f0c9b1d2e3a4f60',
    "empty": b"",
    "empty_id": b'{"id":""}',
    "number_id": b'{"id":6849273645281736}',
    "null_id": b'{"id":null}',
    "no_id": b"{}",
    "list": b"[]",
    "text": b"ok",
}


def _json(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def cut(request: web.Request) -> web.Response:
    """Drop the connection; the returned response is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def send_reply(request: web.Request, reply: WireReply) -> web.StreamResponse:
    """Send a reply, or the first half of one that breaks off."""
    if not reply.breaks_off:
        return web_response(reply)
    sent = web.StreamResponse(headers={"Content-Type": reply.content_type})
    sent.content_length = len(reply.body)
    await sent.prepare(request)
    await sent.write(reply.body[: len(reply.body) // 2])
    # Close, not abort, so that the first half is sent.
    if request.transport is not None:
        request.transport.close()
    return sent


def web_response(reply: WireReply) -> web.Response:
    """Return a whole reply as aiohttp sends it."""
    response = web.Response(
        status=reply.status, body=reply.body, content_type=reply.content_type, charset="utf-8"
    )
    response.headers.update(reply.headers)
    return response
