"""Fixtures for the Novita adapter."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.net.self_signed import self_signed


@pytest.fixture(scope="session")
def unknown_certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate signed by nobody we know, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"), "localhost", "IP:127.0.0.1")


@pytest.fixture
async def tls_server(unknown_certificate: tuple[Path, Path]) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*unknown_certificate)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
