"""Advance: one turn of the loop. Look, decide, act, remember, until there is nothing to do but wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import structlog

from gpuherd.clock import Clock
from gpuherd.domain import events
from gpuherd.domain.errors import CloudUnavailable, GpuherdError, KeyRefused, MachineGone, OutcomeUnknown
from gpuherd.domain.instance import Failure, Instance, Status
from gpuherd.domain.lifecycle import (
    Become,
    Delete,
    Fail,
    ReadDetails,
    Released,
    Rent,
    Resolve,
    Rest,
    Sight,
    Step,
    Wait,
    must_release,
    next_step,
)
from gpuherd.domain.machine import Machine, Phase
from gpuherd.domain.sighting import Patience, Sighting, surely_absent
from gpuherd.domain.tag import tag_on
from gpuherd.jobs.job import Job
from gpuherd.jobs.outcome import Done, Outcome, Snooze
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.store import Change, Flags, Turn, Turns
from gpuherd.usecases.activity import Activities, turn_kind
from gpuherd.usecases.chronicle import Chronicle, News
from gpuherd.usecases.rent_machine import CREATES_BLOCKED, Never, NotNow, RentMachine, Tried
from gpuherd.usecases.resolve_attempt import ResolveAttempt

log = structlog.get_logger()

# More steps than any instance needs in a row; a bound, so that a mistake cannot spin.
STEPS_MAX = 50
BUSY = timedelta(seconds=1)
CLOUD_AWAY = timedelta(seconds=5)


@dataclass(frozen=True)
class Pause:
    """Nothing more to do for a while, and why if that is worth telling."""

    delay: timedelta
    reason: str = ""


@dataclass(frozen=True)
class AdvanceInstance:
    """The handler of every job that moves an instance."""

    turns: Turns
    cloud: Cloud
    chronicle: Chronicle
    activities: Activities
    flags: Flags
    rent: RentMachine
    resolve: ResolveAttempt
    clock: Clock
    patience: Patience

    async def __call__(self, job: Job) -> Outcome:
        turn = await self.turns.begin(job.instance_id or "", job.id)
        if turn is None:
            return Snooze(BUSY, "another turn is under way")
        try:
            return await self._advance(turn, job)
        finally:
            await self.turns.end(turn)

    async def _advance(self, turn: Turn, job: Job) -> Outcome:
        turn = await self._verify_tag(turn)
        for _ in range(STEPS_MAX):
            try:
                sight = await self._look(turn)
                step = next_step(turn.instance, turn.open_attempt, sight, self.clock.now())
                if isinstance(step, Wait):
                    return await self._wait(turn, job, Pause(step.delay))
                if isinstance(step, Rest):
                    return await self._rest(turn, job)
                turn, pause = await self._take(step, turn)
            except (CloudUnavailable, KeyRefused) as error:
                pause = Pause(_cloud_away(error), f"waiting for the cloud: {error.message}")
            if pause is not None:
                return await self._wait(turn, job, pause)
        raise GpuherdError(f"instance {turn.instance.id} took {STEPS_MAX} steps and is not done")

    async def _look(self, turn: Turn) -> Sight:
        """Return what the cloud shows of the machine. That it is gone takes two: lists, and a question."""
        it = turn.instance
        listed = _listed(turn)
        if it.cloud_id is None:
            return Sight()
        if not surely_absent(listed, it.delete_asked_at, turn.lists, self.patience):
            return Sight(listed.machine if listed else None)
        try:
            return Sight(await self.cloud.get_machine(it.cloud_id))
        except MachineGone:
            return Sight(listed.machine if listed else None, absent=True)

    async def _take(self, step: Step, turn: Turn) -> tuple[Turn, Pause | None]:
        """Take one step; return the turn after it, and a pause if the next look must wait."""
        match step:
            case Resolve():
                return await self._resolve(turn)
            case Rent():
                return await self._rent(turn)
            case ReadDetails():
                return await self._read_details(turn)
            case Become(status):
                return await self._become(turn, status), None
            case Fail(code, reason):
                return await self._fail(turn, code, reason), None
            case Delete():
                return await self._delete(turn)
            case Released():
                released = replace(turn.instance, releasing=False)
                return await self._save(turn, released, News(events.RELEASED, "the machine is gone")), None
            case _:
                return turn, None

    async def _resolve(self, turn: Turn) -> tuple[Turn, Pause | None]:
        attempt = turn.open_attempt
        assert attempt is not None, "only an open attempt is resolved"
        turn, delay = await self.resolve(turn, attempt)
        return turn, None if delay is None else Pause(delay)

    async def _rent(self, turn: Turn) -> tuple[Turn, Pause | None]:
        match await self.rent(turn):
            case Tried(turn):
                return turn, None
            case NotNow(turn, delay, reason):
                return turn, Pause(delay, reason)
            case Never(turn, code, reason, details):
                return await self._fail(turn, code, reason, details), None

    async def _read_details(self, turn: Turn) -> tuple[Turn, Pause | None]:
        it = turn.instance
        try:
            machine = await self.cloud.get_machine(it.cloud_id or "")
        except MachineGone:
            # One "not found" proves nothing; the lists decide whether it vanished.
            return turn, Pause(BUSY)
        if machine.phase is not Phase.RUNNING:
            return turn, Pause(BUSY)
        turn = await self._note_tag(turn, machine)
        now = self.clock.now()
        usable = replace(
            turn.instance,
            status=Status.RUNNING,
            reason="running",
            ports=machine.ports,
            connection=machine.connection,
            started_at=now,
            ready_at=turn.instance.ready_at or now,
        )
        before = turn.instance.status.value
        running = News(events.STATUS_EVENTS[Status.RUNNING], before=before, after=Status.RUNNING.value)
        return await self._save(turn, usable, running, News(events.READY, "usable")), None

    async def _become(self, turn: Turn, status: Status) -> Turn:
        it = turn.instance
        stopped_at = self.clock.now() if status is Status.EXITED else it.stopped_at
        changed = replace(it, status=status, reason=_REASONS.get(status, ""), stopped_at=stopped_at)
        news = News(events.STATUS_EVENTS[status], changed.reason, before=it.status.value, after=status.value)
        return await self._save(turn, changed, news)

    async def _fail(
        self, turn: Turn, code: str, reason: str, details: Mapping[str, Any] | None = None
    ) -> Turn:
        it = turn.instance
        has_machine = it.cloud_id is not None or turn.open_attempt is not None
        failed = replace(
            it,
            status=Status.FAILED,
            reason=reason,
            last_error=Failure(code, reason, self.clock.now(), dict(details or {})),
            releasing=must_release(it) and has_machine,
        )
        story = {"code": code, **(details or {})}
        news = [News(events.FAILED, reason, story, it.status.value, Status.FAILED.value)]
        if code in _TIMEOUTS:
            news.insert(0, News(events.TIMEOUT, reason, story))
        log.warning("instance.failed", instance_id=it.id, code=code, reason=reason)
        return await self._save(turn, failed, *news)

    async def _delete(self, turn: Turn) -> tuple[Turn, Pause | None]:
        it = turn.instance
        turn = await self._save(turn, replace(it, delete_asked_at=self.clock.now()))
        try:
            await self.cloud.delete_machine(it.cloud_id or "")
        except OutcomeUnknown:
            # Either way the lists will tell, and asking twice does no harm.
            log.info("machine.delete_unanswered", instance_id=it.id, cloud_id=it.cloud_id)
        return turn, Pause(BUSY)

    async def _verify_tag(self, turn: Turn) -> Turn:
        listed = _listed(turn)
        if listed is None or turn.instance.tag_verified:
            return turn
        return await self._note_tag(turn, listed.machine)

    async def _note_tag(self, turn: Turn, machine: Machine) -> Turn:
        """Make sure that the cloud kept our tag: without it no crash could be recovered from."""
        it = turn.instance
        bound = next((a for a in turn.attempts if a.cloud_id == it.cloud_id), None)
        if it.tag_verified or bound is None:
            return turn
        if tag_on(machine) == bound.tag:
            # Rides along with the next save: not worth a transaction of its own.
            return replace(turn, instance=replace(it, tag_verified=True))
        reason = f"machine {machine.cloud_id} does not carry the tag {bound.tag} that it was created with"
        await self.flags.put(CREATES_BLOCKED, reason)
        log.error("tag.not_preserved", instance_id=it.id, cloud_id=machine.cloud_id)
        return await self._save(turn, replace(it, tag_verified=True), News(events.TAG_NOT_PRESERVED, reason))

    async def _wait(self, turn: Turn, job: Job, pause: Pause) -> Outcome:
        """Answer that there is nothing to do for a while; under another name if the activity has changed."""
        instance = replace(turn.instance, reason=pause.reason) if pause.reason else turn.instance
        if turn_kind(instance) != job.kind:
            change = Change(instance, finished_job=job.id, jobs=(self.activities.turn(instance),))
            await self.turns.save(turn, change)
            return Done()
        if instance != turn.instance:
            await self.turns.save(turn, Change(instance))
        return Snooze(pause.delay, instance.reason)

    async def _rest(self, turn: Turn, job: Job) -> Outcome:
        await self.turns.save(turn, Change(replace(turn.instance, settled=True), finished_job=job.id))
        return Done()

    async def _save(self, turn: Turn, instance: Instance, *news: News) -> Turn:
        return await self.turns.save(turn, self.chronicle.change(instance, *news))


def _listed(turn: Turn) -> Sighting | None:
    """Return what the lists say of the instance's own machine."""
    return next((it for it in turn.sightings if it.machine.cloud_id == turn.instance.cloud_id), None)


def _cloud_away(error: CloudUnavailable | KeyRefused) -> timedelta:
    asked_s = error.retry_after_s if isinstance(error, CloudUnavailable) else None
    return timedelta(seconds=asked_s) if asked_s else CLOUD_AWAY


_TIMEOUTS = frozenset({"INSTANCE_TIMEOUT", "OUTCOME_UNKNOWN"})
_REASONS = {
    Status.STARTING: "the machine is starting",
    Status.EXITED: "the machine stopped",
}
