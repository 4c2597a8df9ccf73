"""What an instance waits for, until when, and what a person can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuherd.domain.errors import NoCapacity, OutcomeUnknown, OutOfStock
from gpuherd.domain.instance.instance import (
    Goal,
    Instance,
    Status,
    WaitingFor,
)
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.instance_state import VANISHED, start_waits_until, was_started_externally
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.usecases.instances.tell_timeline import sentence

# Beside what keeps us from ordering (`WaitingFor`), what an order is followed through.
ORDER, OUTCOME, MACHINE, APPLICATION, MOVE = "order", "outcome", "machine", "application", "move"


STOP, REMOVAL = "stop", "removal"
_BY_ITSELF = "Nothing: it goes on by itself."


ADVICE = {
    WaitingFor.CLOUD: "Nothing: it goes on by itself when the cloud answers; /health says how the cloud is.",
    WaitingFor.CAPACITY: (
        "Wait, or delete it and allow more: other regions, a higher price, on demand, fewer GPUs."
    ),
    WaitingFor.CREATES: "An admin must look why, and then let creates go on.",
    ORDER: _BY_ITSELF,
    OUTCOME: "Nothing: to order again before the first order is cleared up could rent a second machine.",
    MACHINE: "Nothing, unless it takes longer than usual: then its image may be too large, or not there.",
    APPLICATION: "See that the program listens on the port that is checked, and answers well on its path.",
    MOVE: _BY_ITSELF,
    STOP: "Nothing: the cloud is asked again until the machine has stopped.",
    REMOVAL: "Nothing: the cloud is asked again until it proves that the machine is gone.",
}


_MORE = (
    "Ask again and allow more: other regions, a higher price, on demand, fewer GPUs, or a wait for capacity."
)


_LATER = "Ask again later."
_START_AGAIN = "Start it again; its data is still there."


AFTER_FAILURE = {
    NoCapacity.code: _MORE,
    OutOfStock.code: _LATER,
    "HEALTH_CHECK_FAILED": "Look at the program's own log, or allow a longer healthCheck.maxWaitTimeMs.",
    "INSTANCE_TIMEOUT": "Ask again; a large image needs a longer GPUHERD_INSTANCE_MAX_WAIT.",
    "STARTUP_TIMEOUT": "Stop it, then start it again; its data is still there.",
    "STARTUP_FAILED": "See that the template's image is there and can be pulled with its credential.",
    "SPOT_RECLAIMED": "Ask again, or on demand: such a machine is not taken back.",
    OutcomeUnknown.code: _LATER,
    VANISHED: "See in the cloud's own console who removed the machine, and ask again.",
}


@dataclass(frozen=True)
class WaitExplanation:
    """What is waited for: in a word, in a sentence, since and until when, and what to do."""

    what: str
    sentence: str
    since: datetime
    # Then it is given up; None: never.
    until: datetime | None


def explain_waiting(
    instance: Instance, events: Sequence[Event], attempts: Sequence[Attempt]
) -> WaitExplanation | None:
    """Return what the instance waits for, or None when nobody works on it."""
    what = _awaited(instance, attempts)
    if what is None:
        return None
    since = _since(instance, what) or (events[-1].at if events else instance.created_at)
    return WaitExplanation(what, _sentence(instance, what), since, _until(instance, what))


def _since(it: Instance, what: str) -> datetime | None:
    waiting = it.waiting_for
    return waiting.since if waiting is not None and waiting.what == what else None


def _sentence(it: Instance, what: str) -> str:
    if what == WaitingFor.CAPACITY and it.waiting_for is not None:
        # Without the time that the reason tells: `until` does.
        return sentence(f"waiting for capacity: {it.waiting_for.message}")
    return sentence(it.reason or f"waiting for the {what}")


def advice_for(instance: Instance, waiting: WaitExplanation | None) -> str | None:
    """Return what a person can do now; None where there is nothing to be done about."""
    if waiting is not None:
        return ADVICE[waiting.what]
    failure, operation = instance.last_error, instance.operation
    if instance.status is Status.EXITED and operation is not None and operation.error is not None:
        return _START_AGAIN
    if failure is None or instance.status is not Status.FAILED:
        return None
    return AFTER_FAILURE.get(failure.code, "See what the reason says, change that, and ask again.")


def _awaited(it: Instance, attempts: Sequence[Attempt]) -> str | None:
    if _is_settled(it):
        return None
    if any(attempt.is_open for attempt in attempts):
        return OUTCOME
    if it.waiting_for is not None:
        return it.waiting_for.what
    if it.goal is Goal.DELETED or it.releasing:
        return REMOVAL
    if it.goal is Goal.STOPPED:
        return STOP
    if it.cloud_id is None:
        return ORDER
    return {
        Status.RUNNING: APPLICATION,
        Status.HEALTH_CHECKING: APPLICATION,
        Status.MIGRATING: MOVE,
    }.get(it.status, MACHINE)


def _is_settled(it: Instance) -> bool:
    match it.goal:
        case Goal.DELETED:
            return it.status is Status.DELETED
        case Goal.STOPPED:
            return it.status in (Status.EXITED, Status.FAILED) and not it.releasing
        case Goal.RUNNING:
            return it.usable or (it.status in _SETTLED_STATUSES and not it.releasing)


_SETTLED_STATUSES = (Status.EXITED, Status.FAILED, Status.DELETED)


def wait_until(it: Instance) -> datetime | None:
    """Return when a wait for something outside is given up; None: never."""
    return None if it.waiting_for is None else _until(it, it.waiting_for.what)


def _until(it: Instance, what: str) -> datetime | None:
    if what == WaitingFor.CAPACITY and it.start_wait is not None:
        return start_waits_until(it)
    if what == WaitingFor.CAPACITY:
        return it.created_at + timedelta(seconds=it.wish.patience_s)
    if what == APPLICATION and it.health_check and it.health and it.health.started_at:
        return it.health.started_at + timedelta(milliseconds=it.health_check.max_wait_ms)
    if it.goal is not Goal.RUNNING or it.releasing or was_started_externally(it):
        return None
    return it.deadline
