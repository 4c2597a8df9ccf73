"""The rules about ends: what holds where nothing was agreed, and what a key must agree to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.access.api_key import Limits
from gpuherd.domain.endings.terms import LEASE_S, Lease, Terms
from gpuherd.domain.errors import FieldProblem, InvalidRequest


@dataclass(frozen=True)
class EndRules:
    """What the settings and the limits of a key say about ends."""

    default_lease: timedelta = timedelta(0)
    delete_stopped_after: timedelta = timedelta(0)
    lease_warning: timedelta = timedelta(minutes=10)

    def agreed(self, terms: Terms, limits: Limits, now: datetime) -> Terms:
        """Return the terms of a new instance, with what holds where its user said nothing.

        `InvalidRequest` for a lease that lies behind us, or is longer than its key may have one.
        """
        lease = terms.lease
        if lease is None and (seconds := self._lease_s(limits)):
            lease = Lease(seconds=seconds)
        if lease is not None:
            check_lease(lease, limits, now)
        delete_stopped_s = terms.delete_stopped_s
        if delete_stopped_s is None and self.delete_stopped_after:
            delete_stopped_s = int(self.delete_stopped_after.total_seconds())
        if lease is terms.lease and delete_stopped_s == terms.delete_stopped_s:
            return terms
        return replace(terms, lease=lease, delete_stopped_s=delete_stopped_s)

    def _lease_s(self, limits: Limits) -> int | None:
        """Return how long the lease is of whoever did not ask for one."""
        said = (int(self.default_lease.total_seconds()) or None, limits.max_lease_s)
        return min((it for it in said if it is not None), default=None)


def check_lease(lease: Lease, limits: Limits, now: datetime) -> None:
    """Raise `InvalidRequest` if a lease cannot be had."""
    if (problem := lease_problem(lease, limits, now)) is not None:
        raise InvalidRequest([problem])


def lease_problem(lease: Lease, limits: Limits, now: datetime) -> FieldProblem | None:
    """Return why a lease cannot be had; None if it can."""
    length_s = lease.seconds if lease.until is None else (lease.until - now).total_seconds()
    assert length_s is not None, "a lease has a length or a moment"
    least, most = LEASE_S
    if lease.until is not None and not least <= length_s <= most:
        return _problem("lease.until", f"must be at least {least} s and at most {most // 86_400} days ahead")
    if limits.max_lease_s is not None and length_s > limits.max_lease_s:
        return _problem("lease", f"must not be longer than this key may have one: {limits.max_lease_s} s")
    return None


def _problem(field: str, words: str) -> FieldProblem:
    return FieldProblem(field, "INVALID_LEASE", f"{field} {words}")
