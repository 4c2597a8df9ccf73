"""Ends: whether the time of an instance is over, and when the next check is due if nothing changes.

This module only decides. The goal stops or deletes the machine, as if a person had asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.instance.idleness import UseWatch, first_end, next_look
from gpuherd.domain.instance.lease import EndAction, LeaseTerm, Terms

# Novita keeps the disk of a stopped machine for seven days.
DATA_KEPT = timedelta(days=7)


DATA_WARNING_AFTER = DATA_KEPT - timedelta(hours=4)


class EndCause(StrEnum):
    """Who decided an end."""

    LEASE = "lease"
    SILENCE = "silence"
    IDLE = "idle"
    STOPPED = "stopped"
    BUDGET = "budget"


@dataclass(frozen=True)
class End:
    """The time is over: change the goal."""

    cause: EndCause
    action: EndAction
    reason: str
    # The actor, if the cause alone does not name one.
    by: str = ""

    @property
    def actor(self) -> str:
        return self.by or self.cause.value


@dataclass(frozen=True)
class WarnLease:
    """The lease ends soon: warn once."""

    ends_at: datetime


@dataclass(frozen=True)
class WarnData:
    """The cloud drops the data of a stopped machine soon: warn once."""

    expires_at: datetime


Ending = End | WarnLease | WarnData


@dataclass(frozen=True)
class Situation:
    """What the end of an instance depends on besides its terms."""

    term: LeaseTerm | None
    # True if a running machine can be stopped. A booting or waiting instance cannot.
    can_stop: bool
    # A stop is under way. Only a delete needs a new order.
    is_stopping: bool = False
    # Since when it is stopped; None while it is up or on its way.
    stopped_since: datetime | None = None
    data_warned: bool = False
    # Since when it is usable, and when its user last reported use.
    usable_since: datetime | None = None
    used_at: datetime | None = None
    # What else is known about its use.
    watch: UseWatch | None = None

    @property
    def is_going_down(self) -> bool:
        return self.is_stopping or self.stopped_since is not None


def ending(terms: Terms, situation: Situation, now: datetime, up_since: datetime) -> Ending | None:
    """Return the end or warning that is due now; None if none is.

    `up_since` is since when this service could receive reports of use. Silence before that means nothing.
    """
    return (
        _lease_end(situation, now)
        or _silence_end(terms, situation, now, up_since)
        or _idle_end(terms, situation, now)
        or _stopped_end(terms, situation, now)
        or _lease_warning(situation, now)
        or _data_warning(situation, now)
    )


def next_due(terms: Terms, situation: Situation) -> datetime | None:
    """Return when `ending` may next return something, if nothing else happens."""
    return min(_moments(terms, situation), default=None)


def _moments(terms: Terms, situation: Situation) -> Iterator[datetime]:
    term, stopped = situation.term, situation.stopped_since
    if term is not None and not term.ended:
        if not situation.is_going_down or term.then is EndAction.DELETE:
            yield term.ends_at
        if not situation.is_going_down and not term.warned:
            yield term.warn_at
    silent = silent_at(terms, situation)
    if silent is not None:
        yield silent
    if stopped is not None:
        if terms.delete_stopped_s is not None:
            yield stopped + timedelta(seconds=terms.delete_stopped_s)
        if not situation.data_warned:
            yield stopped + DATA_WARNING_AFTER


def _lease_end(situation: Situation, now: datetime) -> End | None:
    term = situation.term
    # guard: a lease ends once
    # guard: no lease ends before its end
    if term is None or term.ended or now < term.ends_at:
        return None
    if situation.is_going_down and term.then is EndAction.STOP:
        return None
    if not situation.is_going_down and not situation.can_stop:
        return End(EndCause.LEASE, EndAction.DELETE, "its lease has ended before it could be used")
    return End(EndCause.LEASE, term.then, "its lease has ended")


def silent_at(terms: Terms, situation: Situation) -> datetime | None:
    """Return when silence has lasted long enough, if no use is reported until then."""
    silence = terms.silence
    if silence is None or not situation.can_stop or situation.usable_since is None:
        return None
    heard = max(situation.usable_since, situation.used_at or situation.usable_since)
    return heard + timedelta(seconds=silence.silence_s)


def _silence_end(terms: Terms, situation: Situation, now: datetime, up_since: datetime) -> End | None:
    silence, ends_at = terms.silence, silent_at(terms, situation)
    if silence is None or ends_at is None:
        return None
    span = timedelta(seconds=silence.silence_s)
    # Silence while users could not reach this service does not count.
    # guard: a client that could not reach us was not silent
    if now < ends_at or now < up_since + span:
        return None
    return End(EndCause.SILENCE, silence.then, f"nobody has used it for {silence.silence_s} s")


def use_look_at(terms: Terms, situation: Situation) -> datetime | None:
    """Return when to check next whether it is idle; None if nothing depends on it."""
    if terms.idle is None or not situation.can_stop or situation.usable_since is None:
        return None
    return next_look(terms.idle, situation.watch, situation.usable_since, situation.used_at)


def _idle_end(terms: Terms, situation: Situation, now: datetime) -> End | None:
    rule, watch = terms.idle, situation.watch
    if rule is None or watch is None or not situation.can_stop or situation.usable_since is None:
        return None
    # Use may have been reported since then.
    is_used = now < first_end(rule, situation.usable_since, situation.used_at)
    # guard: a heartbeat after the verdict keeps it
    # guard: a verdict of idleness grows old
    if not watch.is_over or not watch.is_verdict_fresh(now) or is_used:
        return None
    idle = f"it was idle for {rule.window_s} s: GPUs below {rule.gpu_below} %, CPU below {rule.cpu_below} %"
    return End(EndCause.IDLE, rule.then, idle)


def _stopped_end(terms: Terms, situation: Situation, now: datetime) -> End | None:
    stopped, after_s = situation.stopped_since, terms.delete_stopped_s
    if stopped is None or after_s is None or now < stopped + timedelta(seconds=after_s):
        return None
    return End(EndCause.STOPPED, EndAction.DELETE, f"it has been stopped for {after_s} s")


def _lease_warning(situation: Situation, now: datetime) -> WarnLease | None:
    term = situation.term
    if term is None or term.ended or term.warned or situation.is_going_down:
        return None
    return WarnLease(term.ends_at) if now >= term.warn_at else None


def _data_warning(situation: Situation, now: datetime) -> WarnData | None:
    stopped = situation.stopped_since
    if stopped is None or situation.data_warned or now < stopped + DATA_WARNING_AFTER:
        return None
    return WarnData(stopped + DATA_KEPT)
