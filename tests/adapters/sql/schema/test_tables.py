"""The description of the tables is whole, whatever else a process has loaded."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.sql.databases import migrate_file

# Made by others, or for the queue, which has a description of its own.
NOT_OURS = {"alembic_version", "sqlite_sequence"}
# Each way to come by all tables; the last is how an installation is copied.
WAYS = {
    "the schema": "from gpuherd.adapters.sql.rental_tables import metadata; print(*metadata.tables)",
    "the copy": (
        "from gpuherd.adapters.sql.database_copy import EXCLUDED_TABLES, copied_tables; "
        "print(*(it.name for it in copied_tables()), *EXCLUDED_TABLES)"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_one_who_loads_nothing_else_sees_every_table_that_migrations_make(path: Path, way: str) -> None:
    """In a process of its own: here somebody may have loaded the file with the table that is missing."""
    migrate_file(path)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    made = {name for (name,) in rows} - NOT_OURS
    words = [sys.executable, "-c", WAYS[way]]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert made > {"instance", "duty"}
    assert made - set(said.split()) == set()
