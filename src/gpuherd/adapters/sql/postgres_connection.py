"""PostgreSQL: limits of a call, reconnects, the identity of the server, and commits in doubt."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
import structlog
from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown
from sqlalchemy.exc import DBAPIError

from gpuherd.ports.clock_port import Clock

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

# Enforced by the server, in milliseconds. A session that does nothing in the middle of a transaction belongs
# to a process that hangs, and its locks hold up all others.
SESSION_TIMEOUTS = {
    "statement_timeout": 15_000,
    "lock_timeout": 8_000,
    # Shorter than others wait for a lock: one replica that is stopped must not make the others refuse.
    "idle_in_transaction_session_timeout": 5_000,
}


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
    pass

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


def disable_timeouts(connection: sa.Connection) -> None:
    """Let this one transaction take the time that it needs: a migration must not be cut off half way."""
    for name in SESSION_TIMEOUTS:
        connection.exec_driver_sql(f"SET LOCAL {name} = 0")


T = TypeVar("T")
FIRST_PAUSE_S, PAUSE_MAX_S = 0.01, 0.25


# Lets so many seconds pass, and tells whether there is no point any more in waiting.
Wait = Callable[[float], bool]


class Backoff:
    """Pauses that grow, until a limit is reached."""

    def __init__(self, clock: Clock, limit_s: float, wait: Wait):
        self._clock = clock
        self._wait = wait
        self._until_s = clock.monotonic() + limit_s
        self._pause_s = FIRST_PAUSE_S

    def pause_unless_expired(self) -> bool:
        """Pause and say yes, or say no at once."""
        left_s = self._until_s - self._clock.monotonic()
        if left_s <= 0:
            return False
        ended = self._wait(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return not ended


class Reconnector:
    """Tries again while the server restarts.

    One caller that has waited for the whole limit has waited for all: until the server is there again, the
    next ones are refused at once.
    """

    def __init__(self, clock: Clock, limit_s: float, wait: Wait):
        self._clock = clock
        self._limit_s = limit_s
        self._wait = wait
        self._away = False

    def retry_while_away(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; it must have done nothing when it fails."""
        backoff = Backoff(self._clock, 0 if self._away else self._limit_s, self._wait)
        was_dead = False
        while True:
            try:
                reached = attempt()
            except DBAPIError as error:
                # A connection that had died unnoticed says nothing about the server.
                first_dead, was_dead = error.connection_invalidated and not was_dead, True
                if not first_dead and not backoff.pause_unless_expired():
                    self._away = True
                    raise
            else:
                self._away = False
                return reached


class PostgresGuard:
    """One PostgreSQL, as the threads of this process have to do with it."""

    def __init__(self, clock: Clock, wait: Wait, reconnect_limit_s: float, response_timeout_s: float):
        self._clock = clock
        self._wait = wait
        self._reconnect = Reconnector(clock, reconnect_limit_s, wait)
        self._watchdog = SocketWatchdog(clock, response_timeout_s)

    def watch(self, *engines: sa.Engine) -> None:
        """Have a connection cut when the server does not answer any more."""
        for engine in engines:
            self._watchdog.attach(engine)

    def retry_while_away(self, attempt: Callable[[], T]) -> T:
        """Connect, or begin, as soon as the server is there."""
        return self._reconnect.retry_while_away(attempt)

    def connect_without_timeouts(self, engine: sa.Engine) -> sa.Connection:
        """Return a connection on which this one transaction may take as long as it takes."""
        connection = self.retry_while_away(engine.connect)
        self._watchdog.exempt(connection)
        disable_timeouts(connection)
        return connection

    def backoff(self, limit_s: float) -> Backoff:
        """Return pauses for so long."""
        return Backoff(self._clock, limit_s, self._wait)

    def end(self) -> None:
        """Let go of what watches."""
        self._watchdog.end()


log = structlog.get_logger()


# Any role may ask. The control file would tell the old one until the first checkpoint after a promotion.
TIMELINE = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"


_IN_RECOVERY = "SELECT pg_is_in_recovery()"


_IDENTITY = (
    "SELECT system_identifier::text, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
    " FROM pg_control_system()"
)


IN_RECOVERY = (
    "the database is a standby that was not promoted. What it shows is of an earlier moment, and it could be "
    "promoted under our connections without a word; waiting for a server that takes writes"
)


_HAS_TIMELINE = "gpuherd.has_timeline"


# More than can have been lost.
EVENT_NUMBERS_SKIPPED = 1_000_000


SKIP_EVENT_NUMBERS = (
    "SELECT setval(pg_get_serial_sequence('event', 'id'),"
    f" nextval(pg_get_serial_sequence('event', 'id')) + {EVENT_NUMBERS_SKIPPED})"
)


class ServerHistory:
    """What the threads of one process have seen of it."""

    def __init__(self) -> None:
        # Called when something was lost, with how that was noticed. Nobody is answered from what is left
        # before it returns, so it must be quick.
        self.on_lost: Callable[[str], None] = lambda _: None
        self._lock = threading.Lock()
        self._system: str | None = None
        self._timeline: str | None = None
        # The highest number of a transaction that the server said is durable.
        self._committed = 0
        self._generation = 0

    @property
    def generation(self) -> int:
        """A number that changes whenever something was lost."""
        return self._generation

    @property
    def identity(self) -> str | None:
        """Which server, and on which timeline; None where nobody can tell."""
        return None if self._timeline is None else f"{self._system}/{self._timeline}"

    def watch(self, engine: sa.Engine) -> None:
        """Look at whatever this engine connects to."""
        sa.event.listen(engine, "connect", self._on_connect)

    def check_transaction(self, timeline: str | None, number: int) -> None:
        """Take note of a transaction that has begun.

        A pooler may have changed the server under a connection.
        """
        with self._lock:
            if timeline is not None and timeline != self._timeline:
                self._lost(f"the server is on timeline {timeline}, and was on {self._timeline}")
                self._timeline = timeline
            elif number <= self._committed:
                self._lost(f"the transaction number {number} was given out a second time")

    def note_commit(self, number: int) -> None:
        """Take note of a transaction that the server said is durable."""
        with self._lock:
            self._committed = max(self._committed, number)

    def _on_connect(self, driver: Any, record: Any) -> None:
        driver.autocommit = True
        if driver.execute(_IN_RECOVERY).fetchone()[0]:
            # guard: a standby that was not promoted is not asked
            raise driver.OperationalError(IN_RECOVERY)
        try:
            system, timeline = driver.execute(_IDENTITY).fetchone()
        except driver.ProgrammingError as error:
            # Some services that speak PostgreSQL's language have no such functions; their numbers must do.
            log.warning("database.timeline_unknown", error=type(error).__name__)
            system = timeline = None
        record.info[_HAS_TIMELINE] = timeline is not None
        with self._lock:
            before = self.identity
            self._system, self._timeline = system, timeline
            if before is not None and self.identity != before:
                self._lost(f"the server is {self.identity}, and was {before}")
                # guard: no event has the number of one that was lost
                _skip_event_numbers(driver)

    def _lost(self, reason: str) -> None:
        """Tell of a loss. With the lock held: whoever asks next must find it told."""
        self._generation += 1
        self._committed = 0
        self.on_lost(reason)


def _skip_event_numbers(driver: Any) -> None:
    """Let no event have the number of one that was lost: who has heard of that one would never hear of it.

    Done before anybody can write here. Should it fail, it is done a moment later (`stores.py`).
    """
    try:
        driver.execute(SKIP_EVENT_NUMBERS)
    except driver.Error as error:
        log.warning("database.event_numbers_not_skipped", error=type(error).__name__)


def has_timeline(info: Any) -> bool:
    """Return True if the server of a connection, by its `info`, can name its timeline."""
    return bool(info.get(_HAS_TIMELINE))


def sqlstate_of(error: DBAPIError) -> str | None:
    """Return PostgreSQL's code for what went wrong, None if it did not come to say one."""
    code: str | None = getattr(error.orig, "sqlstate", None)
    return code


_EPOCH, _TRANSACTION_ID = "gpuherd.epoch", "gpuherd.transaction_id"


# PostgreSQL throws its statistics away whenever it has to recover, and only then; any role may read this.
_READ_EPOCH = "SELECT extract(epoch FROM stats_reset)::text FROM pg_stat_archiver"


# In one message: to learn the number costs no round trip.
_BEGIN = "BEGIN; SELECT pg_current_xact_id()::text"


_BEGIN_ON_TIMELINE = f"{_BEGIN}, {TIMELINE}"


@dataclass(frozen=True)
class TransactionId:
    """Which transaction, in which epoch of the server (None: it cannot be told)."""

    number: str
    epoch: str | None


def track_transaction_ids(engine: sa.Engine, history: ServerHistory) -> None:
    """Have every transaction of this engine begun with a mark, by which `history` is checked too."""
    sa.event.listen(engine, "connect", _store_epoch)
    sa.event.listen(engine, "begin", lambda connection: _begin(connection, history))


def transaction_id_of(connection: sa.Connection) -> TransactionId:
    """Return the mark of the transaction that was begun on this connection."""
    transaction_id: TransactionId = connection.info[_TRANSACTION_ID]
    return transaction_id


def _store_epoch(driver: Any, record: Any) -> None:
    # The driver would begin transactions in a message of its own.
    driver.autocommit = True
    record.info[_EPOCH] = driver.execute(_READ_EPOCH).fetchone()[0]


def _begin(connection: sa.Connection, history: ServerHistory) -> None:
    driver: Any = connection.connection.dbapi_connection
    errors: Any = connection.dialect.loaded_dbapi.Error
    begin = _BEGIN_ON_TIMELINE if has_timeline(connection.info) else _BEGIN
    try:
        cursor = driver.execute(begin, prepare=False)
        cursor.nextset()
        number, timeline = (*cursor.fetchone(), None)[:2]
    except errors as error:
        if lost := driver.closed:
            connection.invalidate(error)
        # In SQLAlchemy's words, as from every other statement.
        raise sa.exc.DBAPIError.instance(
            begin,
            None,
            error,
            errors,
            hide_parameters=True,
            connection_invalidated=lost,
            dialect=connection.dialect,
        ) from error
    history.check_transaction(timeline, int(number))
    connection.info[_TRANSACTION_ID] = TransactionId(number, connection.info[_EPOCH])


_STATUS = sa.text("SELECT pg_xact_status(CAST(:number AS xid8))")
_FUTURE_TRANSACTION_ID = "22023"


class CommitOutcome(Enum):
    """What became of a transaction."""

    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


def is_lost(error: DBAPIError) -> bool:
    """Return True if the answer to a commit is missing. Any other error is an answer: it was refused."""
    return error.connection_invalidated or (sqlstate_of(error) or "57")[:2] in ("57", "08")


def query_outcome(engine: sa.Engine, transaction_id: TransactionId, backoff: Backoff) -> CommitOutcome:
    """Ask the server, as soon as it can be asked, until it knows or the patience ends."""
    while True:
        try:
            outcome = _ask(engine, transaction_id)
        except DBAPIError:
            outcome = None
        if outcome is not None:
            return outcome
        if not backoff.pause_unless_expired():
            return CommitOutcome.UNKNOWN


def _ask(engine: sa.Engine, transaction_id: TransactionId) -> CommitOutcome | None:
    with engine.connect() as connection, connection.begin():
        same_epoch = (
            transaction_id.epoch is not None and transaction_id_of(connection).epoch == transaction_id.epoch
        )
        try:
            status = connection.execute(_STATUS, {"number": transaction_id.number}).scalar()
        except DBAPIError as error:
            if sqlstate_of(error) == _FUTURE_TRANSACTION_ID:
                # It has lost its memory of that number, and of all that was written under it.
                return CommitOutcome.ROLLED_BACK
            raise
    return interpret_status(status, same_epoch=same_epoch)


def interpret_status(status: str | None, *, same_epoch: bool) -> CommitOutcome | None:
    """Return what the server's answer means; None for "not yet decided".

    In another epoch no transaction of the one before is left. Whatever is under way or was undone under our
    number is then a second use of it, which it could not have had if ours had been kept. But whether a commit
    under it was ours or the second one cannot be known.
    """
    match status, same_epoch:
        case ("committed", True):
            return CommitOutcome.COMMITTED
        case ("in progress", True):
            return None
        case ("aborted", _) | ("in progress", False):
            return CommitOutcome.ROLLED_BACK
        case _:
            return CommitOutcome.UNKNOWN


# How often the watchdog looks, as a part of the limit.
CHECKS_PER_TIMEOUT = 10


class SocketWatchdog:
    """A connection may be used for `limit_s` at a time; then it is lost."""

    def __init__(self, clock: Clock, limit_s: float):
        self._clock = clock
        self._limit_s = limit_s
        self._lock = threading.Lock()
        # Until when, by whose it is: the connection itself may be gone when it is given back.
        self._in_use: dict[int, tuple[float, Any]] = {}
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def attach(self, engine: sa.Engine) -> None:
        """Watch every connection of this engine from when it is taken until it is given back."""
        sa.event.listen(engine, "checkout", lambda driver, record, _: self._taken(driver, record.info))
        sa.event.listen(engine, "checkin", lambda _, record: self._given_back(record.info))

    def exempt(self, connection: sa.Connection) -> None:
        """Let this one take as long as it takes, this time."""
        self._given_back(connection.info)

    def end(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def _taken(self, driver: Any, info: dict[Any, Any]) -> None:
        with self._lock:
            self._in_use[id(info)] = (self._clock.monotonic() + self._limit_s, driver)
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="gpuherd-socket-watchdog", daemon=True
                )
                self._watcher.start()

    def _given_back(self, info: dict[Any, Any]) -> None:
        with self._lock:
            self._in_use.pop(id(info), None)

    def _watch(self) -> None:
        while not self._ended.wait(self._limit_s / CHECKS_PER_TIMEOUT):
            now_s = self._clock.monotonic()
            # All of it under the lock: a moment later the connection may belong to another caller.
            with self._lock:
                for key, (until_s, driver) in tuple(self._in_use.items()):
                    if now_s >= until_s:
                        del self._in_use[key]
                        _cut(driver)


def _cut(driver: Any) -> None:
    log.error(
        "database.unresponsive", advice="the server did not answer in time; the connection was given up"
    )
    # The caller that waits for it gets an error; closing it stays its own task.
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(driver.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)


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
