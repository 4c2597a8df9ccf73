"""Explain an instance: offers weighed, create calls, waits, phases and the timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuherd.contract import plan_models
from gpuherd.domain.cloud.capacity_line import PlaceInLine
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Instance, WaitingFor
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.instance_state import awaits_health, given_up_at
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.domain.job import JobStatus
from gpuherd.ports.job_port import JobQuery
from gpuherd.usecases.instances.explain_waiting import WaitExplanation, advice_for, explain_waiting
from gpuherd.usecases.instances.tell_timeline import Sentence, tell_timeline
from gpuherd.usecases.service.make_jobs import CHECK_HEALTH, reconcile_job_kind
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.instance_view import describe_failure, describe_health, describe_place


async def explain_instance(services: Services, instance: Instance) -> plan_models.Why:
    """Return what was considered, tried and waited for, and the timeline."""
    instances = services.stores.instances
    events, attempts = await instances.events(instance.id), await instances.attempts(instance.id)
    waiting = explain_waiting(instance, events, attempts)
    place = None if waiting is None else await services.capacity_line.place_of(instance)
    next_try_at = None if waiting is None or place else await _next_try_at(services, instance)
    return plan_models.Why(
        instance_id=instance.id,
        name=instance.name,
        status=instance.status.value,
        status_reason=instance.reason,
        usable=instance.usable,
        last_error=describe_failure(instance.last_error),
        advice=advice_for(instance, waiting),
        story=tuple(map(_describe_sentence, tell_timeline(instance, events, attempts))),
        waits=None if waiting is None else _describe_wait(waiting, instance, next_try_at, place),
        phases=phases(events),
        considered=considered(events),
        attempts=tuple(map(describe_attempt, attempts)),
        health=describe_health(instance.health_check, instance.health) if instance.health_check else None,
        lineage=describe_lineage(await find_lineage(services, instance)),
    )


async def find_lineage(services: Services, instance: Instance) -> tuple[Instance, ...]:
    """Return all members of the lineage; none for an instance that was never replaced."""
    return (
        () if instance.chain is None else await services.stores.instances.of_lineage(instance.chain.lineage)
    )


async def _next_try_at(services: Services, instance: Instance) -> datetime | None:
    """Return when the next pass over the instance is due; None while one runs."""
    # By its kind: there may be more webhook jobs than a page holds.
    kind = CHECK_HEALTH if awaits_health(instance) else reconcile_job_kind(instance)
    query = JobQuery(kind=kind, instance_id=instance.id, status=JobStatus.PENDING, limit=1)
    return next((job.next_retry_at for job in (await services.stores.jobs.page(query)).jobs), None)


def describe_lineage(members: Sequence[Instance]) -> tuple[plan_models.LineageMember, ...]:
    """Return the instances of a lineage, each with why it took over."""
    heirs = [it.chain.heir for it in members if it.chain is not None and it.chain.heir is not None]
    reasons = {heir.id: heir.why.value for heir in heirs}
    return tuple(
        plan_models.LineageMember(
            instance_id=it.id,
            link=it.chain.link,
            status=it.status.value,
            usable=it.usable,
            region=it.rental.region if it.rental else None,
            made_for=reasons.get(it.id),
            created_at=it.created_at,
            ready_at=it.ready_at,
            stopped_at=it.stopped_at,
        )
        for it in members
        if it.chain is not None
    )


def phases(events: Sequence[Event]) -> tuple[plan_models.StatusPhase, ...]:
    """Return each status with the time that it lasted; None for the last one, which lasts."""
    begun = [it for it in events if it.after]
    ends = [it.at for it in begun[1:]] + [None]
    return tuple(
        plan_models.StatusPhase(
            status=it.after, at=it.at, seconds=None if end is None else (end - it.at).total_seconds()
        )
        for it, end in zip(begun, ends, strict=True)
    )


def considered(events: Sequence[Event]) -> tuple[plan_models.Considered, ...]:
    """Return each round in which offers were weighed; equal rounds in a row are one, with their number."""
    rounds: list[plan_models.Considered] = []
    for event in events:
        if not _is_round(event):
            continue
        weighed = _weighed(event)
        last = rounds[-1] if rounds else None
        if last and _outcome(last) == _outcome(weighed):
            rounds[-1] = last.model_copy(update={"rounds": last.rounds + 1, "last_at": event.at})
        else:
            rounds.append(weighed)
    return tuple(rounds)


def _outcome(it: plan_models.Considered) -> tuple[object, ...]:
    return it.ranked, it.refused, it.regions_without_offer


def _is_round(event: Event) -> bool:
    waits = event.type == instance_event.WAITING and event.details.get("for") == WaitingFor.CAPACITY
    return event.type == instance_event.PLANNED or waits


def _weighed(event: Event) -> plan_models.Considered:
    ranked, refused = event.details.get("accepted") or [], event.details.get("refused") or []
    return plan_models.Considered(
        at=event.at,
        rounds=1,
        last_at=event.at,
        ranked=tuple(
            plan_models.RankedOffer.model_validate({"rank": rank, **offer})
            for rank, offer in enumerate(ranked, start=1)
        ),
        refused=tuple(map(_rejected, refused)),
        # Of each, only the first are on record.
        ranked_total=event.details.get("acceptedTotal", len(ranked)),
        refused_total=event.details.get("refusedTotal", len(refused)),
        regions_without_offer=tuple(
            map(plan_models.RegionWithoutOffer.model_validate, event.details.get("regionsWithoutOffer") or [])
        ),
    )


def _rejected(offer: Mapping[str, Any]) -> plan_models.RejectedOffer | plan_models.UnpricedOffer:
    return (
        plan_models.RejectedOffer.model_validate(offer)
        if "hourlyPrice" in offer
        else plan_models.UnpricedOffer.model_validate(offer)
    )


def describe_attempt(it: Attempt) -> plan_models.Attempt:
    """Return one create call and what became of it."""
    return plan_models.Attempt(
        n=it.n,
        tag=it.tag,
        state=it.state.value,
        product_id=it.product_id,
        product_name=it.product_name,
        region=it.region,
        gpu_hourly_price=it.gpu_hourly_usd,
        sent_at=it.sent_at,
        closed_at=it.closed_at,
        cloud_instance_id=it.cloud_id,
        error=plan_models.AttemptError(code=it.error_code, message=it.error) if it.error_code else None,
    )


def _describe_sentence(it: Sentence) -> plan_models.Sentence:
    return plan_models.Sentence(at=it.at, text=it.text, times=it.times, last_at=it.last_at)


def _describe_wait(
    it: WaitExplanation, instance: Instance, next_try_at: datetime | None, place: PlaceInLine | None
) -> plan_models.Waiting:
    in_line = describe_place(place)
    if place is None:
        in_line["next_try_at"] = next_try_at
    return plan_models.Waiting(
        what=it.what,
        sentence=it.sentence,
        since=it.since,
        until=it.until,
        deadline=given_up_at(instance),
        **in_line,
    )
