"""The wait for a PostgreSQL that is not up yet: how long, what is said, and which answers end it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from gpuherd.bootstrap.wait_for_database import (
    REPORT_INTERVAL_S,
    RETRY_INTERVAL_S,
    WAIT_LIMIT_S,
    connection_problem,
    poll_until_reachable,
    wait_for_database,
)
from gpuherd.settings import load_settings
from tests.support.fake_clock import START, FakeClock
from tests.support.processes.services import free_port
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401


class FakeDatabaseListener:
    """Tells what it is told to tell, then that somebody is there."""

    def __init__(self, reasons: Iterable[str | None], clock: FakeClock, takes_s: float = 0.0) -> None:
        self._reasons = iter(reasons)
        self._clock = clock
        self._takes_s = takes_s
        self.checks = 0

    async def check_connection(self) -> str | None:
        self.checks += 1
        if self._takes_s:
            await self._clock.sleep(self._takes_s)
        return next(self._reasons, None)


def waited_s(clock: FakeClock) -> float:
    return (clock.now() - START).total_seconds()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto=True)


class TestTheWait:
    async def test_who_is_answered_at_once_neither_waits_nor_says_anything(self, clock: FakeClock) -> None:
        said: list[str] = []
        await poll_until_reachable("db", FakeDatabaseListener([], clock).check_connection, clock, said.append)
        assert (said, clock.now()) == ([], START)

    async def test_it_goes_on_as_soon_as_somebody_answers(self, clock: FakeClock) -> None:
        said: list[str] = []
        database = FakeDatabaseListener(["refused"] * 4, clock)
        await poll_until_reachable("postgresql://db", database.check_connection, clock, said.append)
        assert (database.checks, waited_s(clock)) == (5, 4 * RETRY_INTERVAL_S)
        assert said == ["gpuherd waits for postgresql://db, for 60 s at most: refused"]

    async def test_after_a_minute_it_gives_up_and_leaves_the_rest_to_the_start(
        self, clock: FakeClock
    ) -> None:
        said: list[str] = []
        database = FakeDatabaseListener(["refused"] * 100_000, clock)
        await poll_until_reachable("db", database.check_connection, clock, said.append)
        assert waited_s(clock) == WAIT_LIMIT_S
        assert len(said) == WAIT_LIMIT_S / REPORT_INTERVAL_S
        assert "for 10 s at most" in said[-1]

    async def test_tries_that_take_long_count_too(self, clock: FakeClock) -> None:
        database = FakeDatabaseListener(["no answer"] * 100_000, clock, takes_s=5.0)
        await poll_until_reachable("db", database.check_connection, clock, lambda _: None)
        assert WAIT_LIMIT_S <= waited_s(clock) <= WAIT_LIMIT_S + 5.0

    async def test_a_file_of_our_own_is_not_waited_for(self, tmp_path: Path, clock: FakeClock) -> None:
        await wait_for_database(load_settings({"GPUHERD_DATA_DIR": str(tmp_path)}, tmp_path), clock)
        assert waited_s(clock) == 0


def refusal(sqlstate: str) -> bytes:
    """Return the message with which a PostgreSQL does not let somebody in."""
    fields = b"SFATAL\0VFATAL\0C" + sqlstate.encode() + b"\0Mnot you, not now\0\0"
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields


@contextlib.asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """Run somebody who says one thing to everybody, and give his address."""

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        yield f"postgresql://u:canary@127.0.0.1:{server.sockets[0].getsockname()[1]}/db"


class TestAnswers:
    @pytest.mark.parametrize(
        ("sqlstate", "away"),
        [
            ("57P03", True),  # the database system is starting up
            ("28P01", False),  # wrong password
            ("28000", False),  # no such role, or not from there
            ("3D000", False),  # no such database
            ("53300", False),  # too many connections
        ],
    )
    async def test_only_one_that_cannot_answer_yet_is_waited_for(self, sqlstate: str, away: bool) -> None:
        async with answering(refusal(sqlstate)) as url:
            reason = await connection_problem(f"{url}?sslmode=disable")
        assert reason == ("not you, not now" if away else None)

    async def test_a_proxy_without_anybody_behind_it_is_waited_for(self) -> None:
        async with answering(b"") as url:
            for mode in ("disable", "prefer"):
                assert await connection_problem(f"{url}?sslmode={mode}") is not None

    async def test_one_that_speaks_no_tls_is_not_waited_for(self) -> None:
        async with answering(b"N") as url:
            assert await connection_problem(f"{url}?sslmode=require") is None

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("postgresql://u:canary@127.0.0.1:{free}/db", "onnect"),
            ("postgresql:///db?host=/no/such/directory", "No such file"),
            ("postgresql://u:canary@db.invalid/db", ""),
        ],
    )
    async def test_where_nobody_is_yet_somebody_may_come(self, url: str, reason: str) -> None:
        # Found here and not in the parameter, which would have another name in each worker of pytest.
        said = await connection_problem(url.replace("{free}", str(free_port())))
        assert said is not None
        assert reason in said
        assert "canary" not in said

    @pytest.mark.parametrize("url", ["postgresql://[nonsense", "postgresql://h/db?no_such_word=1"])
    async def test_an_address_that_is_none_is_not_waited_for(self, url: str) -> None:
        assert await connection_problem(url) is None

    @pytest.mark.postgres
    async def test_a_real_one_answers_whether_or_not_it_has_the_database(
        self,
        postgres_url: str,  # noqa: F811
    ) -> None:
        assert await connection_problem(postgres_url) is None
        assert await connection_problem(postgres_url.replace("/test_", "/no_such_")) is None

    @pytest.mark.postgres
    async def test_one_that_takes_no_writes_yet_is_waited_for(
        self,
        postgres_url: str,  # noqa: F811
    ) -> None:
        words = "options=-cdefault_transaction_read_only%3Don"
        read_only = f"{postgres_url}{'&' if '?' in postgres_url else '?'}{words}"
        assert "takes no writes" in (await connection_problem(read_only) or "")
        assert await connection_problem(f"{read_only}&target_session_attrs=any") is None
