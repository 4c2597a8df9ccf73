"""The SQLite file: nobody else can read it, and what was committed is on the disk."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import READERS, Database
from tests.adapters.sql.engine.blocked_writer import PATIENCE_S, writing

MEANT = {
    "journal_mode": "wal",
    # 2 is FULL: a commit that was answered survives a power cut.
    "synchronous": 2,
    "foreign_keys": 1,
}


def settings(connection: sa.Connection) -> dict[str, object]:
    return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in MEANT}


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A careless user's: every file that is made would be for everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestPrivacy:
    @pytest.mark.usefixtures("open_umask")
    async def test_the_file_its_companions_and_its_directory_are_the_owners_alone(self, path: Path) -> None:
        with closing(Database(f"sqlite:///{path}")) as database:
            database.migrate_with(lambda c: c.exec_driver_sql("CREATE TABLE note (text TEXT)").close())
            await database.write(writing("private"))
            files = sorted(path.parent.iterdir())
            assert [it.name for it in files] == ["gpuherd.db", "gpuherd.db-shm", "gpuherd.db-wal"]
            assert [mode(it) for it in files] == [0o600] * 3
            assert mode(path.parent) == 0o700

    async def test_a_directory_that_is_there_keeps_its_mode(self, tmp_path: Path) -> None:
        shared = tmp_path / "shared"
        shared.mkdir(mode=0o750)
        Database(f"sqlite:///{shared / 'gpuherd.db'}").close()
        assert mode(shared) == 0o750
        assert mode(shared / "gpuherd.db") == 0o600


class TestDurability:
    @pytest.mark.proves("R4")
    async def test_the_writer_and_every_reader_have_the_settings_that_we_count_on(
        self, sqlite: Database
    ) -> None:
        assert await sqlite.write(settings) == MEANT
        # All readers at the same time, so that each connection is asked.
        together = threading.Barrier(READERS)

        def ask(connection: sa.Connection) -> dict[str, object]:
            together.wait(PATIENCE_S)
            return settings(connection)

        assert await asyncio.gather(*(sqlite.read(ask) for _ in range(READERS))) == [MEANT] * READERS

    async def test_a_reader_cannot_write_behind_the_writers_back(self, sqlite: Database) -> None:
        """Nothing forbids it, but what a read writes is never committed."""
        await sqlite.read(writing("smuggled"))
        assert await sqlite.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM note").scalar()) == 0

    async def test_foreign_keys_are_really_checked(self, sqlite: Database) -> None:
        child = "CREATE TABLE child (parent TEXT REFERENCES note (text))"
        await sqlite.write(lambda c: c.exec_driver_sql(child).close())
        with pytest.raises(sa.exc.IntegrityError):
            await sqlite.write(lambda c: c.exec_driver_sql("INSERT INTO child VALUES ('nobody')").close())
