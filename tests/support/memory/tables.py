"""The tables as dicts, and transactions on them: all of it is written, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import date, datetime
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy.exc import IntegrityError

from gpuherd.domain.audit import NO_HASH, AuditEntry, AuditRecord, chained
from gpuherd.domain.clock_reading import ClockSeam
from gpuherd.domain.cloud.capacity_line import OfferRest
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.cloud.offer import OfferKey
from gpuherd.domain.cloud.orphan import Orphan
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.domain.job import JobStatus, NewJob
from gpuherd.domain.money.budget import Budget
from gpuherd.domain.money.usage_span import CostKind, CostSpan, CostSubject
from gpuherd.domain.webhooks.webhook_delivery import Delivery
from gpuherd.ports.costs_port import BilledDay

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Clash(IntegrityError):
    """Two rows want the same key. It is what the databases raise, so that one suite fits all stores."""

    def __init__(self, what: str):
        super().__init__(what, None, Exception(what))


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """An instance and who is having a turn on it."""

    instance: Instance
    lease_token: str | None = None
    lease_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """Whose claim it is, and for what."""

    fingerprint: str
    instance_id: str
    operation_id: str | None = None


@dataclass(frozen=True, slots=True)
class SightingRow:
    """A sighting under the tag that its machine carries."""

    sighting: ObservedMachine
    tag: str | None
    # The instance that the tag names, whether or not we have it.
    tagged_instance_id: str | None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the book."""

    new: NewJob
    created_at: datetime
    # When its next pass is due; while it runs: it was woken.
    due_at: datetime | None
    state: JobStatus = JobStatus.PENDING
    attempts: int = 0
    processed_at: datetime | None = None
    completed_at: datetime | None = None
    error: str = ""
    takes: int = 0

    @property
    def is_live(self) -> bool:
        return self.completed_at is None

    @property
    def is_waiting(self) -> bool:
        return self.state is JobStatus.PENDING


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A span and whose it is."""

    span: CostSpan
    subject: CostSubject


_ABSENT: Any = object()


class Tables:
    """Everything that survives a crash. Use as a context manager around each write."""

    def __init__(self) -> None:
        self.flags: dict[str, str] = {}
        self.instances: dict[str, InstanceRow] = {}
        self.bound: dict[str, str] = {}
        self.claims: dict[tuple[str, str], ClaimRow] = {}
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self.tags: dict[str, tuple[str, int]] = {}
        self.events: dict[tuple[str, int], Event] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.operations: dict[str, tuple[Operation, str]] = {}
        self.observations: dict[str, SightingRow] = {}
        self.lists: dict[int, ListRecord] = {}
        self.orphans: dict[str, Orphan] = {}
        self.spans: dict[int, SpanRow] = {}
        self.open_spans: dict[tuple[str, CostKind], int] = {}
        self.meters: dict[str, tuple[ClockSeam, ...]] = {}
        self.bill: dict[tuple[date, str, str], BilledDay] = {}
        self.budgets: dict[str, Budget] = {}
        self.offer_rests: dict[OfferKey, OfferRest] = {}
        self.reclaimed_places: dict[OfferKey, datetime] = {}
        self.audit: dict[int, AuditEntry] = {}
        self.jobs: dict[str, JobRow] = {}
        self.live_jobs: dict[str, str] = {}
        # Called after each commit that has changed a job.
        self.on_commit_wake: Callable[[], None] = lambda: None
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._number = 0

    def number(self) -> int:
        """Return a number that no row has had."""
        self._number += 1
        return self._number

    def put(self, table: dict[K, V], key: K, row: V) -> None:
        """Insert a row, or write over it."""
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = row

    def insert(self, table: dict[K, V], key: K, row: V) -> None:
        """Insert a row under a key that must be free."""
        if key in table:
            raise Clash(f"{key!r} is taken")
        self.put(table, key, row)

    def drop(self, table: dict[K, V], key: K) -> None:
        """Delete a row. Quiet when there is none."""
        if key in table:
            self._undo.append((table, key, table.pop(key)))

    def append_audit_record(self, audit_record: AuditRecord) -> None:
        """Chain a record to the entry before it, and append it."""
        last = self.audit[max(self.audit)] if self.audit else None
        entry = chained(audit_record, last.n if last else 0, last.hash if last else NO_HASH)
        self.put(self.audit, entry.n, entry)

    def __enter__(self) -> Tables:
        assert not self._undo, "a transaction is open already"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        done, self._undo = self._undo, []
        if error is None:
            if any(table is self.jobs for table, _, _ in done):
                self.on_commit_wake()
            return
        for table, key, before in reversed(done):
            if before is _ABSENT:
                del table[key]
            else:
                table[key] = before
