"""Tell why: the whole record of how an instance came to be what it is, or why it is not ready yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuherd.domain.instance import events as kinds
from gpuherd.domain.instance.events import Event
from gpuherd.domain.instance.health import describe_health
from gpuherd.domain.instance.instance import Instance
from gpuherd.jobs.job import JobStatus
from gpuherd.ports.instances import Instances
from gpuherd.ports.jobs import JobQuery, Jobs
from gpuherd.usecases.describe.instance import describe_attempt, describe_failure, iso
from gpuherd.usecases.explain.record import WaitingFor
from gpuherd.usecases.explain.story import Sentence, story_of
from gpuherd.usecases.explain.waiting import WaitExplanation, advice_for, explain_waiting
from gpuherd.usecases.jobs.kinds import reconcile_job_kind


@dataclass(frozen=True)
class ExplainInstance:
    """The use case."""

    instances: Instances
    jobs: Jobs

    async def __call__(self, it: Instance) -> dict[str, Any]:
        """Return everything that was considered, tried and waited for, and the story of it."""
        events = await self.instances.events(it.id)
        attempts = await self.instances.attempts(it.id)
        waiting = explain_waiting(it, events, attempts)
        next_try_at = None if waiting is None else await self._next_try_at(it)
        return {
            "instanceId": it.id,
            "name": it.name,
            "status": it.status.value,
            "statusReason": it.reason,
            "usable": it.usable,
            "lastError": describe_failure(it.last_error),
            "advice": advice_for(it, waiting),
            "story": [_describe_sentence(one) for one in story_of(it, events, attempts)],
            "waits": None if waiting is None else _describe_wait(waiting, it, next_try_at),
            "phases": phases(events),
            "considered": considered(events),
            "attempts": [describe_attempt(one) for one in attempts],
            "health": None if it.health_check is None else describe_health(it.health_check, it.health),
        }

    async def _next_try_at(self, it: Instance) -> datetime | None:
        """Return when the instance's next turn is; None while one is under way."""
        # By its kind: there may be more webhooks waiting than a page holds.
        turns = JobQuery(kind=reconcile_job_kind(it), instance_id=it.id, status=JobStatus.PENDING, limit=1)
        return next((job.next_retry_at for job in (await self.jobs.page(turns)).jobs), None)


def phases(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return each status with the time that it lasted; None for the last one, which lasts."""
    begun = [it for it in events if it.after]
    ends = [it.at for it in begun[1:]] + [None]
    return [
        {
            "status": it.after,
            "at": iso(it.at),
            "seconds": None if end is None else (end - it.at).total_seconds(),
        }
        for it, end in zip(begun, ends, strict=True)
    ]


def considered(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return each round in which offers were weighed; equal rounds in a row are one, with their number."""
    rounds: list[dict[str, Any]] = []
    for event in events:
        if not _is_round(event):
            continue
        weighed = _weighed(event)
        if rounds and all(rounds[-1][key] == weighed[key] for key in ("ranked", "refused")):
            rounds[-1] |= {"rounds": rounds[-1]["rounds"] + 1, "lastAt": iso(event.at)}
        else:
            rounds.append({"at": iso(event.at), "rounds": 1, "lastAt": iso(event.at), **weighed})
    return rounds


def _is_round(event: Event) -> bool:
    waits = event.type == kinds.WAITING and event.details.get("for") == WaitingFor.CAPACITY
    return event.type == kinds.PLANNED or waits


def _weighed(event: Event) -> dict[str, Any]:
    ranked, refused = event.details.get("accepted") or [], event.details.get("refused") or []
    return {
        "ranked": [{"rank": rank, **offer} for rank, offer in enumerate(ranked, start=1)],
        "refused": refused,
        # Of each, only the first are on record.
        "rankedTotal": event.details.get("acceptedTotal", len(ranked)),
        "refusedTotal": event.details.get("refusedTotal", len(refused)),
    }


def _describe_sentence(it: Sentence) -> dict[str, Any]:
    return {"at": iso(it.at), "text": it.text, "times": it.times, "lastAt": iso(it.last_at)}


def _describe_wait(it: WaitExplanation, instance: Instance, next_try_at: datetime | None) -> dict[str, Any]:
    return {
        "for": it.what,
        "sentence": it.sentence,
        "since": iso(it.since),
        "nextTryAt": iso(next_try_at),
        "until": iso(it.until),
        "deadline": iso(instance.deadline),
    }
