"""What the ports of shared limits promise, in memory and on a real PostgreSQL with several replicas on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.service_tables import budget
from gpuherd.adapters.stores.shared_limit_store import SqlBreakerStore, SqlSharedLimits
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.replica_port import BreakerStore, SharedLimits
from gpuherd.resilience.circuit_breaker import SharedBreakerState
from gpuherd.resilience.shared_rate_limit import Limit, ReturnedTokens, TokenLease
from tests.support.fake_clock import FakeClock
from tests.support.memory.shared_limits import MemoryBreakerStore, MemorySharedLimits
from tests.support.sql.databases import sqlalchemy_url

# So slow that nothing comes in while a test runs.
SLOW = Limit(0.001, 60, batch=6)
REPLICAS = 4


@dataclass
class Shared:
    """The ports as each replica has them, and a way to let time pass for all."""

    budgets: list[SharedLimits]
    boards: list[BreakerStore]
    pass_s: Callable[[float], Awaitable[None]]


@pytest.fixture
def databases(fresh_postgres: str) -> Iterator[list[Database]]:
    with ExitStack() as stack:
        url = sqlalchemy_url(fresh_postgres)
        yield [stack.enter_context(closing(Database(url))) for _ in range(REPLICAS)]


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres), "memory"])
def shared(request: pytest.FixtureRequest) -> Shared:
    if request.param == "memory":
        clock = FakeClock()
        budgets, board = MemorySharedLimits(clock), MemoryBreakerStore(clock)
        return Shared([budgets] * REPLICAS, [board] * REPLICAS, clock.advance)
    databases: list[Database] = request.getfixturevalue("databases")

    async def pass_s(seconds: float) -> None:
        await write(databases[0], budget.c.at - round(seconds * 1e6))

    return Shared(
        [SqlSharedLimits(it) for it in databases], [SqlBreakerStore(it) for it in databases], pass_s
    )


async def write(database: Database, at: sa.ColumnElement[int]) -> None:
    """Set when the rows were written, which is all that they know of time."""
    await database.write(lambda c: c.execute(sa.update(budget).values(at=at)).rowcount)


class TestBudgets:
    async def test_all_draw_from_one_budget(self, shared: Shared) -> None:
        leased = [await it.lease("novita", SLOW, 25) for it in shared.budgets]
        assert [it.granted for it in leased] == [25, 25, 10, 0]
        assert [it.wait_s > 0 for it in leased] == [False, False, True, True]

    async def test_names_are_apart(self, shared: Shared) -> None:
        one = shared.budgets[0]
        assert (await one.lease("key:ada", SLOW, 60)).granted == 60
        assert (await one.lease("key:bob", SLOW, 60)).granted == 60

    async def test_time_brings_tokens_back_as_far_as_there_is_room(self, shared: Shared) -> None:
        one, other = shared.budgets[:2]
        limit = Limit(60, 30)
        loan = await one.lease("novita", limit, 30)
        await one.lease("novita", limit, 0, ReturnedTokens(loan.period, 30))
        await shared.pass_s(10)
        assert (await other.lease("novita", limit, 30)).granted == 10
        await shared.pass_s(1_000)
        assert (await other.lease("novita", limit, 100)).granted == 30

    async def test_a_refusal_is_one_for_all(self, shared: Shared) -> None:
        one, other = shared.budgets[:2]
        await one.throttle("novita", SLOW, 30)
        leased = await other.lease("novita", SLOW, 1)
        assert (leased.granted, leased.share) == (0, pytest.approx(0.5, abs=0.01))
        assert 29 < leased.wait_s <= 30
        await shared.pass_s(31)
        assert (await other.lease("novita", SLOW, 5)).granted == 1

    async def test_a_look_changes_nothing(self, shared: Shared) -> None:
        one, other = shared.budgets[:2]
        assert (await one.look("novita", SLOW)).share == 1
        await other.throttle("novita", SLOW, 0)
        for _ in range(3):
            assert (await one.look("novita", SLOW)).share == pytest.approx(0.5, abs=0.01)
        assert (await other.lease("novita", SLOW, 5)).granted == 1


class TestBreakerBoard:
    async def test_it_begins_closed_and_a_change_is_seen_by_all(self, shared: Shared) -> None:
        one, other = shared.boards[:2]
        assert await one.read() == (0, SharedBreakerState())
        assert await one.write(SharedBreakerState(True, 60, 2, 1), 0)
        await shared.pass_s(20)
        number, seen = await other.read()
        assert (number, seen.is_open, seen.growth) == (1, True, 2)
        assert seen.rest_s == pytest.approx(40, abs=1)
        assert seen.open_s == pytest.approx(21, abs=1)
        await shared.pass_s(100)
        assert (await other.read())[1].rest_s == 0

    async def test_of_those_who_change_the_same_one_does(self, shared: Shared) -> None:
        for number in range(3):
            done = await asyncio.gather(
                *(it.write(SharedBreakerState(True, 60), number) for it in shared.boards)
            )
            assert sum(done) == 1
        assert not await shared.boards[0].write(SharedBreakerState(), 1)
        assert (await shared.boards[1].read())[0] == 3


@pytest.mark.postgres
class TestReplicasOnPostgres:
    async def test_whoever_is_faster_no_token_is_lent_twice(self, databases: list[Database]) -> None:
        def draw_all(database: Database) -> list[int]:
            async def run() -> list[int]:
                return [(await SqlSharedLimits(database).lease("novita", SLOW, 1)).granted for _ in range(25)]

            return asyncio.run(run())

        with ThreadPoolExecutor(REPLICAS) as threads:
            granted = sum(sum(them) for them in threads.map(draw_all, databases))
        assert granted == SLOW.burst

    async def test_refusals_and_draws_at_once_all_count(self, databases: list[Database]) -> None:
        limit = Limit(60_000, 100_000, batch=1)

        async def one(n: int) -> TokenLease:
            return await SqlSharedLimits(databases[n % REPLICAS]).lease("novita", limit, 10)

        leased = await asyncio.gather(*(one(n) for n in range(40)))
        assert sum(it.granted for it in leased) == 400
        rows = await databases[0].read(lambda c: c.execute(sa.select(budget)).all())
        assert [row.version for row in rows] == [40]

    @pytest.mark.parametrize("after", ["SELECT", "UPDATE"])
    async def test_a_replica_that_stops_in_the_middle_of_a_draw_holds_nobody_up(
        self, databases: list[Database], after: str
    ) -> None:
        await SqlSharedLimits(databases[0]).lease("novita", SLOW, 10)
        stopped, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith(after):
                loop.call_soon_threadsafe(stopped.set)
                asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)

        sa.event.listen(databases[0]._read_engine, "after_cursor_execute", stop)
        sleeper = asyncio.create_task(SqlSharedLimits(databases[0]).lease("novita", SLOW, 5))
        await asyncio.wait_for(stopped.wait(), 10)
        async with asyncio.timeout(5):
            rest = (await SqlSharedLimits(databases[1]).lease("novita", SLOW, 50)).granted
        go_on.set()
        # It thinks again about what it finds when it wakes.
        assert rest + (await sleeper).granted == 50

    async def test_a_clock_that_was_set_back_is_no_pause(self, databases: list[Database]) -> None:
        limit, it = Limit(6_000, 60), SqlSharedLimits(databases[0])
        await it.lease("novita", limit, 60)
        await write(databases[0], budget.c.at + round(3_600e6))
        await it.lease("novita", limit, 0)
        await asyncio.sleep(1)
        assert (await it.lease("novita", limit, 60)).granted > 0

    async def test_a_clock_that_was_set_back_lets_nobody_rest_for_longer(
        self, databases: list[Database]
    ) -> None:
        board = SqlBreakerStore(databases[0])
        await board.write(SharedBreakerState(True, 60), 0)
        await write(databases[0], budget.c.at + round(3_600e6))
        assert (await board.read())[1].rest_s <= 60

    async def test_when_the_database_is_closed_nothing_is_lent(self, databases: list[Database]) -> None:
        databases[0].close()
        with pytest.raises(StoreUnavailable):
            await SqlSharedLimits(databases[0]).lease("novita", SLOW, 1)
        with pytest.raises(StoreUnavailable):
            await SqlBreakerStore(databases[0]).read()

    async def test_too_many_at_once_is_no_leave_for_anybody(
        self, databases: list[Database], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpuherd.adapters.stores.shared_limit_store._compare_and_swap", lambda *_: False)
        with pytest.raises(StoreUnavailable, match="at once"):
            await SqlSharedLimits(databases[0]).lease("novita", SLOW, 1)
