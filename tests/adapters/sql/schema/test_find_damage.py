"""What SQLite itself would not notice: a table and its index that tell two different stories."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from gpuherd.adapters.sql.sqlite_file import find_damage
from tests.support.sql.inline_database import migrated_copy

TAG = "gh1-a1b2c3d4-00000000000000000000000000-1"


def falsified(path: Path) -> Path:
    """Make a file in which one letter of a tag is another one in the table, and not in its index."""
    migrated_copy(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute(
            "INSERT INTO instance (id, name, status, goal, settled, product_name, created_at, version, doc) "
            "VALUES ('i', 'n', 'running', 'running', 1, 'p', 1, 1, '{}')"
        )
        connection.execute(
            "INSERT INTO attempt (instance_id, n, tag, state, sent_at, doc) "
            "VALUES ('i', 1, ?, 'sent', 1, '{}')",
            (TAG,),
        )
    content = path.read_bytes()
    assert content.count(TAG.encode()) == 2
    path.write_bytes(content.replace(TAG.encode(), TAG.replace("a1b2", "a1b3").encode(), 1))
    return path


def test_a_tag_that_differs_from_its_index_is_damage(tmp_path: Path) -> None:
    with closing(sqlite3.connect(falsified(tmp_path / "gpuherd.db"))) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        problem = find_damage(connection)
    assert problem is not None
    assert "index" in problem
