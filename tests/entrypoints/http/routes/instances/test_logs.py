"""`GET /api/instances/{id}/logs`: what a machine says, and nothing about how we came to know it."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest
from starlette.types import ASGIApp

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.cloud.machine import LogAddresses, Phase
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.ports.egress_port import EgressFailure, FailureCategory
from gpuherd.usecases.access.manage_keys import revoke_key
from gpuherd.usecases.instances.read_log import PRESENT_BYTES_MAX, LogLimits
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.support.event_streams import asking
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key

LOGS = "/api/instances/job/logs"
FOLLOW = "follow=true"
MINE = {"Authorization": f"Bearer {KEY}"}
CANARY = "t0ken-of-the-log"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(plane: Plane) -> ASGIApp:
    return build_application(plane)


@pytest.fixture
async def running(api: httpx.AsyncClient, herd: Herd) -> None:
    assert (await api.post("/api/instances", json=GOOD)).status_code == 201
    await herd.run_and_advance(timedelta(minutes=2))


async def code_of(api: httpx.AsyncClient, path: str = LOGS) -> tuple[int, str]:
    reply = await api.get(path)
    return reply.status_code, reply.json()["code"]


@pytest.mark.usefixtures("running")
async def test_a_log_is_passed_on_as_plain_text_to_its_end(api: httpx.AsyncClient, herd: Herd) -> None:
    reply = await api.get(LOGS)
    assert (reply.status_code, reply.text) == (200, "the program is up\nstep 1\n")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert (await api.get(f"{LOGS}?source=system")).status_code == 200
    assert [it.rpartition("/")[2] for it in herd.logs.asked] == ["instance", "system"]
    assert await code_of(api, f"{LOGS}?source=other") == (400, "INVALID_PARAMETER")
    assert await code_of(api, f"{LOGS}?folow=true") == (400, "INVALID_PARAMETER")


@pytest.mark.usefixtures("running")
async def test_what_there_is_now_ends_with_five_seconds_of_silence(
    app: ASGIApp, herd: Herd, clock: FakeClock
) -> None:
    herd.logs.ends = False
    async with asking(app, LOGS, MINE) as reply:
        await clock.advance(4)
        herd.logs.say(b"late\n")
        await clock.advance(4)
        assert reply.body.endswith(b"late\n") and not reply.complete
        await clock.advance(2)
        assert reply.complete
    assert herd.logs.open == 0


@pytest.mark.usefixtures("running")
async def test_what_there_is_now_ends_also_where_a_program_is_never_silent(
    app: ASGIApp, herd: Herd, clock: FakeClock
) -> None:
    herd.logs.ends = False
    async with asking(app, LOGS, MINE) as reply:
        for _ in range(30):
            herd.logs.say(b"again\n")
            await clock.advance(1)
        assert reply.complete


@pytest.mark.usefixtures("running")
async def test_what_there_is_now_is_at_most_a_mebibyte(app: ASGIApp, herd: Herd, clock: FakeClock) -> None:
    herd.logs.said, herd.logs.ends = [b"x" * 100_000] * 20, False
    async with asking(app, LOGS, MINE) as reply:
        await clock.settle()
        assert (len(reply.body), reply.complete) == (PRESENT_BYTES_MAX, True)
    async with asking(app, LOGS, MINE, FOLLOW) as reply:
        await clock.settle()
        assert (len(reply.body), reply.complete) == (2_000_000, False)


@pytest.mark.usefixtures("running")
async def test_a_followed_log_goes_on_until_the_client_leaves(
    app: ASGIApp, herd: Herd, clock: FakeClock
) -> None:
    herd.logs.ends = False
    async with asking(app, LOGS, MINE, FOLLOW) as reply:
        await clock.advance(3600)
        assert not reply.complete
        herd.logs.say(b"done\n")
        await clock.settle()
        assert reply.body.endswith(b"done\n")
        assert herd.logs.open == 1
        reply.leave()
        await clock.settle()
        assert herd.logs.open == 0
    assert herd.services.log_streams.count == 0


@pytest.mark.usefixtures("running")
async def test_a_client_that_does_not_read_lets_nothing_pile_up(
    app: ASGIApp, herd: Herd, clock: FakeClock
) -> None:
    herd.logs.said, herd.logs.ends = [b"x"] * 200, False
    async with asking(app, LOGS, MINE, FOLLOW) as reply:
        reply.reads.clear()
        await clock.settle()
        stopped_at = len(reply.body)
        await clock.advance(10)
        assert len(reply.body) == stopped_at < 200
        reply.reads.set()
        await clock.settle()
        assert len(reply.body) == 200


@pytest.mark.usefixtures("running")
async def test_a_revoked_key_and_the_end_of_the_server_end_a_followed_log(
    app: ASGIApp, herd: Herd, plane: Plane, clock: FakeClock
) -> None:
    herd.logs.ends = False
    key = await make_key(plane, "admin")
    async with asking(app, LOGS, bearer(key), FOLLOW) as theirs, asking(app, LOGS, MINE, FOLLOW) as ours:
        await clock.advance(2)
        await revoke_key(plane.services, key.key.id, ADMIN)
        await clock.advance(2)
        assert theirs.complete and not ours.complete
        plane.services.log_streams.close()
        await clock.settle()
        assert ours.complete
    assert herd.logs.open == 0


@pytest.mark.usefixtures("running")
async def test_only_so_many_logs_are_read_at_once_with_one_key_and_in_all(
    api: httpx.AsyncClient, app: ASGIApp, herd: Herd, plane: Plane, clock: FakeClock
) -> None:
    herd.logs.ends = False
    plane.services.log_streams.limits = LogLimits(streams=2, streams_of_key=1)
    other = bearer(await make_key(plane, "admin"))
    async with asking(app, LOGS, MINE, FOLLOW):
        await clock.settle()
        assert await code_of(api) == (429, "TOO_MANY_STREAMS")
        async with asking(app, LOGS, other, FOLLOW):
            await clock.settle()
            third = bearer(await make_key(plane, "admin"))
            reply = await api.get(LOGS, headers=third)
            assert (reply.status_code, reply.json()["code"]) == (503, "TOO_MANY_STREAMS")
    herd.logs.ends = True
    await clock.settle()
    assert (await api.get(LOGS)).status_code == 200


@pytest.mark.usefixtures("running")
async def test_a_log_that_breaks_off_ends_without_the_end_of_a_reply(
    app: ASGIApp, herd: Herd, clock: FakeClock
) -> None:
    herd.logs.ends = False
    async with asking(app, LOGS, MINE, FOLLOW) as reply:
        await clock.settle()
        herd.logs.failure = EgressFailure(FailureCategory.RESET, "the host closed the connection")
        herd.logs.say()
        await clock.settle()
        assert reply.status == 200 and not reply.complete
    assert herd.logs.open == 0


@pytest.mark.usefixtures("running")
async def test_what_cannot_be_read_is_told_without_the_address(
    api: httpx.AsyncClient, herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def addresses(cloud_id: str) -> LogAddresses:
        return LogAddresses(Phase.RUNNING, f"https://logs.example.com/?token={CANARY}", "")

    monkeypatch.setattr(herd.cloud, "get_log_addresses", addresses)
    assert CANARY not in repr(await addresses(""))
    answers = []
    for category in (FailureCategory.BLOCKED_TARGET, FailureCategory.DNS):
        herd.logs.failure = EgressFailure(category, "so it was")
        answers.append(await api.get(LOGS))
    herd.logs.failure = None
    for herd.logs.status, herd.logs.headers in (
        (302, {"location": f"http://127.0.0.1/{CANARY}"}),
        (200, {"content-encoding": "gzip"}),
    ):
        answers.append(await api.get(LOGS))
    assert [(it.status_code, it.json()["code"]) for it in answers] == [
        (503, "LOG_ADDRESS_BLOCKED"),
        *[(503, "LOG_UNREACHABLE")] * 3,
    ]
    assert not [it for it in answers if CANARY in it.text]
    assert await code_of(api, f"{LOGS}?source=system") == (409, "LOG_NOT_AVAILABLE")


async def test_without_a_machine_that_runs_there_is_no_log(api: httpx.AsyncClient, herd: Herd) -> None:
    assert await code_of(api) == (404, "INSTANCE_NOT_FOUND")
    await api.post("/api/instances", json=GOOD)
    assert await code_of(api) == (409, "NO_MACHINE")
    await herd.run_and_advance(timedelta(seconds=12))
    # It boots: its program has said nothing yet, the cloud has.
    assert await code_of(api) == (409, "LOG_NOT_AVAILABLE")
    assert (await api.get(f"{LOGS}?source=system")).status_code == 200
    await herd.run_and_advance(timedelta(minutes=2))
    await api.post("/api/instances/job/stop")
    await herd.run_and_advance(timedelta(minutes=1))
    assert await code_of(api) == (409, "INSTANCE_NOT_RUNNING")
    instance = (await api.delete("/api/instances/job")).json()["instanceId"]
    await herd.run_and_advance(timedelta(minutes=2))
    assert await code_of(api, f"/api/instances/{instance}/logs") == (409, "NO_MACHINE")
    assert not herd.logs.open
