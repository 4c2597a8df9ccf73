"""Leases: what was agreed, and when the running one ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

# From, to; in seconds.
LEASE_S = (10, 90 * 86_400)


SILENCE_S = (10, 90 * 86_400)
IDLE_S = (300, 7 * 86_400)
STOPPED_S = (10, 90 * 86_400)


# From, to; in percent.
USE_BELOW = (1, 100)


class EndAction(StrEnum):
    """What becomes of an instance whose time is over."""

    STOP = "stop"
    DELETE = "delete"


@dataclass(frozen=True)
class Lease:
    """A time that was agreed: so long from the rental on, or until a moment; exactly one of the two."""

    seconds: int | None = None
    until: datetime | None = None
    then: EndAction = EndAction.STOP

    def length(self, now: datetime) -> timedelta:
        """Return how long it is from now on, if it begins now."""
        if self.until is not None:
            return max(timedelta(0), self.until - now)
        assert self.seconds is not None, "a lease has a length or a moment"
        return timedelta(seconds=self.seconds)


@dataclass(frozen=True)
class Silence:
    """An end for what nobody uses: its user has said nothing for so long."""

    silence_s: int
    then: EndAction = EndAction.STOP


@dataclass(frozen=True)
class ActivityCheck:
    """Where an application tells whether it is in use: 204 says no, 200 yes, or since when it is not."""

    port: int
    path: str = "/"


@dataclass(frozen=True)
class Idleness:
    """An end for what does nothing: for so long no GPU and no CPU was used more than that."""

    window_s: int
    # In percent.
    gpu_below: int = 5
    cpu_below: int = 10
    # Asked as well: all of them must say that it is not in use.
    activity: ActivityCheck | None = None
    then: EndAction = EndAction.STOP

    @property
    def window(self) -> timedelta:
        return timedelta(seconds=self.window_s)


@dataclass(frozen=True)
class Terms:
    """All that was agreed about the end of an instance."""

    lease: Lease | None = None
    silence: Silence | None = None
    idle: Idleness | None = None
    # A stopped one is deleted after so long: its disk costs money.
    delete_stopped_s: int | None = None

    def as_doc(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for storage."""
        doc = asdict(self)
        # As the version before calls it, which may read this.
        doc["auto_stop"] = doc.pop("silence")
        if self.lease is not None and self.lease.until is not None:
            doc["lease"]["until"] = self.lease.until.isoformat()
        return doc

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Terms:
        """Return what `as_doc` wrote down."""
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
    """A lease that runs, or has ended."""

    ends_at: datetime
    # When the end is announced.
    warn_at: datetime
    # When the end was decided: what was promised is a span of time, so steps of the clock since then move it.
    set_at: datetime
    length_s: float
    then: EndAction = EndAction.STOP
    warned: bool = False
    ended: bool = False

    def moved(self, by: timedelta, now: datetime) -> LeaseTerm:
        """Return the same span of time by a clock that was set."""
        if not by:
            return self
        return replace(self, ends_at=self.ends_at + by, warn_at=self.warn_at + by, set_at=now)

    def is_over(self, now: datetime) -> bool:
        """Return True if it has ended; where there was nothing to end any more, nobody has noted it."""
        return self.ended or now >= self.ends_at

    def as_doc(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for storage."""
        return {**vars(self), **{name: getattr(self, name).isoformat() for name in _MOMENTS}}

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> LeaseTerm:
        """Return what `as_doc` wrote down."""
        moments = {name: datetime.fromisoformat(doc[name]) for name in _MOMENTS}
        return cls(**{**doc, **moments, "then": EndAction(doc["then"])})


def term_until(
    ends_at: datetime, now: datetime, warning: timedelta, then: EndAction = EndAction.STOP
) -> LeaseTerm:
    """Return a term that ends at a moment, announced so much ahead, but never in its first half."""
    length = ends_at - now
    return LeaseTerm(ends_at, ends_at - min(warning, length / 2), now, length.total_seconds(), then)


def term_of(seconds: float, now: datetime, warning: timedelta, then: EndAction = EndAction.STOP) -> LeaseTerm:
    """Return a term that begins now."""
    return term_until(now + timedelta(seconds=seconds), now, warning, then)


def accepted_term(lease: Lease | None, now: datetime, warning: timedelta) -> LeaseTerm | None:
    """Return the term of an accepted wish: a moment is known at once, a length counts from the rental."""
    if lease is None or lease.until is None:
        return None
    return term_until(lease.until, now, warning, lease.then)


def rented_term(
    lease: Lease | None, term: LeaseTerm | None, now: datetime, warning: timedelta
) -> LeaseTerm | None:
    """Return the term once a machine is rented. Where one runs already, it goes on."""
    if term is not None or lease is None or lease.seconds is None:
        return term
    return term_of(lease.seconds, now, warning, lease.then)


def started_term(term: LeaseTerm | None, now: datetime, warning: timedelta) -> LeaseTerm | None:
    """Return the term of what is started again: one that has ended begins anew, as long as it was."""
    if term is None or not term.is_over(now):
        return term
    return term_of(term.length_s, now, warning, term.then)
