"""TLS to strangers: the name in the URL must be the name in the certificate, whatever address was pinned."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from gpuherd.adapters.egress.guarded_client import strict_tls
from gpuherd.ports.egress_port import EgressFailure, FailureCategory
from tests.adapters.egress.conftest import ClientMaker
from tests.adapters.egress.doubles import OK, StubResolver, get
from tests.support.net.self_signed import self_signed

NAME = "hook.example.com"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a self-signed certificate for NAME, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"), NAME, f"DNS:{NAME}")


@asynccontextmanager
async def https_server(certificate: tuple[Path, Path]) -> AsyncIterator[tuple[int, list[str | None]]]:
    """Serve on loopback; yield the port and the server names that clients asked for."""
    asked: list[str | None] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    context.sni_callback = lambda _socket, name, _context: asked.append(name)

    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield runner.addresses[0][1], asked
    await runner.cleanup()


def trusting(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = strict_tls()
    context.load_verify_locations(certificate[0])
    return context


async def test_the_name_is_used_for_sni_and_certificate_while_the_address_is_pinned(
    certificate: tuple[Path, Path], make_client: ClientMaker
) -> None:
    resolver = StubResolver({NAME: [["127.0.0.1"]]})
    async with https_server(certificate) as (port, asked):
        reply = await get(
            make_client(resolver=resolver, tls=trusting(certificate)), f"https://{NAME}:{port}/"
        )
    assert (reply.status, reply.body, reply.address) == (200, b"hello", "127.0.0.1")
    assert asked == [NAME]


@pytest.mark.parametrize("host", ["other.example.com", "127.0.0.1", "localhost"])
async def test_a_certificate_for_another_name_is_refused(
    host: str, certificate: tuple[Path, Path], make_client: ClientMaker
) -> None:
    resolver = StubResolver({host: [["127.0.0.1"]]})
    async with https_server(certificate) as (port, _):
        with pytest.raises(EgressFailure) as caught:
            await get(make_client(resolver=resolver, tls=trusting(certificate)), f"https://{host}:{port}/")
    assert caught.value.category is FailureCategory.TLS


async def test_a_self_signed_certificate_is_refused(
    certificate: tuple[Path, Path], make_client: ClientMaker
) -> None:
    resolver = StubResolver({NAME: [["127.0.0.1"]]})
    async with https_server(certificate) as (port, _):
        with pytest.raises(EgressFailure) as caught:
            await get(make_client(resolver=resolver), f"https://{NAME}:{port}/")
    assert caught.value.category is FailureCategory.TLS
    assert "certificate" in caught.value.detail


async def test_plain_http_behind_https_is_a_tls_failure(make_client: ClientMaker) -> None:
    async def talk_first(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(talk_first, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EgressFailure) as caught:
            await get(make_client(), f"https://127.0.0.1:{port}/")
    assert caught.value.category is FailureCategory.TLS


def test_strict_tls_checks_everything() -> None:
    context = strict_tls()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
