"""Replies become typed values. What is new, missing or odd does not break a client."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.client.client_errors import UnexpectedReply
from tests.client.support.server import AnyClient, FakeServer, client_of, details


@pytest.fixture
def call(server: FakeServer) -> AnyClient:
    return client_of("async", server)


async def read(call: AnyClient, server: FakeServer, instance: dict[str, Any]) -> Any:
    server.script(instance)
    return await call(lambda herd: herd.instances.get("train-1"))


async def test_money_is_decimal_and_times_are_aware(call: AnyClient, server: FakeServer) -> None:
    it = await read(
        call,
        server,
        details(
            "running",
            hourlyPrice="0.35001",
            createdAt="2026-05-01T12:00:00.5+02:00",
            portMappings=[{"port": 8888, "endpoint": "https://a.example", "type": "http"}],
            labels={"a": "b"},
            lastError={"code": "X", "message": "m", "at": None},
        ),
    )
    assert it.hourly_price == Decimal("0.35001")
    assert it.created_at == datetime(2026, 5, 1, 10, 0, 0, 500000, UTC)
    assert (it.endpoint(8888), it.endpoint(1)) == ("https://a.example", None)
    assert (it.labels, it.last_error.code) == ({"a": "b"}, "X")


async def test_what_is_new_is_in_raw_and_breaks_nothing(call: AnyClient, server: FakeServer) -> None:
    it = await read(call, server, details(leaseEndsAt="2027-01-01T00:00:00Z", status="dreaming"))
    assert it.raw["leaseEndsAt"] == "2027-01-01T00:00:00Z"
    assert it.status == "dreaming"
    assert it == await read(call, server, details(status="dreaming"))


@pytest.mark.parametrize("missing", ["hourlyPrice", "createdAt", "goal", "statusReason", "usable"])
async def test_what_is_missing_reads_as_absent(call: AnyClient, server: FakeServer, missing: str) -> None:
    it = await read(call, server, {name: value for name, value in details().items() if name != missing})
    assert it.id == "inst_1"


@pytest.mark.parametrize("field", ["id", "name", "status"])
async def test_what_must_be_there_is_missed(call: AnyClient, server: FakeServer, field: str) -> None:
    for odd in (None, dict[str, Any](), list[Any]()):
        with pytest.raises(UnexpectedReply, match=field):
            await read(call, server, {**details(), field: odd})


async def test_nothing_that_opens_a_machine_is_in_a_repr(call: AnyClient, server: FakeServer) -> None:
    ways = {"ssh": "ssh canary", "jupyter": "https://x?token=canary", "webTerminal": "canary"}
    it = await read(call, server, details(connectionDetails=ways, webhookUrl="https://x?canary"))
    assert it.ssh == "ssh canary"
    assert "canary" not in repr(it)
