"""Requests that no honest client sends: each is refused in so many words, and nothing comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from gpuherd.bootstrap.http_server import ConnectionLimits, guarded_config
from gpuherd.entrypoints.route_scopes import ROUTE_SCOPES
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.entrypoints.http.raw_http import RawReply, RunningServer, running_server, serving, until_closed
from tests.support.herd import Herd

MEMBERS = {"type", "title", "status", "detail", "code", "requestId", "correlationId", "timestamp"}
CANARY = "sk_canary_that_nobody_may_repeat"
AUTH = (
    b"Host: gpuherd\r\nAuthorization: Bearer " + KEY.encode() + b"\r\nX-Secret: " + CANARY.encode() + b"\r\n"
)
GET = b"GET /api/instances HTTP/1.1\r\n" + AUTH
POST = b"POST /api/instances HTTP/1.1\r\n" + AUTH
WISH = b'{"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}'
CHUNK = b"%x\r\n%b\r\n" % (len(WISH), WISH)


@pytest.fixture
async def door(plane: Plane) -> AsyncIterator[RunningServer]:
    async with running_server(plane, ConnectionLimits(head_s=1, body_s=1, idle_s=1)) as it:
        yield it


def assert_problem(status: int, content_type: str, problem: Any) -> None:
    assert 400 <= status < 500, problem
    assert content_type == "application/problem+json"
    assert problem.keys() >= MEMBERS
    assert problem["status"] == status


WIRE = {
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, 400),
    "no version": (b"GET /livez\r\n\r\n", 400),
    "a version to come": (b"GET /livez HTTP/3.7\r\n\r\n", 400),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 68\r\nContent-Length: 5\r\n\r\n" + WISH, 400),
    "length and chunks": (
        POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNK + b"0\r\n\r\n",
        400,
    ),
    "chunks and length": (
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n" + CHUNK + b"0\r\n\r\n",
        400,
    ),
    "chunks under another name": (
        POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNK + b"0\r\n\r\n",
        400,
    ),
    "a length below zero": (POST + b"Content-Length: -1\r\n\r\n" + WISH, 400),
    "a length with a sign": (POST + b"Content-Length: +68\r\n\r\n" + WISH, 400),
    "a length without end": (POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n" + WISH, 400),
    "a chunk that lies": (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + WISH + b"\r\n0\r\n\r\n", 400),
    "a chunk without a size": (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
    "a blank before the colon": (GET + b"X-Odd : 1\r\n\r\n", 400),
    "a header without a colon": (GET + b"odd\r\n\r\n", 400),
    "a carriage return in a value": (GET + b"X-Request-Id: a\rb\r\n\r\n", 400),
    "a null in a value": (GET + b"X-Request-Id: a\0b\r\n\r\n", 400),
    "a null in the path": (b"GET /api/\0 HTTP/1.1\r\n" + AUTH + b"\r\n", 400),
    "a header of 32 kB": (GET + b"X-Long: " + b"x" * 32768 + b"\r\n\r\n", 431),
    "a header without end": (GET + b"X-Long: " + b"x" * 200_000, 431),
    "a thousand headers": (GET + b"X-Many: 1234567890\r\n" * 1000 + b"\r\n", 431),
    "a path of 32 kB": (b"GET /api/" + b"x" * 32768 + b" HTTP/1.1\r\n" + AUTH + b"\r\n", 431),
}


@pytest.mark.parametrize(("sent", "status"), WIRE.values(), ids=WIRE.keys())
async def test_what_is_not_http_is_refused_and_the_connection_closed(
    door: RunningServer, herd: Herd, sent: bytes, status: int
) -> None:
    reply = await door.send(sent)
    assert reply.status == status
    assert b"connection: close" in reply.head
    if b"content-type: text/plain" in reply.head:
        assert b"Invalid HTTP request received." in reply.raw
    else:
        assert_problem(reply.status, "application/problem+json", reply.json)
    assert CANARY.encode() not in reply.raw
    assert KEY.encode() not in reply.raw
    assert herd.rows(herd.tables.instance) == []


async def test_no_second_request_can_be_smuggled_behind_a_refused_one(
    door: RunningServer, herd: Herd
) -> None:
    second = POST + b"Content-Length: 68\r\n\r\n" + WISH
    for _, (sent, _) in WIRE.items():
        if not sent.endswith(b"x"):
            reply = await door.send(sent + second)
            assert reply.raw.count(b"HTTP/1.1 ") == 1
    assert herd.rows(herd.tables.instance) == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"STEAL /api/instances HTTP/1.1\r\n", 405),
        (b"CONNECT example.com:443 HTTP/1.1\r\n", 404),
        (b"GET http://evil.example/livez HTTP/1.1\r\n", 404),
    ],
    ids=["an unknown method", "a tunnel", "another host in the address"],
)
async def test_what_no_route_answers_changes_nothing(
    door: RunningServer, herd: Herd, sent: bytes, status: int
) -> None:
    reply = await door.send(sent + AUTH + b"Connection: close\r\n\r\n")
    assert_problem(status, "application/problem+json", reply.json)
    assert herd.rows(herd.tables.instance) == []


@pytest.mark.parametrize("pieces", [1, 20])
async def test_a_head_that_is_too_large_is_431_in_one_piece_or_in_many(
    door: RunningServer, pieces: int
) -> None:
    reader, writer = await door.connect()
    head = GET + b"X-Long: " + b"x" * 17_000 + b"\r\n\r\n"
    size = len(head) // pieces + 1
    for start in range(0, len(head), size):
        writer.write(head[start : start + size])
        await writer.drain()
        await asyncio.sleep(0)
    reply = RawReply(await until_closed(reader))
    writer.close()
    assert (reply.status, reply.json["code"]) == (431, "HEADERS_TOO_LARGE")
    assert b"connection: close" in reply.head


async def test_the_second_head_of_a_connection_has_the_same_limit(door: RunningServer) -> None:
    reader, writer = await door.connect()
    live = b"GET /livez HTTP/1.1\r\nHost: gpuherd\r\n"
    writer.write(live + b"\r\n" + live + b"X-Long: " + b"x" * 30_000 + b"\r\n\r\n")
    replies = await until_closed(reader)
    writer.close()
    assert replies.startswith(b"HTTP/1.1 200 ")
    assert replies.count(b"HTTP/1.1 431 ") == 1


@pytest.mark.parametrize("trailers", [2, 2000])
async def test_trailers_of_a_body_never_become_headers_of_its_request(plane: Plane, trailers: int) -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            pass
        await asyncio.sleep(0)
        seen.extend(scope["headers"])
        assert message["type"] in ("http.request", "http.disconnect")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    sent = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNK
    sent += b"0\r\n" + b"Authorization: Bearer stolen\r\nX-Trailer: 1\r\n" * (trailers // 2) + b"\r\n"
    limits = ConnectionLimits(head_s=1, body_s=1, idle_s=1)
    config = guarded_config(app, limits, plane.clock, plane.ids)
    async with serving(uvicorn.Server(config)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await until_closed(reader)
        writer.close()
    assert [name for name, _ in seen] == [b"host", b"connection", b"transfer-encoding"]


async def test_an_offer_to_speak_another_protocol_is_not_taken(door: RunningServer) -> None:
    for name in (b"websocket", b"h2c"):
        asked = GET + b"Connection: Upgrade, close\r\nUpgrade: " + name + b"\r\nSec-WebSocket-Version: 13\r\n"
        reply = await door.send(asked + b"Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n")
        assert (reply.status, reply.json["total"]) == (200, 0)


WORDS = {
    "up": "..%2f..%2fetc%2fpasswd",
    "up twice encoded": "%252e%252e%252f",
    "up on Windows": "..%5c..%5cwin.ini",
    "null": "%00",
    "null inside": "inst_%00x",
    "4 kB": "x" * 4096,
    "emoji": "%F0%9F%92%A5",
    "not UTF-8": "%FF%FE",
    "surrogate": "%ED%A0%80",
    "semicolon": "a;b",
    "quote": "'--",
    "union": "x'%20UNION%20SELECT%20secret%20FROM%20api_key--",
    "like": "%25",
    "newline": "a%0d%0aX-Evil:%201",
    "script": "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    "template": "%7B%7B7*7%7D%7D",
    "lookup": "$%7Bjndi:ldap:%2F%2Fx%7D",
    "query": "x%3Fadmin=1%23",
}
WITH_WORD = sorted(it for it in ROUTE_SCOPES if "{" in it[1])


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS.keys())
async def test_strange_ids_find_nothing_on_any_route(api: httpx.AsyncClient, herd: Herd, word: str) -> None:
    before = await everything(herd)
    for method, path in WITH_WORD:
        start, _, rest = path.partition("{")
        reply = await api.request(method, f"{start}{word}{rest.partition('}')[2]}")
        assert_problem(reply.status_code, reply.headers["content-type"], reply.json())
        assert "x-evil" not in reply.headers
        assert len(reply.content) < 2000
    assert await everything(herd) == before


BODIES = {
    "a list": b"[]",
    "depth": b"[" * 100_000,
    "objects": b'{"a":' * 50_000,
    "exponent": b'{"gpuNum": 1e400, "maxHourlyPrice": 1e400, "limits": {"maxHourlyUsd": 1e400}}',
    "nan": b'{"maxHourlyPrice": NaN}',
    "minus zero": b'{"gpuNum": -0, "maxHourlyPrice": -0.0, "targetPort": -0}',
    "digits": b'{"gpuNum": ' + b"9" * 100_000 + b"}",
    "many digits": b'{"gpuNum": ' + b"9" * 4000 + b', "targetPort": ' + b"9" * 4000 + b"}",
    "surrogate": b'{"name": "\\ud800", "label": "\\udfff"}',
    "surrogate as a field": b'{"\\ud800": 1}',
    "null character": b'{"name": "a\\u0000b", "label": "a\\u0000b", "instanceName": "\\u0000"}',
    "twice": b'{"name": "a", "name": "b"}',
    "twice inside": b'{"healthCheck": {"path": "/", "path": "/x"}}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "utf-16": '{"name": "a"}'.encode("utf-16"),
    "not utf-8": b'{"name": "\xff"}',
    "long field": b'{"' + b"f" * 100_000 + b'": 1}',
    "many fields": b"{" + b",".join(b'"k%d": 1' % n for n in range(3_000)) + b"}",
    "very many fields": b"{" + b",".join(b'"k%d": 1' % n for n in range(50_000)) + b"}",
    "many items": b'{"regions": [' + b",".join([b"1"] * 100_000) + b'], "events": [[]], "scopes": [{}]}',
    "secret": b'{"password": "' + CANARY.encode() + b'", "name": ["' + CANARY.encode() + b'"]}',
}
WITH_BODY = [
    ("POST", "/api/instances"),
    ("POST", "/api/instances/start"),
    ("POST", "/api/instances/stop"),
    ("POST", "/api/instances/delete"),
    ("POST", "/api/instances/job/start"),
    ("POST", "/api/instances/job/stop"),
    ("DELETE", "/api/instances/job"),
    ("POST", "/api/cache/clear"),
    ("POST", "/api/keys"),
    ("POST", "/api/orphans/resume"),
    ("POST", "/api/orphans/m-1/adopt"),
    ("POST", "/api/webhooks/endpoints"),
    ("POST", "/api/webhooks/replay"),
    ("POST", "/api/webhooks/test"),
]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_strange_bodies_are_refused_on_every_route_that_reads_one(
    api: httpx.AsyncClient, herd: Herd, body: bytes
) -> None:
    await api.post("/api/instances", json=GOOD)
    before = await everything(herd)
    for method, path in WITH_BODY:
        reply = await api.request(method, path, content=body)
        assert_problem(reply.status_code, reply.headers["content-type"], reply.json())
        assert CANARY not in reply.text
        assert len(reply.content) < 20_000, path
    assert await everything(herd) == before


async def test_an_object_with_thousands_of_fields_is_not_looked_into(api: httpx.AsyncClient) -> None:
    reply = await api.post("/api/keys", content=BODIES["many fields"])
    assert [it["message"] for it in reply.json()["errors"]] == ["an object has more than 200 fields"]


async def test_a_reply_tells_of_some_mistakes_and_not_of_all_in_full(api: httpx.AsyncClient) -> None:
    reply = await api.post("/api/instances", json={f"{n}{'x' * 5000}": 1 for n in range(150)})
    errors = reply.json()["errors"]
    assert len(errors) == 50
    assert max(len(it["field"]) for it in errors) == 100
    assert max(len(it["message"]) for it in errors) == 300
    assert len(reply.json()["detail"]) == 1000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "gzip, identity", "x"])
async def test_a_packed_body_is_not_unpacked(api: httpx.AsyncClient, herd: Herd, encoding: str) -> None:
    before = await everything(herd)
    for method, path in WITH_BODY:
        reply = await api.request(method, path, content=b"{}", headers={"Content-Encoding": encoding})
        assert_problem(reply.status_code, reply.headers["content-type"], reply.json())
    assert await everything(herd) == before


async def test_headers_that_claim_another_request_are_ignored(api: httpx.AsyncClient, herd: Herd) -> None:
    made = (await api.post("/api/instances", json=GOOD)).json()
    before = await everything(herd)
    plain = await api.get(f"/api/instances/{made['id']}")
    for headers in (
        {"X-HTTP-Method-Override": "DELETE", "X-HTTP-Method": "DELETE", "X-Method-Override": "DELETE"},
        {"X-Original-URL": "/api/keys", "X-Rewrite-URL": "/api/keys", "X-Forwarded-Path": "/api/keys"},
        {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"},
        {"X-Forwarded-Prefix": "/evil", "Forwarded": "for=127.0.0.1;host=evil.example", "X-Real-IP": "::1"},
    ):
        reply = await api.get(f"/api/instances/{made['id']}", headers=headers)
        assert (reply.status_code, reply.content) == (200, plain.content)
        assert "evil" not in str(reply.headers)
    assert await everything(herd) == before


async def test_methods_that_no_route_has_are_405_and_say_which_there_are(api: httpx.AsyncClient) -> None:
    for path, allowed in (
        ("/api/instances", {"GET", "POST"}),
        ("/api/keys/key_x", {"GET", "DELETE"}),
        ("/livez", {"GET"}),
    ):
        for method in ("HEAD", "OPTIONS", "TRACE", "PUT", "PATCH"):
            reply = await api.request(method, path)
            assert reply.status_code == 405, (method, path)
            assert set(reply.headers["allow"].split(", ")) == allowed
            assert reply.headers["content-type"] == "application/problem+json"


async def test_another_spelling_of_a_path_is_another_path(api: httpx.AsyncClient) -> None:
    for path in (
        "//api/instances",
        "/API/instances",
        "/api/instances.",
        "/api//instances",
        "/api/instances/",
    ):
        reply = await api.get(f"http://gpuherd{path}")
        assert reply.status_code == 404, path
        assert_problem(reply.status_code, reply.headers["content-type"], reply.json())


async def everything(herd: Herd) -> list[Any]:
    """Return all that a refused request could have changed."""
    tables = herd.tables
    return [herd.rows(it) for it in (tables.instance, tables.api_key, tables.webhook_endpoint, tables.job)]
