"""What an application says about its use, through the guarded client; whatever goes wrong says nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from gpuherd.adapters.egress.guarded_client import SsrfSafeClient
from gpuherd.adapters.egress.machine_probes import ACTIVITY_BODY_MAX_BYTES, EgressActivityProbe, read_answer
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.instance.idleness import AppAnswer
from gpuherd.ports.egress_port import EgressReply
from tests.adapters.egress.doubles import LOOPBACK_OPEN, TLS, StubResolver
from tests.adapters.probes.programs import program, says
from tests.support.fake_clock import FakeClock

NOTHING = AppAnswer()
IDLE = AppAnswer(is_idle=True)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def reply(status: int, body: bytes = b"", *, truncated: bool = False) -> EgressReply:
    return EgressReply(status, {}, body, truncated, 0.0, "192.0.2.1")


def said(value: object) -> AppAnswer:
    return read_answer(reply(200, json.dumps(value).encode()))


def test_204_is_idle_and_200_in_use() -> None:
    assert read_answer(reply(204)) == IDLE
    assert read_answer(reply(200, b"ok")) == NOTHING


def test_it_may_say_when_it_was_last_used() -> None:
    for text in ("2026-11-16T12:00:00Z", "2026-11-16T13:00:00+01:00", "2026-11-16T12:00:00.000000+00:00"):
        assert said({"lastActiveAt": text, "more": 1}) == AppAnswer(idle_since=NOON)


@pytest.mark.parametrize(
    "value",
    [{}, [], None, 7, {"lastActiveAt": None}, {"lastActiveAt": 1}, {"lastActiveAt": "2026-11-16T12:00:00"},
     {"lastActiveAt": "0001-01-01T00:00:00+14:00"}, {"lastActiveAt": "soon"}],
)  # fmt: skip
def test_a_time_that_is_none_says_nothing(value: object) -> None:
    assert said(value) == NOTHING


@pytest.mark.parametrize("status", [201, 202, 301, 302, 400, 401, 404, 500, 502])
def test_any_other_status_says_nothing(status: int) -> None:
    body = json.dumps({"lastActiveAt": NOON.isoformat()}).encode()
    assert read_answer(reply(status, body)) == NOTHING


def test_half_an_answer_says_nothing() -> None:
    body = json.dumps({"lastActiveAt": NOON.isoformat()}).encode()
    assert read_answer(reply(200, body, truncated=True)) == NOTHING
    assert read_answer(reply(200, b"[" * ACTIVITY_BODY_MAX_BYTES)) == NOTHING


async def test_the_application_is_asked_below_its_endpoint_through_the_guarded_client() -> None:
    client = SsrfSafeClient(LOOPBACK_OPEN, StubResolver(), FakeClock(), tls=TLS)
    closed = SsrfSafeClient(EgressPolicy(), StubResolver(), FakeClock(), tls=TLS)
    async with program(says(status=204)) as running:
        assert await EgressActivityProbe(client).ask(running.at("/app"), "/busy?x=1") == IDLE
        assert await EgressActivityProbe(closed).ask(running.at("/app"), "/busy") == NOTHING
    assert running.asked == ["/app/busy?x=1"]
    assert await EgressActivityProbe(client).ask(PortMapping(22, "127.0.0.1:1", "tcp"), "/") == NOTHING
    assert await EgressActivityProbe(client).ask(PortMapping(80, "nonsense", "http"), "/") == NOTHING
    for it in (client, closed):
        await it.close()
