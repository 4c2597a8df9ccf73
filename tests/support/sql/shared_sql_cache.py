"""The SQL that SQLAlchemy has written for one database, for every later one of this process.

It keeps what it has written with the engine, by the dialect; a test that has both to itself spends a lot of
its time on having the same dozen statements written once more.
"""

from __future__ import annotations

from sqlalchemy import Engine

from gpuherd.adapters.sql.database import Database

_first: dict[tuple[str, bool], Engine] = {}


def share_compiled_sql(database: Database) -> None:
    """Let `database` use what was written for the first one of its kind."""
    for engine, writes in ((database._write_engine, True), (database._read_engine, False)):
        kind = (engine.dialect.name, writes)
        if kind not in _first:
            # A dialect is complete once it has been connected.
            engine.connect().close()
            _first[kind] = engine
        engine.dialect = _first[kind].dialect
        engine._compiled_cache = _first[kind]._compiled_cache
