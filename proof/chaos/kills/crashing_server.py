"""`gpuherd serve`, the real one, that kills itself where GPUHERD_CRASH_AT=point:n says.

Nothing of this is in the service: its parts are wrapped here, before it starts.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import Any

import sqlalchemy as sa

from gpuherd import __main__ as gpuherd
from gpuherd.adapters.novita.cloud import NovitaCloud
from gpuherd.adapters.sql import changes, instances, together
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.transactions import FileTransactions, ServerTransactions
from gpuherd.adapters.webhooks.sender import HttpWebhookSender
from gpuherd.domain import lifecycle
from gpuherd.domain.attempt import Attempt, AttemptState
from tests.chaos.kills.points import MID_BATCH, MID_MIGRATION, POINTS, VARIABLE

ATTEMPTS = {AttemptState.SENT: "intent", AttemptState.BOUND: "bind"}
REPEAT = timedelta(seconds=3)
DDL = ("CREATE", "ALTER", "DROP")


class Fate:
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


def wrap_calls(fate: Fate) -> None:
    """Watch the calls to the outside."""
    for owner, method, name in (
        (NovitaCloud, "create_machine", "post"),
        (NovitaCloud, "delete_machine", "delete"),
        (NovitaCloud, "stop_machine", "stop"),
        (NovitaCloud, "start_machine", "start"),
        (HttpWebhookSender, "send", "webhook"),
    ):
        setattr(owner, method, _around(getattr(owner, method), name, fate))


def _around(call: Callable[..., Any], name: str, fate: Fate) -> Callable[..., Any]:
    @wraps(call)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        fate.reached(f"before_{name}")
        answer = await call(*args, **kwargs)
        fate.reached(f"after_{name}")
        return answer

    return wrapped


def wrap_commits(fate: Fate) -> None:
    """Watch what the writer's transactions hold, and their ends."""
    marks: list[str] = []
    add_instance, update_instance = instances.add_instance, instances.update_instance
    write_attempt, run = changes._write_attempt, together._run

    def watched(begun: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def transaction(self: Any, *, sure: bool = True) -> Iterator[sa.Connection]:
            marks.clear()
            with begun(self, sure=sure) as connection:
                yield connection
                for mark in marks:
                    fate.reached(f"before_{mark}_commit")
            for mark in marks:
                fate.reached(f"after_{mark}_commit")

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

    def run_one(connection: sa.Connection, work: together.Work) -> Any:
        result = run(connection, work)
        marks.append("work")
        if marks.count("work") == 2:
            # Two are written, none is committed, and both callers wait.
            fate.reached(MID_BATCH)
        return result

    # The update that comes from here, and not from a turn, is what somebody asked for.
    for owner, name, wrapped in (
        (FileTransactions, "open", watched(FileTransactions.open)),
        (ServerTransactions, "open", watched(ServerTransactions.open)),
        (instances, "add_instance", add),
        (instances, "update_instance", update),
        (changes, "_write_attempt", attempt),
        (together, "_run", run_one),
    ):
        setattr(owner, name, wrapped)


def wrap_migration(fate: Fate) -> None:
    """Watch each statement that changes the schema."""
    migrate_with = Database.migrate_with

    def watched(self: Database, upgrade: Callable[[sa.Connection], None]) -> None:
        def note(_: Any, __: Any, statement: str, *___: Any) -> None:
            if statement.lstrip().upper().startswith(DDL):
                fate.reached(MID_MIGRATION)

        sa.event.listen(self._write_engine, "after_cursor_execute", note)
        migrate_with(self, upgrade)
        sa.event.remove(self._write_engine, "after_cursor_execute", note)

    setattr(Database, "migrate_with", watched)  # noqa: B010  a method cannot be assigned in typed code


def hurry() -> None:
    """Ask the cloud again after seconds, not after a minute, when a stop or a delete had no effect."""
    lifecycle.REPEAT_ASK = lifecycle.REPEAT_DELETE = REPEAT


def main() -> None:
    hurry()
    fate = Fate(os.environ.get(VARIABLE, ""))
    wrap_calls(fate)
    wrap_commits(fate)
    wrap_migration(fate)
    gpuherd.main()


if __name__ == "__main__":
    main()
