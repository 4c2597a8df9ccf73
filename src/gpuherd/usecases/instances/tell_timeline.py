"""The timeline of an instance in sentences."""

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
    OutOfStock,
    RateLimited,
)
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Instance, Status, WaitingFor
from gpuherd.domain.instance.instance_event import Event
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
    """Return all that happened. Equal events in a row become one sentence."""
    return tuple(_deduplicated(list(_sentences(instance, events, attempts))))


def _sentences(
    instance: Instance, events: Sequence[Event], attempts: Sequence[Attempt]
) -> Iterator[Sentence]:
    begun_at = instance.created_at
    found = {it.details.get("attempt") for it in events if it.type == instance_event.MACHINE_FOUND}
    # The end of an attempt follows the sentence about its plan.
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
