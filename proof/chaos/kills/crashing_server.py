"""`gpuherd serve`, the real one, that kills itself where GPUHERD_CRASH_AT=point:n says.

Nothing of this is in the service: its parts are wrapped here, before it starts.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

import sqlalchemy as sa

from gpuherd import __main__ as gpuherd
from gpuherd.adapters.egress.webhook_sender import HttpWebhookSender
from gpuherd.adapters.novita.novita_cloud import NovitaCloud
from gpuherd.adapters.sql import group_commit
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.group_commit import FileTransactions, ServerTransactions
from gpuherd.adapters.stores import (
    budget_store,
    instance_store,
    instance_writes,
    meter_writes,
    usage_span_writes,
)
from gpuherd.adapters.stores.event_store import append_account_events
from gpuherd.adapters.stores.observation_store import SqlObservations
from gpuherd.domain.instance import next_step
from gpuherd.domain.instance.instance_event import DELETING, END_CAUSES
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState
from gpuherd.domain.money.meter import Metering
from gpuherd.ports.instance_port import Change
from proof.chaos.kills.points import (
    BEFORE_METER,
    CRASH_AT_VARIABLE,
    MID_BATCH,
    MID_METER,
    MID_MIGRATION,
    POINTS,
)

ATTEMPTS = {AttemptState.SENT: "intent", AttemptState.BOUND: "bind"}
REPEAT = timedelta(seconds=3)
ENDS = frozenset(END_CAUSES.values())
DDL = ("CREATE", "ALTER", "DROP")


class CrashPoint:
    """Counts how often the one point is reached, and knows when it was often enough."""

    def __init__(self, word: str):
        self.point, _, n = word.partition(":")
        assert not word or self.point in POINTS, word
        self._left = int(n or 1)
        self._lock = threading.Lock()

    def reached(self, point: str) -> None:
        """Die here, if this is the place and the time."""
        if point != self.point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def wrap_calls(crash_point: CrashPoint) -> None:
    """Watch the calls to the outside."""
    for owner, method, name in (
        (NovitaCloud, "create_machine", "post"),
        (NovitaCloud, "delete_machine", "delete"),
        (NovitaCloud, "stop_machine", "stop"),
        (NovitaCloud, "start_machine", "start"),
        (HttpWebhookSender, "send", "webhook"),
    ):
        setattr(owner, method, _around(getattr(owner, method), name, crash_point))


def _around(call: Callable[..., Any], name: str, crash_point: CrashPoint) -> Callable[..., Any]:
    @wraps(call)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        crash_point.reached(f"before_{name}")
        answer = await call(*args, **kwargs)
        crash_point.reached(f"after_{name}")
        return answer

    return wrapped


def wrap_commits(crash_point: CrashPoint) -> None:
    """Watch what the writer's transactions hold, and their ends."""
    marks: list[str] = []
    add_instance, update_instance = instance_writes.add_instance, instance_writes.update_instance
    write_attempt, run = instance_writes._write_attempt, group_commit._run
    write_rest, append_events = instance_writes._write_rest, append_account_events

    def watched(begun: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def transaction(self: Any, *, durable: bool = True) -> Iterator[sa.Connection]:
            marks.clear()
            with begun(self, durable=durable) as connection:
                yield connection
                for mark in marks:
                    crash_point.reached(f"before_{mark}_commit")
            for mark in marks:
                crash_point.reached(f"after_{mark}_commit")

        return transaction

    def add(*args: Any, **kwargs: Any) -> None:
        add_instance(*args, **kwargs)
        marks.append("accept")

    def update(*args: Any, **kwargs: Any) -> int:
        version = update_instance(*args, **kwargs)
        marks.append("goal")
        return version

    def attempt(connection: sa.Connection, it: Attempt) -> None:
        write_attempt(connection, it)
        if it.state in ATTEMPTS:
            marks.append(ATTEMPTS[it.state])

    class WatchedSpans(usage_span_writes.SpanWriter):
        def put(self, spans: Any, subjects: Any) -> None:
            super().put(spans, subjects)
            if spans:
                marks.append("meter")

    def rest(connection: sa.Connection, change: Change, now: datetime) -> None:
        write_rest(connection, change, now)
        if any(it.cause is not None and it.cause.code in ENDS for it in change.events):
            marks.append("end")
        if change.heir is not None:
            marks.append("succeed")
        heir = None if change.instance.chain is None else change.instance.chain.heir
        if heir is not None and heir.has_taken_over and any(it.type == DELETING for it in change.events):
            marks.append("retire")

    def told(connection: sa.Connection, events: Any, *args: Any) -> None:
        append_events(connection, events, *args)
        if events:
            marks.append("review")

    def run_one(connection: sa.Connection, work: group_commit.Work) -> Any:
        result = run(connection, work)
        marks.append("work")
        if marks.count("work") == 2:
            # Two are written, none is committed, and both callers wait.
            crash_point.reached(MID_BATCH)
        return result

    # The update that comes from here, and not from a turn, is what somebody asked for.
    for owner, name, wrapped in (
        (FileTransactions, "open", watched(FileTransactions.open)),
        (ServerTransactions, "open", watched(ServerTransactions.open)),
        (instance_store, "add_instance", add),
        (instance_store, "update_instance", update),
        (instance_writes, "_write_attempt", attempt),
        (instance_writes, "_write_rest", rest),
        (budget_store, "append_account_events", told),
        (meter_writes, "SpanWriter", WatchedSpans),
        (group_commit, "_run", run_one),
    ):
        setattr(owner, name, wrapped)


def wrap_meter(crash_point: CrashPoint) -> None:
    """Watch what a list costs on its way into the ledger."""
    record, add_to_days = SqlObservations.record, usage_span_writes.add_to_days

    async def recorded(self: SqlObservations, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(it, Metering) for it in (*args, *kwargs.values())):
            crash_point.reached(BEFORE_METER)
        return await record(self, *args, **kwargs)

    def added(*args: Any, **kwargs: Any) -> None:
        # The spans are written, and nothing of what they come to.
        crash_point.reached(MID_METER)
        add_to_days(*args, **kwargs)

    setattr(SqlObservations, "record", recorded)  # noqa: B010  a method cannot be assigned in typed code
    setattr(usage_span_writes, "add_to_days", added)  # noqa: B010


def wrap_migration(crash_point: CrashPoint) -> None:
    """Watch each statement that changes the schema."""
    migrate_with = Database.migrate_with

    def watched(self: Database, upgrade: Callable[[sa.Connection], None]) -> None:
        def note(_: Any, __: Any, statement: str, *___: Any) -> None:
            if statement.lstrip().upper().startswith(DDL):
                crash_point.reached(MID_MIGRATION)

        sa.event.listen(self._write_engine, "after_cursor_execute", note)
        migrate_with(self, upgrade)
        sa.event.remove(self._write_engine, "after_cursor_execute", note)

    setattr(Database, "migrate_with", watched)  # noqa: B010  a method cannot be assigned in typed code


def shorten_repeat_intervals() -> None:
    """Ask the cloud again after seconds, not after a minute, when a stop or a delete had no effect."""
    next_step.REPEAT_REQUEST_AFTER = next_step.REPEAT_DELETE_AFTER = REPEAT


def main() -> None:
    shorten_repeat_intervals()
    crash_point = CrashPoint(os.environ.get(CRASH_AT_VARIABLE, ""))
    wrap_calls(crash_point)
    wrap_commits(crash_point)
    wrap_meter(crash_point)
    wrap_migration(crash_point)
    gpuherd.main()


if __name__ == "__main__":
    main()
