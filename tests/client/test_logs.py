"""`herd.instances.logs()`: bytes as they come, over real sockets, until either side has enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from datetime import timedelta

import pytest

from gpuherd.bootstrap.http_server import ConnectionLimits
from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import ConnectionFailed, Unavailable
from gpuherd.client.sync_client import Gpuherd
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.ports.egress_port import EgressFailure, FailureCategory
from tests.entrypoints.http.conftest import KEY, herd, meter, plane
from tests.entrypoints.http.raw_http import running_server
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

__all__ = ["herd", "meter", "plane"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def read(logs: Iterator[bytes] | AsyncIterator[bytes], *, pieces: int = 99) -> bytes:
    """Read so many pieces and leave, in a task or in a thread."""
    if isinstance(logs, AsyncIterator):
        got = b""
        async with aclosing(logs):  # type: ignore[type-var]
            async for piece in logs:
                got += piece
                pieces -= 1
                if not pieces:
                    break
        return got

    def here() -> bytes:
        with closing(logs):  # type: ignore[type-var]
            return b"".join(piece for _, piece in zip(range(pieces), logs, strict=False))

    return await asyncio.to_thread(here)


async def until_open(herd: Herd, count: int) -> None:
    async with asyncio.timeout(20):
        while herd.logs.open != count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", [Gpuherd, AsyncGpuherd])
async def test_a_log_is_read_refused_followed_left_and_broken_off(
    kind: type[Gpuherd] | type[AsyncGpuherd], herd: Herd, plane: Plane
) -> None:
    await herd.launch("job")
    await herd.run_and_advance(timedelta(minutes=2))
    async with running_server(plane, ConnectionLimits()) as door:
        logs = kind(f"http://127.0.0.1:{door.port}", KEY, max_retries=0).instances.logs
        assert await read(logs("job")) == b"the program is up\nstep 1\n"
        herd.logs.failure = EgressFailure(FailureCategory.TIMEOUT, "too slow")
        with pytest.raises(Unavailable) as refused:
            await read(logs("job"))
        assert refused.value.code == "LOG_UNREACHABLE"

        herd.logs.failure, herd.logs.ends = None, False
        assert (await read(logs("job", source="system", follow=True), pieces=1)).startswith(b"the program")
        await until_open(herd, 0)
        following = asyncio.create_task(read(logs("job", follow=True)))
        await until_open(herd, 1)
        herd.logs.failure = EgressFailure(FailureCategory.RESET, "it broke")
        herd.logs.say()
        with pytest.raises(ConnectionFailed):
            await following
