"""Watch the use of those instances that may end by idleness.

Looks are made apart from reconciling: however long the metrics or an application take to answer, a stop finds
a free lease. What a look finds is written down; whether anything ends is decided there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.codec.values import iso
from gpuherd.domain.endings.idleness import UseWatch, held
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance import events
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.instances import Instances
from gpuherd.ports.jobs import Jobs
from gpuherd.usecases.cloud.account import AccountGuard
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.idleness.brake import IdleBrake, Looks
from gpuherd.usecases.idleness.look import LookAtUse
from gpuherd.usecases.jobs.kinds import JobFactory

log = structlog.get_logger()

LOOKS_AT_ONCE = 50


@dataclass(frozen=True, kw_only=True)
class WatchUse:
    """Runs every few seconds, at the leader."""

    instances: Instances
    jobs: Jobs
    look: LookAtUse
    brake: IdleBrake
    account: AccountGuard
    event_recorder: EventRecorder
    job_factory: JobFactory
    clock: Clock

    async def __call__(self) -> int:
        """Return how many looks were made."""
        # guard: what our clock showed before it was set back counts for the age of metrics
        self.look.note_time()
        due = await self.instances.due_for_use_look(self.clock.now(), LOOKS_AT_ONCE)
        if not due or not await self.account.is_confirmed():
            return 0
        watches = await self._look_at(due)
        looked = [(it, watch) for it, watch in zip(due, watches, strict=True) if watch is not None]
        may_end = await self.brake.may_end(_shown_by(looked))
        for it, watch in looked:
            is_held = watch.is_over and it.id not in may_end
            await self._write(it, held(watch, self.clock.now()) if is_held else watch)
        return len(looked)

    async def _look_at(self, due: Sequence[Instance]) -> list[UseWatch | None]:
        async with asyncio.TaskGroup() as group:
            looks = [group.create_task(self.look(it)) for it in due]
        return [it.result() for it in looks]

    async def _write(self, it: Instance, watch: UseWatch) -> None:
        is_warning = watch.warned and not (it.use_watch is not None and it.use_watch.warned)
        told = [self._warning(it, watch)] if is_warning else []
        known = replace(it, use_watch=watch, settled=it.settled and not watch.is_over)
        try:
            saved = await self.instances.update(self.event_recorder.change(known, *told))
        except StaleWrite:
            # It has changed since it was read, and is looked at again with the next ones.
            return
        if watch.is_over:
            log.info("idleness.over", instance_id=it.id)
            await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(saved)])

    def _warning(self, it: Instance, watch: UseWatch) -> NewEvent:
        assert watch.ends_at is not None and it.terms.idle is not None, (
            "only an end that is near is announced"
        )
        words = f"it is idle, and ends at {iso(watch.ends_at)} unless somebody says that it is in use"
        details = {"endsAt": iso(watch.ends_at), "then": it.terms.idle.then.value}
        return NewEvent(events.IDLE_WARNING, words, details)


def _shown_by(looked: Sequence[tuple[Instance, UseWatch]]) -> Looks:
    running = [(it, watch) for it, watch in looked if not watch.is_over]
    return Looks(
        over=[(it, watch) for it, watch in looked if watch.is_over],
        in_use={it.id: at for it, watch in running if (at := _used_at(it, watch))},
        seen_in_use={it.id: at for it, watch in running if (at := _newly_busy_at(it, watch))},
        looked=[it.id for it, _ in looked],
    )


def _newly_busy_at(it: Instance, watch: UseWatch) -> datetime | None:
    """Return when it was busy by the samples, if no look before has shown that."""
    known = None if it.use_watch is None else it.use_watch.busy_at
    return watch.busy_at if watch.busy_at is not None and (known is None or watch.busy_at > known) else None


def _used_at(it: Instance, watch: UseWatch) -> datetime | None:
    """Return when it was last used, as far as anybody has seen or said."""
    return max(filter(None, (watch.busy_at, it.used_at)), default=None)
