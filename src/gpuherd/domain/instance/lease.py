"""Leases: the agreed terms, and when the running lease ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

# Minimum and maximum, in seconds.
LEASE_S = (10, 90 * 86_400)


SILENCE_S = (10, 90 * 86_400)
IDLE_S = (300, 7 * 86_400)
STOPPED_S = (10, 90 * 86_400)


# Minimum and maximum, in percent.
USE_BELOW = (1, 100)


class EndAction(StrEnum):
    """What happens to an instance when its time is over."""

    STOP = "stop"
    DELETE = "delete"


@dataclass(frozen=True)
class Lease:
    """An agreed time: a length from the rental on, or a moment; exactly one of the two."""

    seconds: int | None = None
    until: datetime | None = None
    then: EndAction = EndAction.STOP

    def length(self, now: datetime) -> timedelta:
        """Return its length, if it begins now."""
        if self.until is not None:
            return max(timedelta(0), self.until - now)
        assert self.seconds is not None, "a lease has a length or a moment"
        return timedelta(seconds=self.seconds)


@dataclass(frozen=True)
class Silence:
    """Ends an instance whose user has not reported use for this time."""

    silence_s: int
    then: EndAction = EndAction.STOP


@dataclass(frozen=True)
class ActivityCheck:
    """The URL at which an application reports its use: 204 idle, 200 in use or idle since when."""

    port: int
    path: str = "/"


@dataclass(frozen=True)
class Idleness:
    """Ends an instance whose GPUs and CPU were below these limits for this time."""

    window_s: int
    # In percent.
    gpu_below: int = 5
    cpu_below: int = 10
    # An additional check: metrics and application must both report idleness.
    activity: ActivityCheck | None = None
    then: EndAction = EndAction.STOP

    @property
    def window(self) -> timedelta:
        return timedelta(seconds=self.window_s)


@dataclass(frozen=True)
class Terms:
    """All agreed terms that end an instance."""

    lease: Lease | None = None
    silence: Silence | None = None
    idle: Idleness | None = None
    # A stopped instance is deleted after this time, because its disk costs money.
    delete_stopped_s: int | None = None

    def as_doc(self) -> dict[str, Any]:
        """Return the fields as JSON, for storage."""
        doc = asdict(self)
        # The previous version, which may read this, uses this name.
        doc["auto_stop"] = doc.pop("silence")
        if self.lease is not None and self.lease.until is not None:
            doc["lease"]["until"] = self.lease.until.isoformat()
        return doc

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Terms:
        """Return the value that `as_doc` stored."""
        lease, silence, idle = doc["lease"], doc["auto_stop"], doc.get("idle")
        return cls(
            lease=None if lease is None else _lease_of(lease),
            silence=None if silence is None else Silence(silence["silence_s"], EndAction(silence["then"])),
            idle=None if idle is None else _idleness_of(idle),
            delete_stopped_s=doc["delete_stopped_s"],
        )


NO_TERMS = Terms()


def _lease_of(doc: Mapping[str, Any]) -> Lease:
    until = doc["until"]
    return Lease(
        doc["seconds"], None if until is None else datetime.fromisoformat(until), EndAction(doc["then"])
    )


def _idleness_of(doc: Mapping[str, Any]) -> Idleness:
    activity = None if doc["activity"] is None else ActivityCheck(**doc["activity"])
    return Idleness(**{**doc, "activity": activity, "then": EndAction(doc["then"])})


_MOMENTS = ("ends_at", "warn_at", "set_at")


@dataclass(frozen=True)
class LeaseTerm:
    """A running or ended lease."""

    ends_at: datetime
    # When the end is announced.
    warn_at: datetime
    # When the end was decided. A lease promises a length of time, so later clock steps move it.
    set_at: datetime
    length_s: float
    then: EndAction = EndAction.STOP
    warned: bool = False
    ended: bool = False

    def moved(self, by: timedelta, now: datetime) -> LeaseTerm:
        """Return the same length of time by a clock that was set."""
        if not by:
            return self
        return replace(self, ends_at=self.ends_at + by, warn_at=self.warn_at + by, set_at=now)

    def is_over(self, now: datetime) -> bool:
        """Return True if it has ended, even if nothing was left to end and no event was recorded."""
        return self.ended or now >= self.ends_at

    def as_doc(self) -> dict[str, Any]:
        """Return the fields as JSON, for storage."""
        return {**vars(self), **{name: getattr(self, name).isoformat() for name in _MOMENTS}}

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> LeaseTerm:
        """Return the value that `as_doc` stored."""
        moments = {name: datetime.fromisoformat(doc[name]) for name in _MOMENTS}
        return cls(**{**doc, **moments, "then": EndAction(doc["then"])})


def term_until(
    ends_at: datetime, now: datetime, warning: timedelta, then: EndAction = EndAction.STOP
) -> LeaseTerm:
    """Return a term that ends at a moment.

    The warning comes `warning` before, but never in the first half.
    """
    length = ends_at - now
    return LeaseTerm(ends_at, ends_at - min(warning, length / 2), now, length.total_seconds(), then)


def term_of(seconds: float, now: datetime, warning: timedelta, then: EndAction = EndAction.STOP) -> LeaseTerm:
    """Return a term that begins now."""
    return term_until(now + timedelta(seconds=seconds), now, warning, then)


def accepted_term(lease: Lease | None, now: datetime, warning: timedelta) -> LeaseTerm | None:
    """Return the term of an accepted spec. A moment is known at once; a length counts from the rental."""
    if lease is None or lease.until is None:
        return None
    return term_until(lease.until, now, warning, lease.then)


def rented_term(
    lease: Lease | None, term: LeaseTerm | None, now: datetime, warning: timedelta
) -> LeaseTerm | None:
    """Return the term after the rental. A running term continues."""
    if term is not None or lease is None or lease.seconds is None:
        return term
    return term_of(lease.seconds, now, warning, lease.then)


def started_term(term: LeaseTerm | None, now: datetime, warning: timedelta) -> LeaseTerm | None:
    """Return the term after a start. A term that has ended begins again with its old length."""
    if term is None or not term.is_over(now):
        return term
    return term_of(term.length_s, now, warning, term.then)
