"""Read the use of machines, and decide which ones are idle."""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import (
    asdict,
    dataclass,
    field,
    replace,
)
from datetime import datetime

import structlog

from gpuherd.contract.wire_models import iso
from gpuherd.domain.blast_limit import TOGETHER, IdleSpell, judge_spells
from gpuherd.domain.errors import CloudError, RateLimited, StaleWrite
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.idleness import (
    CLOCK_OFF_MAX,
    LOOK_AGAIN,
    RETRY_AFTER,
    SAMPLES_APART_MAX,
    UNKNOWN_USE,
    AppAnswer,
    CloudTime,
    MachineUse,
    UseWatch,
    after_answer,
    are_late,
    asked_span,
    first_end,
    held,
    judge,
    latest_cloud_time,
    must_read_samples,
    sample_interval,
    use_of,
)
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import usable_since
from gpuherd.domain.instance.lease import ActivityCheck, Idleness
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.egress_port import ActivityProbe, UseMetrics
from gpuherd.ports.instance_port import Instances
from gpuherd.ports.job_port import Jobs
from gpuherd.ports.observation_port import Observations
from gpuherd.ports.replica_port import Flags
from gpuherd.usecases.cloud.guard_creates import AccountGuard
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.service.make_jobs import JobFactory

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
        return NewEvent(instance_event.IDLE_WARNING, words, details)


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


@dataclass(kw_only=True)
class LookAtUse:
    """Asks, and writes nothing down."""

    metrics: UseMetrics
    activity: ActivityProbe
    clock: Clock
    # Since when anybody could have told us that an instance is in use.
    up_since: datetime
    # By what our own clock and the metrics of all machines have shown.
    _cloud_time: CloudTime | None = field(default=None, init=False)

    def note_time(self, reached: datetime | None = None) -> None:
        """Note what the clock shows, or what the metrics have reached: it may be set back any time."""
        now, uptime_s = self.clock.now(), self.clock.boottime()
        self._cloud_time = latest_cloud_time(self._cloud_time, reached or now, uptime_s)

    async def __call__(self, it: Instance) -> UseWatch | None:
        """Return what is known now; None: the budget of calls is used up, and the look is still due."""
        rule = it.terms.idle
        usable_from = usable_since(it)
        assert rule is not None and usable_from is not None, "only what can be idle is looked at"
        watch = it.use_watch
        if rule.activity is not None:
            answer = await self._ask(it, rule.activity)
            watch = after_answer(rule, watch, answer, self.clock.now())
        if watch is not None and not must_read_samples(rule, watch, self.clock.now()):
            return watch
        try:
            use = await self._read(it, rule)
        except RateLimited:
            # Whom the application was asked about is not asked again at once.
            return (
                None
                if rule.activity is None or watch is None
                else replace(watch, look_at=self.clock.now() + LOOK_AGAIN)
            )
        return judge(rule, watch, use, self._not_before(it, rule, usable_from), self.clock.now())

    async def _ask(self, it: Instance, check: ActivityCheck) -> AppAnswer:
        port = next((port for port in it.ports if port.port == check.port), None)
        return AppAnswer() if port is None else await self.activity.ask(port, check.path)

    async def _read(self, it: Instance, rule: Idleness) -> MachineUse | None:
        known_until = None if it.use_watch is None else it.use_watch.known_until
        # Where none is known, all of the machine, whatever our clock showed when it was rented.
        known_until = known_until or it.created_at - CLOCK_OFF_MAX
        begin, end = asked_span(rule, self.clock.now(), known_until)
        try:
            samples = await self.metrics.samples(it.cloud_id or "", begin, end, sample_interval(rule))
        except RateLimited:
            raise
        except CloudError:
            # guard: metrics that are away are use
            return None
        # What comes from after the time that was asked for is nonsense.
        if newest := max((it.at for it in samples if it.at <= end), default=None):
            self.note_time(newest)
        if are_late(samples, self._cloud_time, self.clock.boottime()):
            return UNKNOWN_USE
        return use_of(samples, rule, it.wish.gpu_num, self.clock.now())

    def _not_before(self, it: Instance, rule: Idleness, usable_since: datetime) -> datetime:
        earliest = first_end(rule, usable_since, it.used_at)
        # Whoever sends heartbeats may have sent one that we were not there to hear.
        # guard: a heartbeat that nobody was there to hear counts
        return earliest if it.used_at is None else max(earliest, self.up_since + rule.window)


# Why nothing ends by idleness.
AUTO_STOP_BRAKED = "auto_stop_braked"


# What the brake must remember. In the store: the next leader may be another replica.
IDLE_FOUND = "idle_found"


# Those that are held are looked at again after a while, and must count until then.
HELD_COUNTS = 2 * RETRY_AFTER


@dataclass(frozen=True)
class Looks:
    """What a round of looks has shown."""

    over: Sequence[tuple[Instance, UseWatch]] = ()
    # Which were not idle, and when they were last used, as far as anybody has seen or said.
    in_use: Mapping[str, datetime] = field(default_factory=dict)
    # Which of them the metrics have shown in use, and when.
    seen_in_use: Mapping[str, datetime] = field(default_factory=dict)
    # All that were looked at: where a look tells nothing, one that is held goes on counting.
    looked: Sequence[str] = ()


@dataclass(frozen=True)
class _Memory:
    spells: Mapping[str, IdleSpell]
    # When the metrics have shown others in use, while anything waits for its end.
    used_s: Mapping[str, float]


@dataclass(frozen=True)
class IdleBrake:
    """Judges all that would end together; the flag is for people, the next look decides anew."""

    flags: Flags
    observations: Observations
    clock: Clock

    async def may_end(self, looks: Looks) -> frozenset[str]:
        """Return which of those whose time is over may end."""
        now_s, was_held = self.clock.now().timestamp(), await self.held() is not None
        before = await self._recall()
        spells = _still_counting(before.spells, looks, now_s, is_braked=was_held)
        if not spells and not looks.over and not was_held:
            return frozenset()
        for it, watch in looks.over:
            spells[it.id] = _spell(it, watch, spells.get(it.id), now_s)
        bound = await self.observations.bound_to([])
        used_s = {**before.used_s, **{key: at.timestamp() for key, at in looks.seen_in_use.items()}}
        verdict = judge_spells([it.id for it, _ in looks.over], spells, used_s, bound.instances, now_s)
        for key in verdict.may_end:
            spells[key] = replace(spells[key], has_ended=True)
        waits = any(not it.has_ended for it in spells.values())
        await self._remember(before, _Memory(spells, _newest(used_s, len(spells)) if waits else {}))
        await self._tell(verdict.reason)
        return verdict.may_end

    async def held(self) -> str | None:
        """Say why some do not end by idleness, None if all may."""
        return await self.flags.get(AUTO_STOP_BRAKED)

    async def _recall(self) -> _Memory:
        kept = json.loads(await self.flags.get(IDLE_FOUND) or "{}")
        spells = {key: IdleSpell.from_doc(doc) for key, doc in kept.get("spells", {}).items()}
        return _Memory(spells, kept.get("used", {}))

    async def _remember(self, before: _Memory, memory: _Memory) -> None:
        if memory == before:
            return
        doc = {"spells": {key: asdict(it) for key, it in memory.spells.items()}, "used": memory.used_s}
        await self.flags.put(IDLE_FOUND, json.dumps(doc) if memory.spells else None)

    async def _tell(self, reason: str | None) -> None:
        said = await self.held()
        if (reason is None) == (said is None):
            return
        if reason is not None:
            log.error("idleness.braked", reason=reason)
        else:
            log.info("idleness.released")
        await self.flags.put(AUTO_STOP_BRAKED, reason)


def _still_counting(
    spells: Mapping[str, IdleSpell], looks: Looks, now_s: float, *, is_braked: bool
) -> dict[str, IdleSpell]:
    looked = set(looks.looked)
    # guard: metrics that are away release no brake
    return {
        key: replace(it, looked_s=now_s) if key in looked and not it.has_ended else it
        for key, it in spells.items()
        if it.counts(now_s, is_braked=is_braked) and not _is_used_since(looks.in_use.get(key), it)
    }


def _is_used_since(used_at: datetime | None, spell: IdleSpell) -> bool:
    """Return True if an instance that was found idle is in use again. What is not known is no use here."""
    # The samples that it was found by are that much older at most.
    return used_at is not None and used_at.timestamp() > spell.looked_s - SAMPLES_APART_MAX.total_seconds()


def _spell(it: Instance, watch: UseWatch, before: IdleSpell | None, now_s: float) -> IdleSpell:
    rule = it.terms.idle
    assert rule is not None, "only what may end by idleness is looked at"
    began = watch.quiet_from or watch.looked_at - rule.window
    # Of a very long time the samples are further apart than beginnings that are told apart.
    is_beginning_seen = watch.is_beginning_seen and sample_interval(rule) <= TOGETHER
    # One that was ended and started again is found anew.
    found_s = now_s if before is None or before.has_ended else before.found_s
    counts_for_s = max(HELD_COUNTS.total_seconds(), rule.window_s)
    return IdleSpell(
        began_s=began.timestamp(),
        is_beginning_seen=is_beginning_seen,
        found_s=found_s,
        looked_s=now_s,
        counts_for_s=counts_for_s,
        not_before_s=(watch.busy_at or it.created_at - CLOCK_OFF_MAX).timestamp(),
    )


def _newest(used_s: Mapping[str, float], count: int) -> dict[str, float]:
    """Return no more than can matter: as many as are idle."""
    return dict(heapq.nlargest(count, used_s.items(), key=lambda it: it[1]))
