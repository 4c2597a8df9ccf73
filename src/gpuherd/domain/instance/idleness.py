"""Idleness: whether a machine did nothing for so long that it may end.

It takes evidence for the whole time. Whatever is not known counts as use: a sample that is missing, metrics
that are late, an application that does not answer, a clock that cannot be right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from gpuherd.domain.instance.lease import Idleness

# What boots, downloads and compiles may look idle at first.
READY_GRACE = timedelta(minutes=15)


# The newest sample must not be older, nor newer, than this: else the metrics or our clock are wrong.
SAMPLES_APART_MAX = timedelta(minutes=5)


# When an instance was made is told by our clock, which may have been so far ahead of the samples then.
CLOCK_OFF_MAX = timedelta(hours=1)


# So long it is remembered what the cloud's clock had reached.
CLOUD_TIME_KEPT_S = 3600.0


SAMPLE_EVERY_S = 60


# So many are asked for at once; of a longer time there is one in several minutes.
SAMPLES_MAX = 1440


# So far ahead the end is announced, and at most half the time of idleness.
IDLE_WARNING = timedelta(minutes=5)


# A verdict is acted upon within this, or made anew.
VERDICT_FRESH = timedelta(minutes=1)


# When to look again where nothing could be learned, or an end is held back.
RETRY_AFTER = timedelta(minutes=5)


LOOK_AGAIN = timedelta(seconds=30)


# So often it is looked for the sample that ends it, in the minute in which it must come.
LAST_SAMPLE_RECHECK = timedelta(seconds=20)


# How often an application is asked that does not say since when it is idle.
ASK_EVERY_MIN, ASK_EVERY_MAX = timedelta(minutes=1), timedelta(minutes=5)


_MOMENTS = (
    *("look_at", "looked_at", "busy_at", "ends_at", "samples_at", "app_idle_since", "app_asked_at"),
    *("quiet_from", "quiet_until"),
)


@dataclass(frozen=True)
class Utilization:
    """How busy a machine was at a moment, in percent."""

    at: datetime
    # Of each GPU.
    gpus: tuple[float, ...]
    cpu: float


@dataclass(frozen=True)
class MachineUse:
    """What the samples of a machine show."""

    # So long it surely did nothing, without a gap, up to the newest sample.
    quiet_for: timedelta = timedelta(0)
    # When it last did something, as far as the samples go back.
    busy_at: datetime | None = None
    # The first and the last sample that show it idle, without a gap; and whether the one before shows use.
    quiet_from: datetime | None = None
    quiet_until: datetime | None = None
    is_beginning_seen: bool = False


UNKNOWN_USE = MachineUse()


@dataclass(frozen=True)
class AppAnswer:
    """What an application says about its use; nothing of both: it is in use, or did not say."""

    idle_since: datetime | None = None
    # It is idle now; since when, it did not say.
    is_idle: bool = False


@dataclass(frozen=True)
class UseWatch:
    """What is known about the use of an instance that may end by idleness."""

    # When to look next, and when it was looked last.
    look_at: datetime
    looked_at: datetime
    # When it was last seen in use.
    busy_at: datetime | None = None
    # When it ends if it stays as it is; None while it is in use, or may be.
    ends_at: datetime | None = None
    warned: bool = False
    # The last look has shown that its time is over.
    is_over: bool = False
    # Before that the metrics tell nothing new, and are not asked for.
    samples_at: datetime | None = None
    # Since when the application says that it is idle, and when it last said so.
    app_idle_since: datetime | None = None
    app_asked_at: datetime | None = None
    # The first and the last sample that have shown it idle, over all looks, without a gap; and whether the
    # first one came after use.
    quiet_from: datetime | None = None
    quiet_until: datetime | None = None
    is_beginning_seen: bool = False

    def as_doc(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for storage."""
        values = vars(self)
        return {
            **values,
            **{name: None if values[name] is None else values[name].isoformat() for name in _MOMENTS},
        }

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> UseWatch:
        """Return what `as_doc` wrote down."""
        moments = {name: datetime.fromisoformat(doc[name]) for name in _MOMENTS if doc.get(name) is not None}
        return cls(**{**doc, **moments})

    @property
    def known_until(self) -> datetime | None:
        """Return the newest sample that is known."""
        return max(filter(None, (self.busy_at, self.quiet_until)), default=None)

    def is_verdict_fresh(self, now: datetime) -> bool:
        """Return True if the last look is so young that it still tells how things are."""
        # Both ways: after a wall clock that stepped back, it seems to lie in the future.
        return abs(now - self.looked_at) <= VERDICT_FRESH


def sample_interval(rule: Idleness) -> timedelta:
    """Return how far the samples are apart that are asked for."""
    return timedelta(seconds=SAMPLE_EVERY_S * max(1, math.ceil(rule.window_s / SAMPLE_EVERY_S / SAMPLES_MAX)))


def asked_span(
    rule: Idleness, now: datetime, known_until: datetime | None = None
) -> tuple[datetime, datetime]:
    """Return from when to when to ask for samples.

    From the last one that is known, if that is longer ago: after an outage, or while our clock did not fit
    them, the idleness may have begun where nobody could look, and the brake must know when.

    Beyond now, too: where our clock is behind, the newest ones would else be left out, and nobody would see
    that the machine is in use.
    """
    interval = sample_interval(rule)
    begin = now - rule.window - SAMPLES_APART_MAX - 2 * interval
    if known_until is not None:
        begin = min(begin, max(known_until - 2 * interval, now - SAMPLES_MAX * interval))
    # guard: samples are asked for beyond now
    return begin, now + 2 * SAMPLES_APART_MAX


@dataclass(frozen=True)
class CloudTime:
    """A time that the cloud's clock may have reached when the host had been up for so long.

    So the newest sample of any machine says, or our own clock before it was set back. By a clock that is
    behind, samples that are late look as if they were fresh; by this they do not.
    """

    reached: datetime
    uptime_s: float

    def at(self, uptime_s: float) -> datetime:
        """Return what it has reached since then."""
        return self.reached + timedelta(seconds=uptime_s - self.uptime_s)


def latest_cloud_time(known: CloudTime | None, reached: datetime, uptime_s: float) -> CloudTime:
    """Return the latest of what is known and a time that it has reached now.

    What nothing has confirmed for an hour is forgotten: a clock that was ahead may have been set right.
    """
    is_kept = known is not None and uptime_s - known.uptime_s <= CLOUD_TIME_KEPT_S
    if known is not None and is_kept and known.at(uptime_s) > reached:
        return known
    return CloudTime(reached, uptime_s)


def are_late(samples: Sequence[Utilization], cloud_time: CloudTime | None, uptime_s: float) -> bool:
    """Return True if the newest of these samples is too old by the cloud's own clock."""
    if cloud_time is None or not samples:
        return False
    # guard: metrics that are late by the cloud's own clock tell nothing
    return cloud_time.at(uptime_s) - max(it.at for it in samples) > SAMPLES_APART_MAX


def use_of(samples: Sequence[Utilization], rule: Idleness, gpu_num: int, now: datetime) -> MachineUse:
    """Return what the samples of a machine with so many GPUs show."""
    newest_first = sorted(samples, key=lambda it: it.at, reverse=True)
    # guard: samples must fit our clock
    if not newest_first or abs(now - newest_first[0].at) > SAMPLES_APART_MAX:
        return UNKNOWN_USE
    newest, quiet_from = newest_first[0].at, newest_first[0].at
    gap_max = sample_interval(rule) * 1.5
    is_unbroken, busy_at, is_beginning_seen = True, None, False
    for sample in newest_first:
        if not _is_quiet(sample, rule, gpu_num):
            busy_at = sample.at
            is_beginning_seen = is_unbroken and quiet_from - sample.at <= gap_max
            # guard: one busy sample is use
            break
        # guard: one missing sample is use
        is_unbroken = is_unbroken and quiet_from - sample.at <= gap_max
        if is_unbroken:
            quiet_from = sample.at
    if busy_at == newest:
        return MachineUse(busy_at=busy_at)
    return MachineUse(newest - quiet_from, busy_at, quiet_from, newest, is_beginning_seen)


def _is_quiet(sample: Utilization, rule: Idleness, gpu_num: int) -> bool:
    # guard: a GPU that was not measured is use
    is_whole = len(sample.gpus) == gpu_num
    # guard: one busy GPU of several is use
    return is_whole and sample.cpu < rule.cpu_below and all(it < rule.gpu_below for it in sample.gpus)


def first_end(rule: Idleness, usable_since: datetime, used_at: datetime | None) -> datetime:
    """Return before when it does not end, whatever the looks show."""
    ready = usable_since + max(rule.window, READY_GRACE)
    return ready if used_at is None else max(ready, used_at + rule.window)


def next_look(
    rule: Idleness, watch: UseWatch | None, usable_since: datetime, used_at: datetime | None
) -> datetime:
    """Return when to look next: not before it could be idle for long enough."""
    ahead = rule.window if rule.activity is not None else warning_lead(rule)
    earliest = first_end(rule, usable_since, used_at) - ahead
    return earliest if watch is None else max(earliest, watch.look_at)


def warning_lead(rule: Idleness) -> timedelta:
    """Return how far ahead an end is announced."""
    return min(IDLE_WARNING, rule.window / 2)


def after_answer(rule: Idleness, watch: UseWatch | None, answer: AppAnswer, now: datetime) -> UseWatch:
    """Return what is known once the application has answered, with the next look if that is all for now.

    Whoever says only that it is idle now must say so all the time; one answer that is missing, and it begins
    anew.
    """
    before, interval = watch or UseWatch(now, now), _ask_interval(rule)
    # guard: an application that does not answer is in use
    since = answer.idle_since
    if since is not None and since > now + SAMPLES_APART_MAX:
        since = None
    if since is None and answer.is_idle:
        asked_at = before.app_asked_at
        # guard: an application must say all the time that it is idle
        is_continued = asked_at is not None and timedelta(0) <= now - asked_at <= 2 * interval
        since = (before.app_idle_since if is_continued else None) or now
    if since is None:
        return UseWatch(now + interval, now, busy_at=before.busy_at)
    wait = interval if answer.is_idle else since + rule.window - warning_lead(rule) - now
    announced = before.ends_at if before.warned else None
    return replace(
        before,
        look_at=min(filter(None, (now + max(wait, interval), announced)), default=now + interval),
        looked_at=now,
        is_over=False,
        app_idle_since=since,
        app_asked_at=now,
    )


def must_read_samples(rule: Idleness, watch: UseWatch | None, now: datetime) -> bool:
    """Return True if the metrics matter yet: they cost a call, and the application is asked for nothing."""
    if rule.activity is None:
        return True
    if (
        watch is None
        or watch.app_idle_since is None
        or now - watch.app_idle_since < rule.window - warning_lead(rule)
    ):
        return False
    return watch.samples_at is None or now >= watch.samples_at


def _ask_interval(rule: Idleness) -> timedelta:
    return min(ASK_EVERY_MAX, max(ASK_EVERY_MIN, rule.window / 20))


def judge(
    rule: Idleness, watch: UseWatch | None, use: MachineUse | None, not_before: datetime, now: datetime
) -> UseWatch:
    """Return what is known after a look at the samples; None for `use`: they could not be had.

    `not_before` is before when it does not end, whatever they show.
    """
    found = _judge(rule, watch, use, not_before, now)
    if rule.activity is None:
        return found
    # Meanwhile the application goes on being asked: it must say so all the time.
    return replace(found, samples_at=found.look_at, look_at=min(found.look_at, now + _ask_interval(rule)))


def _judge(
    rule: Idleness, watch: UseWatch | None, use: MachineUse | None, not_before: datetime, now: datetime
) -> UseWatch:
    before = watch or UseWatch(now, now)
    known = replace(
        before, looked_at=now, is_over=False, look_at=now + RETRY_AFTER, ends_at=None, warned=False
    )
    if use is None or use == UNKNOWN_USE:
        return known
    known = replace(
        known,
        busy_at=max(filter(None, (before.busy_at, use.busy_at)), default=None),
        **_quiet_spell(before, use),
    )
    lead, left = warning_lead(rule), rule.window - use.quiet_for
    if before.app_idle_since is not None:
        left = max(left, rule.window - (now - before.app_idle_since))
    surely_over_at = max(now + max(left, timedelta(0)), not_before)
    # The next sample may be here any moment, and the one that shows it all as soon after its own time.
    ends_at = max(now + max(left - _sooner(rule, use, now), timedelta(0)), not_before)
    if not use.quiet_for:
        return replace(known, look_at=ends_at - lead)
    if ends_at - now > lead:
        return replace(known, look_at=ends_at - lead, ends_at=ends_at)
    # guard: an end by idleness is announced first
    if not before.warned or before.ends_at is None:
        ends_at = max(ends_at, now + lead)
        return replace(known, look_at=ends_at, ends_at=ends_at, warned=True)
    ends_at = max(ends_at, before.ends_at)
    # guard: nothing is idle before the sample that shows the whole time
    if now < max(surely_over_at, ends_at):
        return replace(known, look_at=max(ends_at, now + LAST_SAMPLE_RECHECK), ends_at=ends_at, warned=True)
    return replace(known, look_at=now + VERDICT_FRESH, ends_at=ends_at, warned=True, is_over=True)


def _sooner(rule: Idleness, use: MachineUse, now: datetime) -> timedelta:
    """Return by how much samples may be younger than the newest one is now, once they can be had."""
    if use.quiet_until is None:
        return timedelta(0)
    return min(max(now - use.quiet_until, timedelta(0)), sample_interval(rule))


def _quiet_spell(before: UseWatch, use: MachineUse) -> dict[str, Any]:
    """Return since when it is idle, by this look and those before that it goes on from."""
    quiet_from, is_beginning_seen = use.quiet_from, use.is_beginning_seen
    goes_on = (
        before.quiet_from is not None
        and before.quiet_until is not None
        and quiet_from is not None
        and quiet_from <= before.quiet_until
        and (use.busy_at is None or use.busy_at < before.quiet_from)
    )
    if goes_on and not is_beginning_seen:
        assert before.quiet_from is not None and quiet_from is not None, "it goes on from a look before"
        quiet_from, is_beginning_seen = min(before.quiet_from, quiet_from), before.is_beginning_seen
    return {
        "quiet_from": quiet_from,
        "quiet_until": use.quiet_until,
        "is_beginning_seen": is_beginning_seen,
    }


def held(watch: UseWatch, now: datetime) -> UseWatch:
    """Return the watch of one whose time is over, and that is not ended: too many would end at once."""
    return replace(watch, is_over=False, look_at=now + RETRY_AFTER)
