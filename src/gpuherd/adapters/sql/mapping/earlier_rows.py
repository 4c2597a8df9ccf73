"""Rows that a version wrote which knew neither `waiting_for` nor `cause`, which their sentences told, nor
what a disk costs, nor when a reclaim was announced.

Such a version may write on beside this one while replicas are upgraded one after the other, so this is done
when a row is read. It can go one release later.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from gpuherd.domain.cloud.disk_tariff import NOVITA_DISK
from gpuherd.domain.cloud.spot_reclaim import RECLAIM_NOTICE, ReclaimNotice
from gpuherd.domain.instance.events import GOAL_EVENTS, WAITING, Cause, CauseCode, cause_of_wait
from gpuherd.domain.instance.instance import Wish
from gpuherd.domain.instance.waiting import Waiting, WaitingFor

# How the reason of an instance began that waited for it.
_PREFIXES = {
    WaitingFor.CLOUD: "waiting for the cloud",
    WaitingFor.CAPACITY: "waiting for capacity",
    WaitingFor.CREATES: "creates are blocked",
}
_REQUESTS = {
    "asked to start": CauseCode.START_REQUESTED,
    "asked to stop": CauseCode.STOP_REQUESTED,
    "asked to delete": CauseCode.DELETE_REQUESTED,
}
_REQUEST_TYPES = frozenset(GOAL_EVENTS.values())


def waiting_in(reason: str) -> Waiting | None:
    """Return the wait that the reason of an instance tells of."""
    what = next((it for it, words in _PREFIXES.items() if reason.startswith(words)), None)
    return None if what is None else Waiting(what, reason.partition(": ")[2] or reason, None)


def disk_usd_of(wish: Wish) -> Decimal:
    """Return what a disk costs that was rented when nobody counted it."""
    return NOVITA_DISK.hourly_usd(wish.disk_gb)


def reclaim_of(reclaim_at: datetime | None) -> ReclaimNotice | None:
    """Return the notice of a reclaim that was told; one without a time is read, and told, anew."""
    return None if reclaim_at is None else ReclaimNotice(reclaim_at - RECLAIM_NOTICE, reclaim_at, reclaim_at)


def cause_in(type_: str, reason: str) -> Cause | None:
    """Return the cause that the reason of an event tells of."""
    if type_ in _REQUEST_TYPES:
        code = _REQUESTS.get(reason)
        return None if code is None else Cause(code)
    waiting = waiting_in(reason) if type_ == WAITING else None
    return None if waiting is None else cause_of_wait(waiting)
