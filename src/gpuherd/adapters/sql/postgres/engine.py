"""Connections to PostgreSQL: nothing that is asked of the server may take for ever."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.postgres.server_history import ServerHistory
from gpuherd.adapters.sql.postgres.transaction_id import track_transaction_ids

# Enforced by the server, in milliseconds. A session that does nothing in the middle of a transaction belongs
# to a process that hangs, and its locks hold up all others.
SESSION_TIMEOUTS = {
    "statement_timeout": 15_000,
    "lock_timeout": 8_000,
    # Shorter than others wait for a lock: one replica that is stopped must not make the others refuse.
    "idle_in_transaction_session_timeout": 5_000,
}
# Also where the server as a whole was told to be less careful: a call that costs money goes out right after
# the commit of its intent.
DURABLE_COMMIT = {"synchronous_commit": "on"}
# In libpq's words. A machine that is gone without a goodbye is noticed within half a minute.
CONNECTION_DEFAULTS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "fallback_application_name": "gpuherd",
    # Of several hosts, the one that is not a standby.
    "target_session_attrs": "read-write",
}


def make_postgres_engine(url: str, size: int, history: ServerHistory, *, writer: bool) -> sa.Engine:
    """Return a pool of `size` connections.

    None is tried out before it is used: a round trip for each transaction is dear, and a caller that meets
    a dead one has done nothing yet, so it takes another.
    """
    # Its driver takes a while to load, and few need it.
    from gpuherd.adapters.sql.postgres.null_characters import replace_nulls  # noqa: PLC0415

    engine = sa.create_engine(
        url,
        pool_size=size,
        max_overflow=0,
        hide_parameters=True,
        connect_args=connection_arguments(url),
        # Each statement sees its own moment in any case, so a reader's transaction would be two round trips
        # around nothing.
        isolation_level="READ COMMITTED" if writer else "AUTOCOMMIT",
    )
    replace_nulls(engine)
    history.watch(engine)
    if writer:
        track_transaction_ids(engine, history)
    return engine


def connection_arguments(url: str) -> dict[str, Any]:
    """Return our limits in libpq's words, but for those on which the URL itself has a word."""
    theirs = sa.make_url(url).query
    options = theirs.get("options", "")
    options = options if isinstance(options, str) else " ".join(options)
    # guard: a commit is kept whatever the server was told
    ours = [
        f"-c {name}={value}"
        for name, value in {**SESSION_TIMEOUTS, **DURABLE_COMMIT}.items()
        if name not in options
    ]
    link = {name: value for name, value in CONNECTION_DEFAULTS.items() if name not in theirs}
    return {**link, "options": " ".join([*ours, options]).strip()}


def streaming(connection: sa.Connection) -> sa.Connection:
    """Let a reader's rows come in portions: a cursor needs the transaction that readers do without."""
    if connection.dialect.name == "postgresql":
        return connection.execution_options(isolation_level="READ COMMITTED")
    return connection


def disable_timeouts(connection: sa.Connection) -> None:
    """Let this one transaction take the time that it needs: a migration must not be cut off half way."""
    for name in SESSION_TIMEOUTS:
        connection.exec_driver_sql(f"SET LOCAL {name} = 0")
