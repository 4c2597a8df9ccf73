"""The connector refuses by itself whatever nobody has judged, should a caller ever forget."""

from __future__ import annotations

import aiohttp
import pytest

from gpuherd.adapters.egress.guarded_client import PinnedConnector, pinned, strict_tls
from tests.adapters.egress.doubles import Receiver


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=PinnedConnector(strict_tls()))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_without_a_pin_nothing_is_connected(host: str) -> None:
    async with Receiver() as listener, session() as client:
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"http://{host}:{listener.port}/")
        assert listener.connections == 0


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.9"), ("localhost", "127.0.0.1")])
async def test_a_pin_for_another_host_opens_nothing(host: str, address: str) -> None:
    async with Receiver() as listener, session() as client:
        with pinned("hook.example.com", (address,)), pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"http://{host}:{listener.port}/")
        assert listener.connections == 0


async def test_a_pin_ends_with_its_block() -> None:
    async with Receiver() as listener, session() as client:
        with pinned("hook.example.com", ("127.0.0.1",)) as pin:
            async with client.get(f"http://hook.example.com:{listener.port}/") as response:
                assert response.status == 200
        assert pin.peer == "127.0.0.1"
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"http://hook.example.com:{listener.port}/")
        assert listener.connections == 1
