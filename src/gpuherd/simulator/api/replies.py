"""Turns the outcome of a call into bytes on the connection, or into no bytes at all."""

from __future__ import annotations

import json
from functools import partial

from aiohttp import web

from gpuherd.simulator.api.shapes import error_shape
from gpuherd.simulator.errors import GarbageReply, SimulatedError

_dumps = partial(json.dumps, separators=(",", ":"))

SERVER_LINE = "<hr><center>nginx</center>"


def json_reply(body: object, status: int = 200) -> web.Response:
    return web.json_response(body, status=status, dumps=_dumps)


def error_reply(error: SimulatedError) -> web.Response:
    """Word an error as the cloud does, or as the proxy in front of it does."""
    if error.from_gateway:
        return page_reply(error.status, error.message)
    reply = json_reply(error_shape(error), error.status)
    reply.headers.update(error.headers)
    return reply


def page_reply(status: int, phrase: str, *, shown_status: int | None = None) -> web.Response:
    """Return a page such as a proxy makes; `shown_status` is the one it prints if that is another."""
    title = f"{shown_status or status} {phrase}"
    html = (
        f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n"
        f"<center><h1>{title}</h1></center>\r\n{SERVER_LINE}\r\n</body>\r\n</html>\r\n"
    )
    return web.Response(status=status, text=html, content_type="text/html")


def cut(request: web.Request) -> web.Response:
    """Drop the connection without a word; what is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def garbage_reply(request: web.Request, garbage: GarbageReply) -> web.StreamResponse:
    """Answer 200 with something that no client should take for an answer."""
    machine_id = str(garbage.result)
    match garbage.style:
        case "cut":
            return await _cut_midway(request, _dumps({"id": machine_id}).encode())
        case "html":
            return page_reply(200, "Bad Gateway", shown_status=502)
        case "wrong_type":
            return web.Response(text=_dumps({"id": machine_id}), content_type="text/plain")
        case "binary":
            return web.Response(body=bytes(range(256)), content_type="application/json")
        case style:
            return web.Response(text=_BODIES[style], content_type="application/json")


_BODIES = {
    "broken_json": '{"id": "5f0c9b1d2e3a4f60',
    "empty": "",
    "empty_id": '{"id":""}',
    "number_id": '{"id":6849273645281736}',
    "null_id": '{"id":null}',
    "no_id": "{}",
    "list": "[]",
    "text": "ok",
}


async def _cut_midway(request: web.Request, body: bytes) -> web.StreamResponse:
    reply = web.StreamResponse(headers={"Content-Type": "application/json"})
    reply.content_length = len(body)
    await reply.prepare(request)
    await reply.write(body[: len(body) // 2])
    # Closed and not aborted, so that the first half still gets through.
    if request.transport is not None:
        request.transport.close()
    return reply
