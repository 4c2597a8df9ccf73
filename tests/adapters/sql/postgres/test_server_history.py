"""The history of a server: what it said is committed it must still have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.server_history import IN_RECOVERY, ServerHistory
from gpuherd.ports.instance_port import Change
from tests.support.builders import an_event, an_instance
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import Store, sqlalchemy_url
from tests.support.sql.fresh_postgres import fresh_postgres, reusable_postgres  # noqa: F401
from tests.support.sql.postgres import postgres_server  # noqa: F401

# As a standby that lags behind by three events; the numbers go on where it was.
LOSE_THREE = """
    WITH lost AS (DELETE FROM event WHERE id > 2 RETURNING id)
    SELECT setval(pg_get_serial_sequence('event', 'id'), 2), count(*) FROM lost
"""


class Driver:
    """A connection to a server of which we say what it is."""

    class OperationalError(Exception):
        """As of a driver."""

    class Error(Exception):
        """As of a driver."""

    class ProgrammingError(Error):
        """As of a driver."""

    autocommit = False

    def __init__(self, system: str = "7", timeline: str | None = "1", *, in_recovery: bool = False):
        self._system, self._timeline, self._in_recovery = system, timeline, in_recovery
        self._row: tuple[object, ...] = ()

    def execute(self, statement: str) -> Driver:
        if "system_identifier" not in statement:
            self._row = (self._in_recovery,)
        elif self._timeline is None:
            raise self.ProgrammingError
        else:
            self._row = (self._system, self._timeline)
        return self

    def fetchone(self) -> tuple[object, ...]:
        return self._row


class Record:
    """Of the pool."""

    def __init__(self) -> None:
        self.info: dict[str, object] = {}


class Watched:
    """A history, and what it told."""

    def __init__(self) -> None:
        self.history = ServerHistory()
        self.told: list[str] = []
        self.history.on_lost = self.told.append

    def connect(self, *what: str | None, in_recovery: bool = False) -> None:
        self.history._on_connect(Driver(*what, in_recovery=in_recovery), Record())  # type: ignore[arg-type]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_connections_to_one_server_are_no_news(watched: Watched) -> None:
    for _ in range(3):
        watched.connect("7", "1")
    assert (watched.told, watched.history.generation, watched.history.identity) == ([], 0, "7/1")


@pytest.mark.parametrize("other", [("7", "2"), ("8", "1")], ids=["promoted", "another server"])
def test_another_server_or_timeline_is_a_loss_and_is_told_once(
    watched: Watched, other: tuple[str, str]
) -> None:
    watched.connect("7", "1")
    watched.connect(*other)
    watched.connect(*other)
    assert (len(watched.told), watched.history.generation) == (1, 1)


def test_a_server_that_is_changed_under_a_connection_is_noticed_by_the_next_transaction(
    watched: Watched,
) -> None:
    watched.connect("7", "1")
    watched.history.check_transaction("1", 700)
    watched.history.check_transaction("2", 701)
    watched.history.check_transaction("2", 702)
    assert len(watched.told) == 1


def test_a_number_that_was_committed_and_comes_again_is_a_loss(watched: Watched) -> None:
    watched.connect("7", "1")
    watched.history.check_transaction("1", 700)
    watched.history.note_commit(700)
    watched.history.check_transaction("1", 701)
    assert watched.told == []
    watched.history.check_transaction("1", 700)
    watched.history.check_transaction("1", 701)
    assert len(watched.told) == 1


def test_a_number_that_was_never_committed_may_come_again(watched: Watched) -> None:
    watched.connect("7", "1")
    watched.history.check_transaction("1", 700)
    watched.history.check_transaction("1", 700)
    assert watched.told == []


def test_a_standby_is_not_used(watched: Watched) -> None:
    with pytest.raises(Driver.OperationalError, match="standby"):
        watched.connect("7", "1", in_recovery=True)
    assert IN_RECOVERY.startswith("the database is a standby")


def test_a_server_that_cannot_name_its_timeline_is_followed_by_its_numbers(watched: Watched) -> None:
    watched.connect("7", None)
    watched.history.check_transaction(None, 700)
    watched.history.note_commit(700)
    watched.history.check_transaction(None, 700)
    assert (watched.history.identity, len(watched.told)) == (None, 1)


@pytest.mark.postgres
class TestOnAServer:
    @pytest.fixture
    def database(self, postgres_url: str) -> Iterator[Database]:
        with closing(Database(sqlalchemy_url(postgres_url))) as database:
            yield database

    async def test_it_has_a_name_and_loses_nothing_by_itself(self, database: Database) -> None:
        told: list[str] = []
        database.history.on_lost = told.append
        for _ in range(3):
            await database.write(lambda c: c.exec_driver_sql("SELECT 1").scalar())
            await database.read(lambda c: c.exec_driver_sql("SELECT 1").scalar())
        system, _, timeline = (database.history.identity or "").partition("/")
        assert system.isdigit()
        assert timeline == "00000001"
        assert told == []

    async def test_a_commit_that_is_gone_is_noticed_before_the_next_work_runs(
        self, database: Database
    ) -> None:
        order: list[str] = []
        database.history.on_lost = lambda _: order.append("told")
        await database.write(lambda c: c.exec_driver_sql("SELECT 1").scalar())
        # As if the server had gone on from an earlier moment.
        database.history.note_commit(2**62)
        await database.write(lambda c: order.append("work"))
        assert order == ["told", "work"]

    async def test_the_numbers_of_lost_events_are_not_given_out_a_second_time(
        self,
        fresh_postgres: str,  # noqa: F811
    ) -> None:
        """A client that comes back with the number of a lost event must hear of all that came after."""
        with closing(Database(sqlalchemy_url(fresh_postgres))) as database:
            store = Store(database, FakeClock())
            told = tuple(an_event(sequence=n) for n in range(1, 6))
            await store.instances.add(Change(an_instance(), events=told))
            last_heard = await store.events.highest()
            # The standby has not got the last three.
            await database.write(lambda c: c.exec_driver_sql(LOSE_THREE).all())
            database.history._timeline = "an earlier one"
            database._write_engine.dispose()
            await store.instances.add(Change(an_instance(2), events=(an_event(2),)))
            after = await store.events.after(last_heard, 10)
            assert [it.event.instance_id for it in after.events] == [an_instance(2).id]
