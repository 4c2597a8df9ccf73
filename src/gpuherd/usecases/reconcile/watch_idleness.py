"""Read the use of machines, and decide which instances are idle."""

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
    Utilization,
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
from gpuherd.ports.replica_port import Flags
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.services import Services

log = structlog.get_logger()
LOOKS_AT_ONCE = 50


async def watch_idleness(services: Services) -> int:
    """Look at the use of the instances that may end by idleness; return how many. The leader calls this."""
    # guard: what our clock showed before it was set back counts for the age of metrics
    services.use_clock.note_time()
    due = await services.stores.instances.due_for_use_look(services.clock.now(), LOOKS_AT_ONCE)
    if not due or not await services.account.is_confirmed():
        return 0
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(look_at_use(services, instance)) for instance in due]
    watches = [task.result() for task in tasks]
    looked = [(instance, watch) for instance, watch in zip(due, watches, strict=True) if watch is not None]
    may_end = await _may_end(services, _shown_by(looked))
    for instance, watch in looked:
        is_held = watch.is_over and instance.id not in may_end
        await _write(services, instance, held(watch, services.clock.now()) if is_held else watch)
    return len(looked)


async def _write(services: Services, instance: Instance, watch: UseWatch) -> None:
    is_warning = watch.warned and not (instance.use_watch is not None and instance.use_watch.warned)
    new_events = [_warning(instance, watch)] if is_warning else []
    known = replace(instance, use_watch=watch, settled=instance.settled and not watch.is_over)
    try:
        saved = await services.stores.instances.update(services.event_recorder.change(known, *new_events))
    except StaleWrite:
        # The instance has changed since it was read. The next round looks at it again.
        return
    if watch.is_over:
        log.info("idleness.over", instance_id=instance.id)
        await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(saved)])


def _warning(instance: Instance, watch: UseWatch) -> NewEvent:
    rule = instance.terms.idle
    assert watch.ends_at is not None and rule is not None, "only an end that is near is announced"
    reason = f"it is idle, and ends at {iso(watch.ends_at)} unless somebody says that it is in use"
    details = {"endsAt": iso(watch.ends_at), "then": rule.then.value}
    return NewEvent(instance_event.IDLE_WARNING, reason, details)


def _shown_by(looked: Sequence[tuple[Instance, UseWatch]]) -> Looks:
    running = [(it, watch) for it, watch in looked if not watch.is_over]
    return Looks(
        over=[(it, watch) for it, watch in looked if watch.is_over],
        in_use={it.id: at for it, watch in running if (at := _used_at(it, watch))},
        seen_in_use={it.id: at for it, watch in running if (at := _newly_busy_at(it, watch))},
        looked=[it.id for it, _ in looked],
    )


def _newly_busy_at(it: Instance, watch: UseWatch) -> datetime | None:
    """Return when it was busy by the samples, if no earlier look has shown that."""
    known = None if it.use_watch is None else it.use_watch.busy_at
    return watch.busy_at if watch.busy_at is not None and (known is None or watch.busy_at > known) else None


def _used_at(it: Instance, watch: UseWatch) -> datetime | None:
    """Return when it was last used, as far as the metrics or the user have told."""
    return max(filter(None, (watch.busy_at, it.used_at)), default=None)


@dataclass
class UseClock:
    """Knows how far the cloud's clock has come, by our own clock and by the metrics of all machines."""

    clock: Clock
    # Since then this process has received heartbeats.
    up_since: datetime
    _cloud_time: CloudTime | None = field(default=None, init=False)

    def note_time(self, reached: datetime | None = None) -> None:
        """Note what our clock shows, or what the metrics have reached: our clock may be set back."""
        now, uptime_s = self.clock.now(), self.clock.boottime()
        self._cloud_time = latest_cloud_time(self._cloud_time, reached or now, uptime_s)

    def are_late(self, samples: Sequence[Utilization]) -> bool:
        """Return True if the newest of these samples is too old by the cloud's own clock."""
        return are_late(samples, self._cloud_time, self.clock.boottime())


async def look_at_use(services: Services, instance: Instance) -> UseWatch | None:
    """Return what is known now. None: the budget of calls is used up, and the look is still due."""
    rule, watch, usable_from = instance.terms.idle, instance.use_watch, usable_since(instance)
    assert rule is not None and usable_from is not None, "only what can be idle is looked at"
    if rule.activity is not None:
        answer = await _ask_application(services, instance, rule.activity)
        watch = after_answer(rule, watch, answer, services.clock.now())
    if watch is not None and not must_read_samples(rule, watch, services.clock.now()):
        return watch
    try:
        use = await _read_metrics(services, instance, rule)
    except RateLimited:
        if rule.activity is None or watch is None:
            return None
        # The application has just answered: it is not asked again at once.
        return replace(watch, look_at=services.clock.now() + LOOK_AGAIN)
    earliest = _earliest_end(services.use_clock, instance, rule, usable_from)
    return judge(rule, watch, use, earliest, services.clock.now())


async def _ask_application(services: Services, instance: Instance, check: ActivityCheck) -> AppAnswer:
    port = next((port for port in instance.ports if port.port == check.port), None)
    return AppAnswer() if port is None else await services.activity_probe.ask(port, check.path)


async def _read_metrics(services: Services, instance: Instance, rule: Idleness) -> MachineUse | None:
    known_until = None if instance.use_watch is None else instance.use_watch.known_until
    # Where none is known, all of the machine, whatever our clock showed when it was rented.
    known_until = known_until or instance.created_at - CLOCK_OFF_MAX
    begin, end = asked_span(rule, services.clock.now(), known_until)
    cloud_id, interval = instance.cloud_id or "", sample_interval(rule)
    try:
        samples = await services.use_metrics.samples(cloud_id, begin, end, interval)
    except RateLimited:
        raise
    except CloudError:
        # guard: metrics that are away are use
        return None
    # Samples from after the requested time are wrong.
    if newest := max((sample.at for sample in samples if sample.at <= end), default=None):
        services.use_clock.note_time(newest)
    if services.use_clock.are_late(samples):
        return UNKNOWN_USE
    return use_of(samples, rule, instance.wish.gpu_num, services.clock.now())


def _earliest_end(use_clock: UseClock, instance: Instance, rule: Idleness, usable_from: datetime) -> datetime:
    earliest = first_end(rule, usable_from, instance.used_at)
    # A user who sends heartbeats may have sent one while this process was not there to receive it.
    # guard: a heartbeat that nobody was there to hear counts
    return earliest if instance.used_at is None else max(earliest, use_clock.up_since + rule.window)


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
    # Which were not idle, and when they were last used, as far as the metrics or the user have told.
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


async def _may_end(services: Services, looks: Looks) -> frozenset[str]:
    """Judge all instances that would end together; return those that may end.

    The flag is for people. The next round decides anew.
    """
    now_s = services.clock.now().timestamp()
    was_held = await services.stores.flags.get(AUTO_STOP_BRAKED) is not None
    before = await _recall(services.stores.flags)
    spells = _still_counting(before.spells, looks, now_s, is_braked=was_held)
    if not spells and not looks.over and not was_held:
        return frozenset()
    for instance, watch in looks.over:
        spells[instance.id] = _spell(instance, watch, spells.get(instance.id), now_s)
    bound = await services.stores.observations.bound_to([])
    used_s = {**before.used_s, **{key: at.timestamp() for key, at in looks.seen_in_use.items()}}
    over = [instance.id for instance, _ in looks.over]
    verdict = judge_spells(over, spells, used_s, bound.instances, now_s)
    for key in verdict.may_end:
        spells[key] = replace(spells[key], has_ended=True)
    waits = any(not spell.has_ended for spell in spells.values())
    memory = _Memory(spells, _newest(used_s, len(spells)) if waits else {})
    if memory != before:
        await _remember(services.stores.flags, memory)
    await _report_brake(services.stores.flags, verdict.reason)
    return verdict.may_end


async def _recall(flags: Flags) -> _Memory:
    kept = json.loads(await flags.get(IDLE_FOUND) or "{}")
    spells = {key: IdleSpell.from_doc(doc) for key, doc in kept.get("spells", {}).items()}
    return _Memory(spells, kept.get("used", {}))


async def _remember(flags: Flags, memory: _Memory) -> None:
    doc = {"spells": {key: asdict(spell) for key, spell in memory.spells.items()}, "used": memory.used_s}
    await flags.put(IDLE_FOUND, json.dumps(doc) if memory.spells else None)


async def _report_brake(flags: Flags, reason: str | None) -> None:
    is_braked = await flags.get(AUTO_STOP_BRAKED) is not None
    if is_braked == (reason is not None):
        return
    if reason is not None:
        log.error("idleness.braked", reason=reason)
    else:
        log.info("idleness.released")
    await flags.put(AUTO_STOP_BRAKED, reason)


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
    # Over a very long window the samples are too far apart to tell two beginnings from each other.
    is_beginning_seen = watch.is_beginning_seen and sample_interval(rule) <= TOGETHER
    # An instance that was ended and started again is found again.
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
