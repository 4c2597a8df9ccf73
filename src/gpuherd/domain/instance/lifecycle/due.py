"""Due: what the endings say about an instance, and when somebody must look at it although nothing changes."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.domain.endings import ending as endings
from gpuherd.domain.endings.ending import Ending, Situation, ending, next_due, silent_at
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lifecycle import goals
from gpuherd.domain.instance.lifecycle.conditions import (
    given_up_at,
    is_coming_up,
    was_machine_proven_gone,
)

DUE_RECHECK = timedelta(seconds=1)


def instance_ending(it: Instance, now: datetime, up_since: datetime) -> Ending | None:
    """Return what has to happen to an instance now because some time is over; None if none is.

    `up_since` is since when this service could have heard that it is in use.
    """
    return ending(it.terms, _situation(it), now, up_since) if may_end(it) else None


def due_at(it: Instance) -> datetime | None:
    """Return when an instance must be looked at next, whatever else happens or does not."""
    if it.lease_term is None and it.terms.silence is None and it.status is not Status.EXITED:
        # As most are, at each of their changes: no time runs for them.
        return it.look_at
    ends_at = next_due(it.terms, _situation(it)) if may_end(it) else None
    return min(filter(None, (ends_at, it.look_at)), default=None)


def wait_at_most(it: Instance, delay: timedelta, now: datetime) -> timedelta:
    """Return how long to wait at most: neither an end nor a deadline must be slept through."""
    due, until = due_at(it), given_up_at(it)
    if due is not None:
        delay = min(delay, max(due - now, DUE_RECHECK))
    # What is over and still waits has been asked about, and could not be told.
    return min(delay, until - now) if is_coming_up(it) and until > now else delay


def silence_ends_at(it: Instance) -> datetime | None:
    """Return when silence ends it, if nobody says that it is in use until then."""
    return silent_at(it.terms, _situation(it)) if may_end(it) else None


def auto_ends_at(it: Instance) -> datetime | None:
    """Return when it ends because nobody uses it, as far as that is known, and if it stays so."""
    idle_ends_at = None if use_look_at(it) is None or it.use_watch is None else it.use_watch.ends_at
    return min(filter(None, (silence_ends_at(it), idle_ends_at)), default=None)


def last_used_at(it: Instance) -> datetime | None:
    """Return when it was last used: its user said so, or it was seen."""
    seen = None if it.use_watch is None else it.use_watch.busy_at
    return max(filter(None, (it.used_at, seen)), default=None)


def use_look_at(it: Instance) -> datetime | None:
    """Return when to find out next whether it is idle; None where nothing depends on it."""
    if it.goal is not Goal.RUNNING or it.cloud_id is None or not may_end(it):
        return None
    return endings.use_look_at(it.terms, _situation(it))


def usable_since(it: Instance) -> datetime | None:
    """Return since when it can be used in its present run; of an older version only the first is known."""
    # guard: silence counts from the present run
    return it.usable_at or it.ready_at


def may_end(it: Instance) -> bool:
    """Tell whether there is something left to end: what is being removed ends by itself."""
    if it.goal is Goal.DELETED or it.releasing or it.status is Status.DELETED:
        return False
    if it.status is Status.FAILED:
        # A machine that was kept costs as before.
        return it.cloud_id is not None and not was_machine_proven_gone(it)
    return True


def _situation(it: Instance) -> Situation:
    exited = it.status is Status.EXITED
    return Situation(
        term=it.lease_term,
        can_stop=can_be_stopped(it),
        is_stopping=it.goal is Goal.STOPPED and not exited and it.status is not Status.FAILED,
        stopped_since=it.stopped_at if exited else None,
        data_warned=it.data_expiry_told,
        usable_since=usable_since(it) if it.usable else None,
        used_at=it.used_at,
        watch=it.use_watch,
    )


def can_be_stopped(it: Instance) -> bool:
    """Tell whether an end can stop it: a first boot cannot be stopped, and holds nobody's data yet."""
    has_come_up = it.ready_at is not None or it.stopped_at is not None
    is_up = it.status in (Status.RUNNING, Status.HEALTH_CHECKING)
    return goals.can_stop(it) and (has_come_up or is_up)
