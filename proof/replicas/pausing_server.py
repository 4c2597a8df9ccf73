"""`gpuherd serve`, the real one, that stops itself (SIGSTOP) where GPUHERD_FREEZE_AT=point:n says.

It also tells whom it is: which workers of the queue are its own, and when it last looked at the whole cloud.
Nothing of this is in the service: its parts are wrapped here, before it starts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from procrastinate.manager import JobManager

from gpuherd import __main__ as gpuherd
from gpuherd.adapters.novita.novita_cloud import NovitaCloud
from gpuherd.adapters.stores.leader_fence import FencedDatabase
from proof.chaos.kills.crashing_server import (
    CrashPoint,
    shorten_repeat_intervals,
    wrap_calls,
    wrap_commits,
    wrap_meter,
)

FREEZE_AT = "GPUHERD_FREEZE_AT"
WORKERS = Path("workers")
LISTED = Path("listed")
# As long as there is no such file, nobody stops: all shall be up before it begins.
ARMED = Path("armed")
# With the duty's row locked, which whoever wants to take over needs.
BEFORE_WATCH_COMMIT = "before_watch_commit"


class PausePoint(CrashPoint):
    """Not the end: somebody will wake us, and may take his time."""

    def __init__(self, word: str):
        watching = word.startswith(BEFORE_WATCH_COMMIT)
        super().__init__("" if watching else word)
        if watching:
            self.point = BEFORE_WATCH_COMMIT

    def reached(self, point: str) -> None:
        if point != self.point or not ARMED.exists():
            return
        with self._lock:
            self._left -= 1
            is_now = self._left == 0
        if is_now:
            os.kill(os.getpid(), signal.SIGSTOP)


def wrap_watch(crash_point: CrashPoint) -> None:
    """Watch the transactions that only the holder of the watch may make."""
    write = FencedDatabase.write

    async def watched(self: FencedDatabase, work: Callable[[sa.Connection], Any], **options: Any) -> Any:
        def and_then(connection: sa.Connection) -> Any:
            result = work(connection)
            crash_point.reached(BEFORE_WATCH_COMMIT)
            return result

        return await write(self, and_then, **options)

    setattr(FencedDatabase, "write", watched)  # noqa: B010  a method cannot be assigned in typed code


def record_workers() -> None:
    """Write down each worker, by which the queue knows to whom it delivered a job."""
    register_worker = JobManager.register_worker

    async def told(self: JobManager) -> int:
        worker_id = await register_worker(self)
        with WORKERS.open("a") as file:
            file.write(f"{worker_id}\n")
        return worker_id

    setattr(JobManager, "register_worker", told)  # noqa: B010


def record_list_calls() -> None:
    """Touch a file at each list of the whole cloud, which is the work of whoever holds the watch."""
    list_machines: Callable[..., Any] = NovitaCloud.list_machines

    @wraps(list_machines)
    async def told(*args: Any, **kwargs: Any) -> Any:
        LISTED.touch()
        return await list_machines(*args, **kwargs)

    setattr(NovitaCloud, "list_machines", told)  # noqa: B010


def main() -> None:
    shorten_repeat_intervals()
    crash_point = PausePoint(os.environ.get(FREEZE_AT, ""))
    wrap_calls(crash_point)
    wrap_commits(crash_point)
    wrap_meter(crash_point)
    wrap_watch(crash_point)
    record_workers()
    record_list_calls()
    gpuherd.main()


if __name__ == "__main__":
    main()
