"""The term of a lease: when it ends, by the clock as it was when that was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from gpuherd.domain.endings.terms import EndAction, Lease

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
        """Tell whether it has ended; where there was nothing to end any more, nobody has noted it."""
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
