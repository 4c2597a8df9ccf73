"""Idleness: whether a machine did nothing for long enough to end.

This takes evidence for the whole time. Anything unknown counts as use: a missing sample, late metrics, an
application that does not answer, a clock that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from gpuherd.domain.instance.lease import Idleness

# Booting, downloading and compiling may look idle at first.
READY_GRACE = timedelta(minutes=15)


# If the newest sample is older or newer than this, the metrics or our clock are wrong.
SAMPLES_APART_MAX = timedelta(minutes=5)


# The creation time comes from our clock, which may have been this far ahead of the samples.
CLOCK_OFF_MAX = timedelta(hours=1)


# How long gpuherd remembers the latest time of the cloud's clock.
CLOUD_TIME_KEPT_S = 3600.0


SAMPLE_EVERY_S = 60


# At most this many samples are read at once. For a longer time, there is one every few minutes.
SAMPLES_MAX = 1440


# How long before the end gpuherd warns; at most half the idle time.
IDLE_WARNING = timedelta(minutes=5)


# A verdict is valid this long; then it is made again.
VERDICT_FRESH = timedelta(minutes=1)


# When to check again if nothing could be learned, or an end is held back.
RETRY_AFTER = timedelta(minutes=5)


LOOK_AGAIN = timedelta(seconds=30)


# How often to ask for the final sample, in the minute in which it is due.
LAST_SAMPLE_RECHECK = timedelta(seconds=20)


# How often to ask an application that does not say since when it is idle.
ASK_EVERY_MIN, ASK_EVERY_MAX = timedelta(minutes=1), timedelta(minutes=5)


_MOMENTS = (
    *("look_at", "looked_at", "busy_at", "ends_at", "samples_at", "app_idle_since", "app_asked_at"),
    *("quiet_from", "quiet_until"),
)


@dataclass(frozen=True)
class Utilization:
    """How busy a machine was at a moment, in percent."""

    at: datetime
    # One value per GPU.
    gpus: tuple[float, ...]
    cpu: float


@dataclass(frozen=True)
class MachineUse:
    """What the samples of a machine show."""

    # How long it certainly did nothing, without a gap, up to the newest sample.
    quiet_for: timedelta = timedelta(0)
    # When it was last busy, as far back as the samples go.
    busy_at: datetime | None = None
    # The first and the last idle sample, without a gap; and whether the sample before shows use.
    quiet_from: datetime | None = None
    quiet_until: datetime | None = None
    is_beginning_seen: bool = False


UNKNOWN_USE = MachineUse()


@dataclass(frozen=True)
class AppAnswer:
    """What an application says about its use. If both fields are empty, it is in use or did not say."""

    idle_since: datetime | None = None
    # Idle now; the application does not say since when.
    is_idle: bool = False


@dataclass(frozen=True)
class UseWatch:
    """What is known about the use of an instance that may end by idleness."""

    # When to check next, and when the last check was.
    look_at: datetime
    looked_at: datetime
    # When it was last seen in use.
    busy_at: datetime | None = None
    # When it ends if nothing changes; None while it is, or may be, in use.
    ends_at: datetime | None = None
    warned: bool = False
    # The last check showed that its idle time is over.
    is_over: bool = False
    # Before this time the metrics bring nothing new and are not read.
    samples_at: datetime | None = None
    # Since when the application says that it is idle, and when it last said so.
    app_idle_since: datetime | None = None
    app_asked_at: datetime | None = None
    # The first and the last idle sample over all checks, without a gap; and whether use came before the
    # first.
    quiet_from: datetime | None = None
    quiet_until: datetime | None = None
    is_beginning_seen: bool = False

    def as_doc(self) -> dict[str, Any]:
        """Return the fields as JSON, for storage."""
        values = vars(self)
        return {
            **values,
            **{name: None if values[name] is None else values[name].isoformat() for name in _MOMENTS},
        }

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> UseWatch:
        """Return the value that `as_doc` stored."""
        moments = {name: datetime.fromisoformat(doc[name]) for name in _MOMENTS if doc.get(name) is not None}
        return cls(**{**doc, **moments})

    @property
    def known_until(self) -> datetime | None:
        """Return the time of the newest known sample."""
        return max(filter(None, (self.busy_at, self.quiet_until)), default=None)

    def is_verdict_fresh(self, now: datetime) -> bool:
        """Return True if the last check is recent enough to act on."""
        # abs(): if the wall clock stepped back, the check seems to lie in the future.
        return abs(now - self.looked_at) <= VERDICT_FRESH


def sample_interval(rule: Idleness) -> timedelta:
    """Return the distance of the samples to ask for."""
    return timedelta(seconds=SAMPLE_EVERY_S * max(1, math.ceil(rule.window_s / SAMPLE_EVERY_S / SAMPLES_MAX)))


def asked_span(
    rule: Idleness, now: datetime, known_until: datetime | None = None
) -> tuple[datetime, datetime]:
    """Return the time for which to read samples.

    It begins at the last known sample, if that is longer ago. After an outage, or while our clock was wrong,
    the idleness may have begun unseen, and the brake needs its start.

    It ends after now. If our clock is behind, the newest samples would otherwise be left out, and use would
    go unseen.
    """
    interval = sample_interval(rule)
    begin = now - rule.window - SAMPLES_APART_MAX - 2 * interval
    if known_until is not None:
        begin = min(begin, max(known_until - 2 * interval, now - SAMPLES_MAX * interval))
    # guard: samples are asked for beyond now
    return begin, now + 2 * SAMPLES_APART_MAX


@dataclass(frozen=True)
class CloudTime:
    """A time that the cloud's clock may have reached at a given uptime of the host.

    It comes from the newest sample of any machine, or from our own clock before it was set back. A slow clock
    makes late samples look fresh; this value reveals them.
    """

    reached: datetime
    uptime_s: float

    def at(self, uptime_s: float) -> datetime:
        """Return the time that it has reached at this uptime."""
        return self.reached + timedelta(seconds=uptime_s - self.uptime_s)


def latest_cloud_time(known: CloudTime | None, reached: datetime, uptime_s: float) -> CloudTime:
    """Return the later of the known time and a new one.

    A time that nothing has confirmed for an hour is dropped: a fast clock may have been corrected.
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
    """Return what the samples of a machine with this many GPUs show."""
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
    """Return the earliest possible end, whatever the samples show."""
    ready = usable_since + max(rule.window, READY_GRACE)
    return ready if used_at is None else max(ready, used_at + rule.window)


def next_look(
    rule: Idleness, watch: UseWatch | None, usable_since: datetime, used_at: datetime | None
) -> datetime:
    """Return when to check next: not before it can have been idle for long enough."""
    ahead = rule.window if rule.activity is not None else warning_lead(rule)
    earliest = first_end(rule, usable_since, used_at) - ahead
    return earliest if watch is None else max(earliest, watch.look_at)


def warning_lead(rule: Idleness) -> timedelta:
    """Return how long before its end gpuherd warns."""
    return min(IDLE_WARNING, rule.window / 2)


def after_answer(rule: Idleness, watch: UseWatch | None, answer: AppAnswer, now: datetime) -> UseWatch:
    """Return the watch after an answer of the application, with the next check if no samples are needed.

    An application that only says that it is idle now must say so every time. One missing answer restarts the
    time.
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
    """Return True if the metrics still matter. They cost a call; the application costs none."""
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
    """Return the watch after a check of the samples. `use` is None if they could not be read.

    The instance does not end before `not_before`.
    """
    found = _judge(rule, watch, use, not_before, now)
    if rule.activity is None:
        return found
    # Meanwhile the application is still asked: it must say so every time.
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
    # The next sample may arrive at any moment, and the final one as soon after its own time.
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
    """Return by how much younger a sample can be when it arrives than the newest one is now."""
    if use.quiet_until is None:
        return timedelta(0)
    return min(max(now - use.quiet_until, timedelta(0)), sample_interval(rule))


def _quiet_spell(before: UseWatch, use: MachineUse) -> dict[str, Any]:
    """Return the idle time from this check and the checks that it continues."""
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
    """Return the watch of an instance that is due but held back, because too many would end at once."""
    return replace(watch, is_over=False, look_at=now + RETRY_AFTER)
