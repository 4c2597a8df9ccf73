"""PostgreSQL: pools, and the arguments of a connection."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown

from gpuherd.adapters.sql.postgres_guard import SESSION_TIMEOUTS
from gpuherd.adapters.sql.server_history import ServerHistory, track_transaction_ids

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool


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


def make_async_pool(url: str, size: int) -> AsyncConnectionPool:
    """Return a pool for the job engine, not open yet. A crash of the server may undo its commits."""
    # Loads only where PostgreSQL is used.
    from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415

    async def configure(connection: AsyncConnection) -> None:
        await connection.set_autocommit(True)

    return AsyncConnectionPool(
        _conninfo(url),
        kwargs=connection_arguments(url, durable=False),
        configure=configure,
        min_size=2,
        max_size=size,
        open=False,
        check=AsyncConnectionPool.check_connection,
    )


async def connect_async(url: str) -> AsyncConnection:
    """Return a connection that listens."""
    # Loads only where PostgreSQL is used.
    from psycopg import AsyncConnection  # noqa: PLC0415

    return await AsyncConnection.connect(_conninfo(url), **connection_arguments(url), autocommit=True)


def _conninfo(url: str) -> str:
    # `postgresql+psycopg://` names a driver, which libpq does not know.
    return re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", url)


def connection_arguments(url: str, *, durable: bool = True) -> dict[str, Any]:
    """Return our limits in libpq's words, but for those on which the URL itself has a word."""
    theirs = sa.make_url(url).query
    options = theirs.get("options", "")
    options = options if isinstance(options, str) else " ".join(options)
    # Also where the server as a whole was told to be less careful: a call that costs money goes out right
    # after the commit of its intent.
    # guard: a commit is kept whatever the server was told
    ours = [
        f"-c {name}={value}"
        for name, value in {**SESSION_TIMEOUTS, "synchronous_commit": "on" if durable else "off"}.items()
        if name not in options
    ]
    link = {name: value for name, value in CONNECTION_DEFAULTS.items() if name not in theirs}
    return {**link, "options": " ".join([*ours, options]).strip()}


def streaming(connection: sa.Connection) -> sa.Connection:
    """Let a reader's rows come in portions: a cursor needs the transaction that readers do without."""
    if connection.dialect.name == "postgresql":
        return connection.execution_options(isolation_level="READ COMMITTED")
    return connection


NULL, REPLACEMENT = "\x00", "\ufffd"


class NullReplacingDumper(StrDumperUnknown):
    """How text goes to the server."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace(NULL, REPLACEMENT) if NULL in obj else obj)


def replace_nulls(engine: sa.Engine) -> None:
    """Have every connection of this engine do so."""
    sa.event.listen(engine, "connect", _register_dumper)


def _register_dumper(driver: Any, _record: Any) -> None:
    driver.adapters.register_dumper(str, NullReplacingDumper)
