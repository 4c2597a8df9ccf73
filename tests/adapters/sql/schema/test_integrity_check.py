"""A check that was begun early says the same as one that is made in place."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.engine.errors import DatabaseUnusable
from gpuherd.adapters.sql.schema.integrity_check import IntegrityCheck
from gpuherd.adapters.sql.schema.migrate import migrate
from tests.support.sql.inline_database import migrated_copy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    migrated_copy(tmp_path / "gpuherd.db")
    return tmp_path / "gpuherd.db"


def insert_nonsense(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO instance (id, name, status, goal, settled, product_name, created_at, version, doc) "
            "VALUES ('i', 'n', 'running', 'running', 1, 'p', 1, 1, '{half')"
        )


def test_a_sound_file_passes(path: Path) -> None:
    assert IntegrityCheck(path).wait() == (True, None)


def test_a_file_that_is_not_there_yet_passes_and_is_not_made(tmp_path: Path) -> None:
    assert IntegrityCheck(tmp_path / "new.db").wait() == (True, None)
    assert not (tmp_path / "new.db").exists()


def test_what_makes_no_sense_is_found(path: Path) -> None:
    insert_nonsense(path)
    assert IntegrityCheck(path).wait() == (True, "a row of instance makes no sense")


def test_what_cannot_be_read_is_left_to_whoever_opens_it(path: Path) -> None:
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    assert IntegrityCheck(path).wait() == (False, None)


@pytest.mark.proves("F32")
@pytest.mark.parametrize("early", [True, False])
def test_nobody_starts_on_what_the_check_has_found(path: Path, early: bool) -> None:
    insert_nonsense(path)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(DatabaseUnusable, match="makes no sense"):
        migrate(database, IntegrityCheck(path) if early else None)
    database.close()


def test_a_check_that_came_to_no_end_is_made_again(path: Path) -> None:
    path.with_name("a-directory").mkdir()
    check = IntegrityCheck(path.with_name("a-directory"))
    assert check.wait() == (False, None)
    insert_nonsense(path)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(DatabaseUnusable, match="makes no sense"):
        migrate(database, check)
    database.close()
