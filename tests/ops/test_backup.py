"""A copy of the database is whole and private, overwrites nothing, and goes back without losing anything."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuherd.adapters.sql import sqlite_file
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores.installation_store import SqlFlags, mark_copied
from gpuherd.bootstrap.key_files import ProcessLock
from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.ops.database_files import make_backup, restore_backup
from gpuherd.settings import Settings
from tests.adapters.sql.schema.test_find_damage import falsified

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
INSTALLATION = "a1b2c3d4"


def database_at(directory: Path, installation: str = INSTALLATION) -> Path:
    path = directory / "gpuherd.db"
    with closing(Database(f"sqlite:///{path}")) as database:
        migrate(database)
        SqlFlags(database).ensure("installation", installation)
    return path


def note(path: Path, key: str, value: str = "there") -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO installation VALUES (?, ?)", (key, value))


def noted(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {key for (key,) in connection.execute("SELECT key FROM installation")} - {"installation"}


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 4 : len(content) // 2] = b"\xff" * (len(content) // 2 - len(content) // 4)
    path.write_bytes(content)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "data").mkdir()
    return Settings.model_validate({"GPUHERD_DATA_DIR": tmp_path / "data"})


@pytest.fixture
def database(settings: Settings) -> Path:
    return database_at(settings.data_dir)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copies" / "monday.db"


@pytest.fixture(autouse=True)
def copies(copy: Path) -> Iterator[None]:
    copy.parent.mkdir()
    yield
    assert not list(copy.parent.parent.rglob("*.partial-*")), "no draft is ever left behind"


def refused(work: object) -> CommandError:
    assert callable(work)
    with pytest.raises(CommandError) as caught:
        work()
    return caught.value


class TestBackup:
    def test_it_is_one_private_file_with_everything_in_it(
        self, settings: Settings, database: Path, copy: Path
    ) -> None:
        # A reader keeps the log from being folded in, as a server would.
        with closing(sqlite3.connect(database)) as server:
            server.execute("SELECT * FROM installation").fetchone()
            note(database, "in the log only")
            made = make_backup(settings, copy, force=False)
        assert (made.file, made.installation, made.size_bytes) == (copy, INSTALLATION, copy.stat().st_size)
        assert copy.stat().st_mode & 0o777 == 0o600
        assert noted(copy) == {"in the log only"}
        assert sorted(copy.parent.iterdir()) == [copy]

    def test_it_shows_one_moment_while_others_write(
        self, settings: Settings, database: Path, copy: Path
    ) -> None:
        """Each transaction writes two rows; a copy of several moments would hold one without the other."""
        enough = threading.Event()
        filler = "x" * 200_000
        for n in range(10):
            note(database, f"filler-{n}", filler)

        def write() -> None:
            n = 0
            with closing(sqlite3.connect(database, timeout=30)) as connection:
                while not enough.is_set():
                    n += 1
                    with connection:
                        connection.execute("INSERT INTO installation VALUES (?, ?)", (f"a{n}", filler))
                        connection.execute("INSERT INTO installation VALUES (?, ?)", (f"b{n}", filler))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                make_backup(settings, copy, force=True)
                keys = noted(copy)
                assert {it[1:] for it in keys if it[0] == "a"} == {it[1:] for it in keys if it[0] == "b"}
        finally:
            enough.set()
            writer.join()

    def test_what_has_the_name_already_is_left_alone(
        self, settings: Settings, database: Path, copy: Path
    ) -> None:
        copy.write_text("precious")
        refusal = refused(lambda: make_backup(settings, copy, force=False))
        assert (refusal.report.exit_code, refusal.report.code) == (ExitCode.CONFLICT, "FILE_EXISTS")
        assert copy.read_text() == "precious"
        make_backup(settings, copy, force=True)
        assert sqlite_file.installation_of(copy) == INSTALLATION

    def test_somebody_who_was_faster_keeps_the_name(self, tmp_path: Path, database: Path, copy: Path) -> None:
        with sqlite_file.checked_copy(database, copy) as made:
            copy.write_text("precious")
            with pytest.raises(FileExistsError):
                sqlite_file.publish(made.path, copy, overwrite=False)
        assert copy.read_text() == "precious"

    def test_the_database_is_never_its_own_copy(self, settings: Settings, database: Path) -> None:
        before = database.read_bytes()
        refusal = refused(lambda: make_backup(settings, database, force=True))
        assert refusal.report.exit_code is ExitCode.USAGE
        assert database.read_bytes() == before

    def test_a_damaged_database_gives_no_copy(self, settings: Settings, database: Path, copy: Path) -> None:
        spoil(database)
        refusal = refused(lambda: make_backup(settings, copy, force=False))
        assert refusal.report.exit_code is ExitCode.CONFIGURATION
        assert not copy.exists()

    def test_damage_that_only_a_reading_shows_gives_no_copy_either(
        self, settings: Settings, copy: Path
    ) -> None:
        falsified(settings.data_dir / "gpuherd.db")
        refusal = refused(lambda: make_backup(settings, copy, force=False))
        assert refusal.report.exit_code is ExitCode.CONFIGURATION
        assert not copy.exists()

    def test_no_database_no_copy_and_no_empty_database_either(self, settings: Settings, copy: Path) -> None:
        refusal = refused(lambda: make_backup(settings, copy, force=False))
        assert refusal.report.exit_code is ExitCode.NOT_FOUND
        assert not list(settings.data_dir.iterdir())

    def test_a_place_that_cannot_be_written_is_named(self, settings: Settings, database: Path) -> None:
        refusal = refused(lambda: make_backup(settings, Path("/nowhere/copy.db"), force=False))
        assert refusal.report.exit_code is ExitCode.FAILED
        assert "/nowhere/copy.db" in refusal.report.title


def tell(database: Path) -> int:
    """Write an event behind everybody's back, and return its number."""
    words = (
        "INSERT INTO event (instance_id, sequence, type, at, doc) VALUES (?, 1, 'x', 0, '{}') RETURNING id"
    )
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        return int(connection.execute(words, (uuid.uuid4().hex,)).fetchone()[0])


class TestRestore:
    @pytest.fixture
    def old(self, settings: Settings, database: Path, copy: Path) -> Path:
        note(database, "monday")
        make_backup(settings, copy, force=False)
        note(database, "tuesday")
        return copy

    def test_two_restores_within_a_second_keep_what_each_replaced(
        self, settings: Settings, database: Path, old: Path
    ) -> None:
        first = restore_backup(settings, old, NOW, force=False).replaced
        second = restore_backup(settings, old, NOW, force=False).replaced
        assert first is not None
        assert second == database.with_name("gpuherd.db.replaced-20260501T120000Z-2")
        assert (noted(first), noted(second)) == ({"monday", "tuesday"}, {"monday"})

    def test_the_copy_is_in_place_and_the_database_before_it_is_kept(
        self, settings: Settings, database: Path, old: Path
    ) -> None:
        done = restore_backup(settings, old, NOW, force=False)
        assert noted(database) == {"monday"}
        assert database.stat().st_mode & 0o777 == 0o600
        assert done.replaced == database.with_name("gpuherd.db.replaced-20260501T120000Z")
        assert noted(done.replaced) == {"monday", "tuesday"}
        with closing(Database(f"sqlite:///{database}")) as opened:
            migrate(opened)

    @pytest.mark.parametrize("told_before", [0, 3])
    def test_no_event_gets_the_number_of_one_from_after_the_copy(
        self, settings: Settings, database: Path, copy: Path, told_before: int
    ) -> None:
        """A client that comes back with the number of a lost event must hear of all that comes now."""
        for _ in range(told_before):
            tell(database)
        make_backup(settings, copy, force=False)
        last_heard = max(tell(database) for _ in range(5))
        restore_backup(settings, copy, NOW, force=False)
        assert tell(database) > last_heard

    @pytest.fixture
    def with_log(self, settings: Settings, database: Path, old: Path) -> Path:
        """The database as after kill -9: a part of it is in its log only, and nobody has it open."""
        with closing(sqlite3.connect(database)) as server:
            server.execute("SELECT * FROM installation").fetchone()
            note(database, "wednesday")
            parts = [database, *(it for it in sqlite_file.wal_files(database) if it.exists())]
            contents = {it.name: it.read_bytes() for it in parts}
        assert f"{database.name}-wal" in contents
        for name, content in contents.items():
            (settings.data_dir / name).write_bytes(content)
        return database

    def test_what_was_only_in_the_log_is_kept_too_and_does_not_get_into_the_copy(
        self, settings: Settings, with_log: Path, old: Path
    ) -> None:
        done = restore_backup(settings, old, NOW, force=False)
        assert done.replaced is not None
        assert noted(done.replaced) == {"monday", "tuesday", "wednesday"}
        assert noted(with_log) == {"monday"}

    def test_a_restore_that_fails_at_its_last_step_has_lost_nothing(
        self, settings: Settings, with_log: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError):
            sqlite_file.replace_database(tmp_path / "vanished", with_log, settings.data_dir / "aside")
        assert noted(with_log) == {"monday", "tuesday", "wednesday"}

    def test_a_damaged_database_is_kept_as_it_is_with_its_log(
        self, settings: Settings, database: Path, old: Path
    ) -> None:
        database.write_bytes(b"no database at all" * 100)
        (wal, _) = sqlite_file.wal_files(database)
        wal.write_bytes(b"its log")
        done = restore_backup(settings, old, NOW, force=False)
        assert not wal.exists(), "it would be taken for the log of the copy"
        assert noted(database) == {"monday"}
        assert done.replaced is not None
        assert done.replaced.read_bytes() == b"no database at all" * 100
        assert sqlite_file.wal_files(done.replaced)[0].read_bytes() == b"its log"

    def test_where_there_was_none_the_copy_simply_goes(
        self, settings: Settings, database: Path, old: Path
    ) -> None:
        database.unlink()
        (wal, _) = sqlite_file.wal_files(database)
        wal.write_bytes(b"a log without its database")
        assert restore_backup(settings, old, NOW, force=False).replaced is None
        assert not wal.exists()
        assert noted(database) == {"monday"}

    def test_a_running_server_is_not_disturbed(self, settings: Settings, database: Path, old: Path) -> None:
        lock = ProcessLock(settings.data_dir / "gpuherd.db")
        refusal = refused(lambda: restore_backup(settings, old, NOW, force=True))
        assert (refusal.report.exit_code, refusal.report.code) == (ExitCode.CONFLICT, "SERVER_RUNNING")
        assert noted(database) == {"monday", "tuesday"}
        lock.release()
        restore_backup(settings, old, NOW, force=False)

    def test_a_database_that_was_copied_away_does_not_come_back_by_a_restore(
        self, settings: Settings, database: Path, old: Path
    ) -> None:
        mark_copied(database, "postgresql://db/gpuherd on 2026-05-01")
        refusal = refused(lambda: restore_backup(settings, old, NOW, force=False))
        assert (refusal.report.exit_code, refusal.report.code) == (ExitCode.CONFLICT, "COPIED_AWAY")
        assert "postgresql://db/gpuherd" in refusal.report.detail + refusal.report.title
        assert noted(database) == {"monday", "tuesday", "copied_to"}
        restore_backup(settings, old, NOW, force=True)
        assert noted(database) == {"monday"}

    def test_of_a_linked_database_the_file_is_replaced_and_not_the_link(
        self, settings: Settings, database: Path, old: Path, tmp_path: Path
    ) -> None:
        real = database.rename(tmp_path / "elsewhere.db")
        database.symlink_to(real)
        restore_backup(settings, old, NOW, force=False)
        assert database.is_symlink()
        assert noted(real) == {"monday"}

    def test_a_damaged_copy_changes_nothing(self, settings: Settings, database: Path, old: Path) -> None:
        spoil(old)
        refusal = refused(lambda: restore_backup(settings, old, NOW, force=True))
        assert refusal.report.exit_code is ExitCode.CONFIGURATION
        assert noted(database) == {"monday", "tuesday"}
        assert not list(settings.data_dir.glob("*replaced*"))

    def test_some_other_database_changes_nothing(
        self, settings: Settings, database: Path, old: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "music.db"
        with closing(sqlite3.connect(other)) as connection:
            connection.execute("CREATE TABLE song (title)")
        refusal = refused(lambda: restore_backup(settings, other, NOW, force=True))
        assert "not a database of gpuherd" in refusal.report.title
        assert noted(database) == {"monday", "tuesday"}

    def test_a_copy_of_a_newer_version_changes_nothing(
        self, settings: Settings, database: Path, old: Path
    ) -> None:
        with closing(sqlite3.connect(old)) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        refusal = refused(lambda: restore_backup(settings, old, NOW, force=True))
        assert "newer" in refusal.report.title
        assert noted(database) == {"monday", "tuesday"}

    def test_a_copy_of_another_installation_needs_a_second_word(
        self, settings: Settings, database: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "other").mkdir()
        other = database_at(tmp_path / "other", "ffffffff")
        refusal = refused(lambda: restore_backup(settings, other, NOW, force=False))
        assert refusal.report.code == "ANOTHER_INSTALLATION"
        assert sqlite_file.installation_of(database) == INSTALLATION
        restore_backup(settings, other, NOW, force=True)
        assert sqlite_file.installation_of(database) == "ffffffff"

    def test_the_database_itself_is_no_copy(self, settings: Settings, database: Path) -> None:
        assert refused(lambda: restore_backup(settings, database, NOW, force=True)).report.code == "SAME_FILE"


class TestPostgres:
    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("postgresql://herd:geheim@db.example/gpu", "postgresql://herd@db.example/gpu"),
            ("postgres:///gpu?host=/run/pg&password=geheim", "'postgresql:///gpu?host=/run/pg'"),
            ("postgresql+psycopg://herd:ge:he@im@db/gpu", "postgresql://herd@db/gpu"),
        ],
    )
    def test_the_right_tool_is_named_without_the_password(
        self, tmp_path: Path, copy: Path, url: str, said: str
    ) -> None:
        settings = Settings.model_validate({"GPUHERD_DATA_DIR": tmp_path, "GPUHERD_DATABASE_URL": url})
        refusals = [
            refused(lambda: make_backup(settings, copy, force=False)),
            refused(lambda: restore_backup(settings, copy, NOW, force=False)),
        ]
        assert [it.report.exit_code for it in refusals] == [ExitCode.USAGE] * 2
        dump, load = [it.report.suggestion for it in refusals]
        assert dump == f"pg_dump --format=custom --file={copy} {said}"
        assert load.startswith("pg_restore")
        assert said.strip("'") in load
        assert "geheim" not in dump + load
