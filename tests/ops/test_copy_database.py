"""An installation moves to PostgreSQL whole or not at all, and the old house gets nothing but a mark."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql import database_copy
from gpuherd.adapters.sql.database_copy import (
    EXCLUDED_COLUMNS,
    EXCLUDED_TABLES,
    copied_tables,
    open_source,
    open_target,
)
from gpuherd.adapters.sql.rental_tables import event, instance, metadata
from gpuherd.adapters.sql.schema_migration import newest_schema
from gpuherd.adapters.sql.service_tables import is_live, job
from gpuherd.adapters.stores.installation_store import mark_of_file, unmark_copied
from gpuherd.bootstrap.key_files import ProcessLock
from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.ops.copy_database import DatabaseCopied, copy_database
from gpuherd.ops.database_files import make_schema
from gpuherd.settings import Settings
from tests.ops.aged_database import change, copy_of, due_times, everything, make_aged_database, one
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import migrate_file, sqlalchemy_url
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401

pytestmark = pytest.mark.postgres

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def database_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("house") / "gpuherd.db"
    asyncio.run(make_aged_database(path))
    return path


@pytest.fixture
def source(database_file: Path, tmp_path: Path) -> Path:
    return copy_of(database_file, tmp_path / "data")


@pytest.fixture
def target(postgres_url: str) -> str:  # noqa: F811
    return postgres_url


@pytest.fixture
def settings(source: Path, target: str) -> Settings:
    return Settings.model_validate({"GPUHERD_DATA_DIR": source.parent, "GPUHERD_DATABASE_URL": target})


def move(settings: Settings, progress: Progress = silent, **ends: str) -> DatabaseCopied:
    return copy_database(settings, ends.get("source"), ends.get("target"), FakeClock(), progress)


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def refused(settings: Settings, progress: Progress = silent, **ends: str) -> Any:
    with pytest.raises(CommandError) as caught:
        move(settings, progress, **ends)
    return caught.value.report


@pytest.fixture
def here(target: str) -> Iterator[sa.Connection]:
    with open_target(sqlalchemy_url(target)) as connection:
        yield connection


@pytest.fixture
def there(source: Path) -> Iterator[sa.Connection]:
    with open_source(source) as connection:
        yield connection


def contents(connection: sa.Connection) -> Mapping[str, list[dict[str, Any]]]:
    return everything(connection, metadata.sorted_tables)


class TestEverythingArrives:
    def test_each_row_of_each_table(
        self, settings: Settings, there: sa.Connection, here: sa.Connection
    ) -> None:
        done = move(settings)
        before, after = everything(there, copied_tables()), everything(here, copied_tables())
        before["installation"] = [it for it in before["installation"] if it["key"] != "copied_to"]
        # What ran in a process that has ended waits in the copy.
        (running,) = [it for it in before["job"] if it["state"] == "PROCESSING"]
        running.update(state="PENDING", due_at=FakeClock().now())
        for table in copied_tables():
            assert before[table.name], f"{table.name} has no row, so nothing is proved about it"
            for row in (*before[table.name], *after[table.name]):
                for column in row.keys() & {it.partition(".")[2] for it in EXCLUDED_COLUMNS}:
                    del row[column]
            assert after[table.name] == before[table.name]
        assert {it.name: it.rows for it in done.tables} == {name: len(it) for name, it in before.items()}
        assert done.gpus == sum(row["gpus"] for row in before["instance"]) > 0
        assert done.micro_usd_an_hour == sum(row["micro_usd"] for row in before["instance"]) > 0

    def test_no_lease_of_a_process_that_has_ended(self, settings: Settings, here: sa.Connection) -> None:
        move(settings)
        assert set(here.execute(sa.select(instance.c.lease_token, instance.c.lease_until)).all()) == {
            (None, None)
        }

    def test_unfinished_jobs_wait_there_for_as_long_as_here(
        self, settings: Settings, there: sa.Connection, here: sa.Connection
    ) -> None:
        done = move(settings)
        before, after = due_times(there), due_times(here)
        assert len(before) == done.jobs_queued > 3
        (running,) = [it for it, due in before.items() if due is None]
        assert after == {**before, running: FakeClock().now()}
        assert set(here.execute(sa.select(job.c.state).where(is_live)).scalars()) == {"PENDING"}

    def test_numbers_go_on_behind_every_number_ever_given(
        self, settings: Settings, source: Path, here: sa.Connection
    ) -> None:
        given = one(source, "SELECT seq FROM sqlite_sequence WHERE name = 'event'")
        assert given > one(source, "SELECT max(id) FROM event"), "the newest was forgotten"
        move(settings)
        row = {"instance_id": "i", "sequence": 1, "type": "t", "at": FakeClock().now(), "doc": "{}"}
        assert here.execute(sa.insert(event).values(**row).returning(event.c.id)).scalar_one() == given + 1

    def test_the_source_gets_a_mark_and_nothing_else(self, settings: Settings, source: Path) -> None:
        before = dump(source)
        move(settings)
        added = [line for line in dump(source) if line not in before]
        assert len(added) == 1
        assert "copied_to" in added[0]
        assert [line for line in dump(source) if line not in added] == before

    def test_what_was_copied_away_is_not_copied_again_until_it_is_taken_back(
        self, settings: Settings, source: Path
    ) -> None:
        move(settings)
        assert refused(settings).code == "COPIED_AWAY"
        unmark_copied(source)
        assert mark_of_file(source) is None
        assert refused(settings).code == "TARGET_NOT_EMPTY"

    def test_a_copy_that_fails_at_the_very_end_leaves_no_mark(
        self, settings: Settings, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit = sa.Connection.commit

        def broken(connection: sa.Connection) -> None:
            if connection.dialect.name == "postgresql" and mark_of_file(source) is not None:
                raise OSError("the server is gone")
            commit(connection)

        monkeypatch.setattr(sa.Connection, "commit", broken)
        with pytest.raises(OSError, match="the server is gone"):
            move(settings)
        assert mark_of_file(source) is None

    def test_what_only_the_log_of_a_killed_process_holds_comes_along(
        self, settings: Settings, source: Path, here: sa.Connection
    ) -> None:
        with closing(sqlite3.connect(source)) as server:
            server.execute("SELECT * FROM installation").fetchone()
            change(source, "INSERT INTO installation VALUES ('late', 'x')")
            parts = {it: it.read_bytes() for it in source.parent.iterdir() if it.name != "gpuherd.lock"}
        for path, content in parts.items():
            path.write_bytes(content)
        assert source.with_name("gpuherd.db-wal").exists()
        move(settings)
        found = here.exec_driver_sql("SELECT value FROM installation WHERE key = 'late'").scalar()
        assert found == "x"

    def test_more_rows_than_one_batch(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch, here: sa.Connection
    ) -> None:
        monkeypatch.setattr("gpuherd.adapters.sql.database_copy.ROWS_AT_ONCE", 2)
        done = move(settings)
        assert len(due_times(here)) == done.jobs_queued

    def test_both_ends_can_be_named(
        self, settings: Settings, source: Path, target: str, tmp_path: Path
    ) -> None:
        elsewhere = Settings.model_validate({"GPUHERD_DATA_DIR": tmp_path / "nowhere"})
        done = move(elsewhere, source=f"sqlite:///{source}", target=target)
        assert (done.source, done.schema) == (source, newest_schema())
        assert refused(elsewhere, source=str(source.parent), target=target).code == "COPIED_AWAY"


class TestNothingIsForgotten:
    """Whoever adds a table decides whether it moves; the default is that it does."""

    def test_every_table_is_copied_or_left_out_for_a_reason(
        self, settings: Settings, source: Path, here: sa.Connection, tmp_path: Path
    ) -> None:
        make_schema(settings)
        fresh = tmp_path / "fresh.db"
        migrate_file(fresh)
        with open_source(fresh) as connection:
            names = set(
                connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type='table'").scalars()
            )
        names |= set(sa.inspect(here).get_table_names())
        moved = {it.name for it in copied_tables()}
        assert names - moved - EXCLUDED_TABLES.keys() == set(), (
            "describe it in schema.py, or leave it out with a reason"
        )
        assert EXCLUDED_TABLES.keys() - names == set(), "left out, but there is no such table"
        assert not moved & EXCLUDED_TABLES.keys()
        assert all(EXCLUDED_TABLES.values())

    def test_every_column_that_is_not_copied_exists(self) -> None:
        columns = {f"{table.name}.{column.name}" for table in copied_tables() for column in table.columns}
        assert columns >= EXCLUDED_COLUMNS

    def test_the_description_has_every_column_of_the_database(self, source: Path) -> None:
        """A column that only the migration knows would be left behind without a word."""
        with open_source(source) as connection:
            look = sa.inspect(connection)
            for table in copied_tables():
                found = {it["name"] for it in look.get_columns(table.name)}
                assert found == set(table.columns.keys()), table.name


class TestRefusals:
    def test_a_target_with_one_row_stays_as_it_is(self, settings: Settings, here: sa.Connection) -> None:
        make_schema(settings)
        here.exec_driver_sql("INSERT INTO installation VALUES ('installation', 'other')")
        here.commit()
        before = contents(here)
        here.rollback()
        report = refused(settings)
        assert (report.exit_code, report.code) == (ExitCode.CONFLICT, "TARGET_NOT_EMPTY")
        assert "installation" in report.title
        assert contents(here) == before

    def test_a_target_that_is_refused_is_not_even_migrated(
        self, settings: Settings, here: sa.Connection
    ) -> None:
        here.exec_driver_sql("CREATE TABLE instance (id text)")
        here.exec_driver_sql("INSERT INTO instance VALUES ('x')")
        here.commit()
        assert refused(settings).code == "TARGET_NOT_EMPTY"
        assert sa.inspect(here).get_table_names() == ["instance"]

    def test_a_server_that_was_faster_keeps_the_target(
        self, settings: Settings, here: sa.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def then_a_server_starts(place: Settings) -> None:
            make_schema(place)
            here.exec_driver_sql("INSERT INTO installation VALUES ('installation', 'other')")
            here.commit()

        monkeypatch.setattr("gpuherd.ops.copy_database.make_schema", then_a_server_starts)
        assert refused(settings).code == "TARGET_NOT_EMPTY"
        assert database_copy.tables_with_rows(here) == ["installation"]

    def test_a_source_in_use(self, settings: Settings, source: Path, here: sa.Connection) -> None:
        lock = ProcessLock(source)
        report = refused(settings)
        lock.release()
        assert (report.exit_code, report.code) == (ExitCode.CONFLICT, "SERVER_RUNNING")
        assert sa.inspect(here).get_table_names() == []

    @pytest.mark.parametrize(
        ("schema", "code", "word"),
        [("0000", "SCHEMA_BEHIND", "migrate"), ("9999", "DATABASE_UNUSABLE", "newer")],
    )
    def test_a_source_of_another_version(
        self, settings: Settings, source: Path, schema: str, code: str, word: str
    ) -> None:
        change(source, "UPDATE alembic_version SET version_num = ?", schema)
        report = refused(settings)
        assert report.code == code
        assert word in report.title + report.suggestion

    def test_a_source_that_is_damaged(self, settings: Settings, source: Path, here: sa.Connection) -> None:
        change(source, "UPDATE instance SET doc = 'no json'")
        report = refused(settings)
        assert report.code == "DATABASE_UNUSABLE"
        assert "damaged" in report.title
        assert database_copy.tables_with_rows(here) == []

    @pytest.mark.parametrize("beginning", [0.1, 0.4, 0.7])
    def test_a_source_with_bytes_that_nobody_wrote(
        self, settings: Settings, source: Path, here: sa.Connection, beginning: float
    ) -> None:
        content = bytearray(source.read_bytes())
        first = int(len(content) * beginning)
        content[first : first + 20_000] = b"\xff" * 20_000
        source.write_bytes(content)
        assert refused(settings).exit_code is ExitCode.CONFIGURATION
        assert database_copy.tables_with_rows(here) == []

    def test_a_source_that_cannot_be_read_any_further_is_not_taken_for_the_target(
        self, settings: Settings, source: Path
    ) -> None:
        change(source, "DROP TABLE list_record")
        report = refused(settings)
        assert report.exit_code is ExitCode.CONFIGURATION
        assert str(source) in report.title

    def test_a_file_that_is_not_there_or_not_ours(self, settings: Settings, tmp_path: Path) -> None:
        assert refused(settings, source=str(tmp_path / "none.db")).exit_code is ExitCode.NOT_FOUND
        (tmp_path / "music.db").touch()
        assert "not a database of gpuherd" in refused(settings, source=str(tmp_path / "music.db")).title

    @pytest.mark.parametrize(
        "ends",
        [
            {"source": "postgresql://herd:geheim@db/gpu"},
            {"target": "sqlite:////tmp/other.db"},
            {"target": "mysql://herd:geheim@db/gpu"},
        ],
    )
    def test_a_way_that_does_not_exist(self, settings: Settings, ends: dict[str, Any]) -> None:
        report = refused(settings, **ends)
        assert (report.exit_code, report.code) == (ExitCode.USAGE, "CANNOT_COPY_THIS_WAY")
        assert "geheim" not in report.title + report.suggestion

    def test_a_target_that_cannot_be_reached_is_named_without_its_password(self, settings: Settings) -> None:
        report = refused(settings, target="postgresql://herd:geheim@127.0.0.1:1/gpu")
        assert report.exit_code is ExitCode.CONFIGURATION
        assert "127.0.0.1" in report.title
        assert "geheim" not in report.title + report.suggestion


class TestTheComparison:
    """Whatever makes the copy differ from its original is found before it counts."""

    @pytest.fixture
    def empty(self, settings: Settings, here: sa.Connection) -> Iterator[sa.Connection]:
        make_schema(settings)
        yield here
        here.rollback()
        assert database_copy.tables_with_rows(here) == [], "nothing may be kept"

    @pytest.mark.parametrize(
        ("table", "does"),
        [
            ("delivery", "NEW.body := 'other'::bytea; RETURN NEW;"),
            ("api_key", "NEW.max_gpus := NULL; NEW.label := NEW.label || ' '; RETURN NEW;"),
            ("audit", "RETURN NULL;"),
        ],
    )
    def test_a_row_that_does_not_arrive_as_it_was(
        self, settings: Settings, empty: sa.Connection, table: str, does: str
    ) -> None:
        empty.exec_driver_sql(
            f"CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does} END $$"
        )
        empty.exec_driver_sql(
            f"CREATE TRIGGER spoil BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION spoil()"
        )
        empty.commit()
        report = refused(settings)
        assert (report.exit_code, report.code) == (ExitCode.FAILED, "COPY_DIFFERS")
        assert f"table {table} " in report.title

    def test_a_row_that_somebody_changes_in_the_source_meanwhile(
        self, settings: Settings, source: Path, empty: sa.Connection
    ) -> None:
        def meddle(what: str, done: int, total: int) -> None:
            if what == "instance":
                change(source, "UPDATE operation SET doc = '{}'")

        report = refused(settings, meddle)
        assert (report.code, "table operation " in report.title) == ("COPY_DIFFERS", True)

    def test_what_the_target_cannot_hold(
        self, settings: Settings, source: Path, empty: sa.Connection
    ) -> None:
        change(source, "UPDATE delivery SET last_error = ?", "geheim\x00")
        report = refused(settings)
        assert (report.exit_code, report.code) == (ExitCode.FAILED, "COPY_FAILED")
        assert "delivery" in report.title
        assert "geheim" not in report.title

    def test_a_server_that_starts_on_the_target_meanwhile_has_to_wait(
        self, settings: Settings, target: str
    ) -> None:
        turned_away: list[str] = []

        def start(what: str, done: int, total: int) -> None:
            if turned_away:
                return
            with psycopg.connect(target) as server:
                server.execute("SET lock_timeout = '20ms'")
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    server.execute("INSERT INTO installation VALUES ('installation', 'another')")
                turned_away.append(what)

        move(settings, start)
        assert turned_away
