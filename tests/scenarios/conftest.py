"""Real processes for scenario tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.processes.services import Novita, Receiver, Server, receiver


@pytest.fixture
async def novita(tmp_path: Path) -> AsyncIterator[Novita]:
    it = Novita(tmp_path)
    await it.process.start()
    async with asyncio.timeout(60):
        while "simulated Novita" not in it.process.log.read_text():
            await asyncio.sleep(0.05)
    yield it
    await it.process.end()


@pytest.fixture
async def hooks() -> AsyncIterator[Receiver]:
    async with receiver() as it:
        yield it


@pytest.fixture
async def server(tmp_path: Path, novita: Novita) -> AsyncIterator[Server]:
    it = Server(tmp_path, novita)
    await it.start()
    yield it
    if it.process.exit_code is None:
        await it.process.end()
