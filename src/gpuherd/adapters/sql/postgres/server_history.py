"""The history of a PostgreSQL server: whether it still has all that it said was committed.

A standby that is promoted, or a backup that is recovered to some moment, goes on without what was committed
after that, and counts its numbers anew from there. Its timeline tells so: every promotion and every recovery
to a moment begins a new one. Where it does not (a disk that was put back), a transaction number that comes
again tells.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
import structlog

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
    """Tell whether the server of a connection, by its `info`, can name its timeline."""
    return bool(info.get(_HAS_TIMELINE))
