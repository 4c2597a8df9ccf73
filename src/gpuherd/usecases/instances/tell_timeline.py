"""The timeline of an instance in sentences: what happened, what it waits for, what to do."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from gpuherd.contract.wire_models import price_text, usd
from gpuherd.domain.api_key import ADMIN_ID
from gpuherd.domain.cloud.offer import BillingMode, Offer
from gpuherd.domain.errors import (
    CircuitOpen,
    CloudTimeout,
    CloudUnavailable,
    GpuherdError,
    KeyRefused,
    NoCapacity,
    OutcomeUnknown,
    OutOfStock,
    RateLimited,
)
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import (
    Goal,
    Instance,
    Status,
    WaitingFor,
)
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.instance_state import VANISHED, start_waits_until, was_started_externally
from gpuherd.domain.instance.launch_spec import LaunchSpec, OnFailure
from gpuherd.domain.instance.offer_ranking import Ranking, gpu_hourly_usd, hourly_usd
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState

# Of each kind; an event is kept for days and read by people.
OFFERS_MAX = 20


EventDetails = Mapping[str, Any]


def plan_record(ranking: Ranking, wish: LaunchSpec, attempt: int) -> dict[str, Any]:
    """Return the record of a ranking, whose best offer is tried with this attempt."""
    return {
        "attempt": attempt,
        "accepted": [_offer(it, wish) for it in ranking.accepted[:OFFERS_MAX]],
        "refused": [{**_offer(it.offer, wish), "reason": it.reason} for it in ranking.refused[:OFFERS_MAX]],
        "acceptedTotal": len(ranking.accepted),
        "refusedTotal": len(ranking.refused),
        **_without_offer([{"region": it.region, "reason": it.reason} for it in ranking.without_offer]),
    }


def wait_record(what: WaitingFor, error: GpuherdError | None = None) -> EventDetails:
    """Return the record of a wait, with the offers that do not fit where that is the reason."""
    record: dict[str, Any] = {"for": what.value}
    if error is not None:
        record["code"] = error.code
        regions = error.details.get("regions", ())
        record |= _refused(regions) if what is WaitingFor.CAPACITY else {}
    return record


def _refused(regions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    refused = [{**offer, "region": it["region"]} for it in regions for offer in it["offers"]]
    without = [{"region": it["region"], "reason": it["reason"]} for it in regions if not it["offers"]]
    return {"refused": refused[:OFFERS_MAX], "refusedTotal": len(refused), **_without_offer(without)}


def _without_offer(regions: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return {"regionsWithoutOffer": regions[:OFFERS_MAX]} if regions else {}


def _offer(offer: Offer, wish: LaunchSpec) -> dict[str, Any]:
    return {
        "productId": offer.product_id,
        "productName": offer.product_name,
        "region": offer.region,
        "gpuHourlyPrice": usd(gpu_hourly_usd(offer, wish)),
        "hourlyPrice": usd(hourly_usd(offer, wish)),
    }


REGIONS_SHOWN_MAX = 5


# After these the same order is given again.
TRANSIENT_CODES = frozenset(
    it.code for it in (CloudUnavailable, CircuitOpen, RateLimited, CloudTimeout, KeyRefused)
)


# FAILED and EXITED tell the same, and more.
OMITTED_EVENT_TYPES = frozenset({instance_event.TIMEOUT, instance_event.START_REFUSED})


# Somebody asked for it; the cloud's own "starting" has no such cause.
REQUESTED_GOALS = {code: kind.value for kind, code in instance_event.REQUEST_CAUSES.items()}


@dataclass(frozen=True)
class Sentence:
    """One thing that happened. `times` says how often in a row, the last time at `last_at`."""

    at: datetime
    text: str
    times: int = 1
    last_at: datetime | None = None


def tell_timeline(
    instance: Instance, events: Sequence[Event], attempts: Sequence[Attempt]
) -> tuple[Sentence, ...]:
    """Return all that happened; what went the same way several times in a row is told once."""
    return tuple(_deduplicated(list(_sentences(instance, events, attempts))))


def _sentences(
    instance: Instance, events: Sequence[Event], attempts: Sequence[Attempt]
) -> Iterator[Sentence]:
    begun_at = instance.created_at
    found = {it.details.get("attempt") for it in events if it.type == instance_event.MACHINE_FOUND}
    # What became of an order is told when its choice was.
    untold = {it.details.get("attempt") for it in events if it.type == instance_event.PLANNED}
    ends = [
        it
        for it in attempts
        if it.state in _ATTEMPT_END_TEXTS and it.n not in found and it.closed_at is not None
    ]
    for event in events:
        due = [it for it in ends if it.n not in untold and _ended_by(it, event.at)]
        yield from (_end_of(it, instance) for it in due)
        ends = [it for it in ends if it not in due]
        if event.type == instance_event.PLANNED:
            untold.discard(event.details.get("attempt"))
        if event.type == instance_event.ADOPTED or _requested_goal(event) is not None:
            begun_at = event.at
        if event.type not in OMITTED_EVENT_TYPES:
            yield Sentence(event.at, _text(event, instance, event.at - begun_at))
    yield from (_end_of(it, instance) for it in ends)


def _ended_by(attempt: Attempt, at: datetime) -> bool:
    return attempt.closed_at is not None and attempt.closed_at <= at


def _end_of(attempt: Attempt, instance: Instance) -> Sentence:
    return Sentence(
        attempt.closed_at or attempt.sent_at, _ATTEMPT_END_TEXTS[attempt.state](attempt, instance)
    )


def _rented(attempt: Attempt, instance: Instance) -> str:
    price = attempt.gpu_hourly_usd * instance.wish.gpu_num + instance.disk_hourly_usd
    return f"Rented the machine {attempt.cloud_id} in {attempt.region} for {_money(price)}."


def _had_no_effect(_attempt: Attempt, _instance: Instance) -> str:
    return "The order without an answer had no effect: the cloud's lists never showed its machine."


_ATTEMPT_END_TEXTS: dict[AttemptState, Callable[[Attempt, Instance], str]] = {
    AttemptState.BOUND: _rented,
    AttemptState.ABANDONED: _had_no_effect,
}


def _text(event: Event, instance: Instance, took: timedelta) -> str:
    if (goal := _requested_goal(event)) is not None:
        return f"A {goal} was asked for by {_actor_text(event.actor)}."
    match event.type:
        case instance_event.CREATED:
            return _accepted(instance)
        case instance_event.PLANNED:
            return _chosen(event.details)
        case instance_event.WAITING:
            return _waiting(event, instance)
        case instance_event.ATTEMPT_REJECTED:
            return _rejected(event)
        case instance_event.OUTCOME_UNKNOWN:
            return (
                f"The order got no clear answer ({event.reason}). It may have rented a machine all the same, "
                "so gpuherd looks for that before it orders again."
            )
        case instance_event.MACHINE_FOUND:
            return f"Took the machine {event.details.get('cloudInstanceId')}: {event.reason}."
        case instance_event.READY:
            return _usable(instance, took)
        case instance_event.FAILED:
            return _failed(event, instance)
        case instance_event.RELEASED:
            return _released(instance)
        case instance_event.DELETED if instance.last_cloud_id is None:
            return "Deleted; no machine was rented for it."
        case _:
            return _STATUSES.get(event.type) or sentence(event.reason or event.type)


_STATUSES = {
    instance_event.STATUS_EVENTS[Status.STARTING]: "The machine starts: it pulls its image and boots.",
    instance_event.STATUS_EVENTS[Status.RUNNING]: "The machine runs.",
    instance_event.STATUS_EVENTS[Status.HEALTH_CHECKING]: "The application is asked whether it is up.",
}


def _accepted(instance: Instance) -> str:
    wish = instance.wish
    mode = "spot" if wish.billing_mode is BillingMode.SPOT else "on demand"
    if wish.fallback_after_s is not None:
        mode = f"spot, after {wish.fallback_after_s} s also on demand"
    most = "" if wish.hourly_usd_max is None else f", for at most {_money(wish.hourly_usd_max)}"
    shown = [*wish.regions[:REGIONS_SHOWN_MAX], *(["…"] if len(wish.regions) > REGIONS_SHOWN_MAX else [])]
    where = f"in {', then '.join(shown)}" if shown else "in any region"
    return f"Accepted: {wish.gpu_num} × {' or '.join(wish.names)}, {mode}, {where}{most}."


def _chosen(details: Mapping[str, Any]) -> str:
    accepted, refused = details.get("accepted") or [{}], details.get("refused") or []
    best, total = accepted[0], details.get("acceptedTotal", len(accepted))
    others = details.get("refusedTotal", len(refused))
    name = best.get("productName") or best.get("productId")
    price = best.get("hourlyPrice")
    cost = f" for {_money(Decimal(price))}" if price else ""
    choice = "the only offer that fits" if total == 1 else f"the best of {total} offers that fit"
    rest = f"; {others} more {'does' if others == 1 else 'do'} not" if others else ""
    without = details.get("regionsWithoutOffer") or []
    passed = [f" {it.get('region')}: {it.get('reason')}." for it in without[:REGIONS_SHOWN_MAX]]
    return f"Chose {name} in {best.get('region')}{cost}, {choice}{rest}.{''.join(passed)}"


def _waiting(event: Event, instance: Instance) -> str:
    match event.details.get("for"):
        case WaitingFor.CLOUD:
            return f"The cloud cannot be asked ({_cause_text(event)}); gpuherd goes on as soon as it answers."
        case WaitingFor.CAPACITY:
            until = instance.created_at + timedelta(seconds=instance.wish.patience_s)
            if said := event.details.get("until"):
                # Of a start.
                until = datetime.fromisoformat(said)
            return f"{sentence(_cause_text(event))} It waits for one until {until:%Y-%m-%d %H:%M} UTC."
        case _:
            return sentence(event.reason)


def _requested_goal(event: Event) -> str | None:
    """Return what somebody asked for with this event, if it is a request."""
    return None if event.cause is None else REQUESTED_GOALS.get(event.cause.code)


def _cause_text(event: Event) -> str:
    """Return why, without what is waited for."""
    return event.reason if event.cause is None else event.cause.message


def _rejected(event: Event) -> str:
    code = event.details.get("code")
    if code == OutOfStock.code:
        return f"Sold out in {event.details.get('region')}: {sentence(event.reason)}"
    if code in TRANSIENT_CODES:
        return f"The cloud took no order ({event.reason}); surely nothing was rented, so it is tried again."
    return f"The cloud refused the order: {sentence(event.reason)}"


def _usable(instance: Instance, took: timedelta) -> str:
    ready = "It can be used" if instance.health_check is None else "The application answers: it can be used"
    return (
        f"{ready}, {duration_text(took)} after it was asked for."
        if took >= timedelta(seconds=1)
        else f"{ready}."
    )


def _failed(event: Event, instance: Instance) -> str:
    words = f"Given up ({event.details.get('code')}): {sentence(event.reason)}"
    if event.details.get("start"):
        return f"{words} The machine and its data stay."
    if instance.last_cloud_id is None or instance.ready_at is not None:
        return words
    keeps = instance.on_failure is OnFailure.KEEP
    return f"{words} {'The machine is kept.' if keeps else 'The machine is given back.'}"


def _released(instance: Instance) -> str:
    if instance.last_cloud_id is None:
        return "Nothing is left that could cost money."
    return "The machine is gone and costs nothing any more."


def _actor_text(actor: str) -> str:
    return {ADMIN_ID: "the admin key", "gpuherd": "gpuherd"}.get(actor, f"the key {actor}")


def _money(amount: Decimal) -> str:
    return f"{price_text(amount)} an hour"


def sentence(words: str) -> str:
    """Return a reason as a sentence of its own."""
    return f"{words[:1].upper()}{words[1:]}" + ("" if words.endswith((".", "!", "?")) else ".")


def duration_text(span: timedelta) -> str:
    """Say how long, to the second where that matters."""
    minutes, seconds = divmod(max(0, int(span.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _deduplicated(sentences: Iterable[Sentence]) -> list[Sentence]:
    """Return the sentences with each pair of choice and refusal told once that comes again and again."""
    told: list[Sentence] = []
    for one in sentences:
        told.append(one)
        if len(told) >= 4 and [it.text for it in told[-2:]] == [it.text for it in told[-4:-2]]:
            *_, first, second = told[:-2]
            told[-4:] = [_repeated(first, told[-2]), _repeated(second, told[-1])]
    return told


def _repeated(first: Sentence, last: Sentence) -> Sentence:
    return replace(first, times=first.times + 1, last_at=last.at)


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
