"""PostgreSQL: the identity of the server, and what became of a commit without an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.postgres_guard import Backoff

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
        """Report a loss. The caller holds the lock, so that the next reader finds the loss reported."""
        self._generation += 1
        self._committed = 0
        self.on_lost(reason)


def _skip_event_numbers(driver: Any) -> None:
    """Skip event numbers, so that no new event gets the number of a lost one.

    A client that has read the lost event would never read the new one. This runs before any write here. If
    it fails, `bootstrap/open_stores.py` does it a moment later.
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
