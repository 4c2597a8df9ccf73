"""Writes history: numbers the events, makes the webhooks that tell of them, and the jobs that send those."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gpuherd.clock import Clock, Ids
from gpuherd.domain.attempt import Attempt
from gpuherd.domain.delivery import Delivery
from gpuherd.domain.events import Event, is_told
from gpuherd.domain.instance import Instance
from gpuherd.domain.operation import Operation, progress
from gpuherd.ports.store import Change
from gpuherd.usecases.activity import Activities
from gpuherd.usecases.describe import describe, iso


@dataclass(frozen=True)
class News:
    """Something that happened, before it has a number."""

    type: str
    reason: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    before: str = ""
    after: str = ""


class Chronicle:
    """Turns "this happened" into a change that is written in one transaction with it."""

    def __init__(self, clock: Clock, ids: Ids, activities: Activities):
        self._clock = clock
        self._ids = ids
        self._activities = activities

    def change(
        self, instance: Instance, *news: News, attempt: Attempt | None = None, actor: str = "gpuherd"
    ) -> Change:
        """Return the change that makes `instance` true and tells `news` of it."""
        now = self._clock.now()
        instance, operations = _with_progress(instance, now)
        instance = replace(instance, sequence=instance.sequence + len(news))
        first = instance.sequence - len(news) + 1
        events = tuple(
            Event(instance.id, first + i, it.type, now, actor, it.reason, it.before, it.after, it.details)
            for i, it in enumerate(news)
        )
        deliveries = tuple(self._delivery(event, instance) for event in events if is_told(event, instance))
        return Change(
            instance=instance,
            events=events,
            attempt=attempt,
            deliveries=deliveries,
            jobs=tuple(self._activities.sending(it) for it in deliveries),
            operations=operations,
        )

    def _delivery(self, event: Event, instance: Instance) -> Delivery:
        data = {**describe(instance), "sequence": event.sequence}
        body = {"type": event.type, "timestamp": iso(event.at), "data": data}
        return Delivery(
            id=self._ids.new("msg_"),
            instance_id=instance.id,
            sequence=event.sequence,
            type=event.type,
            url=instance.webhook_url or "",
            body=json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(),
            created_at=event.at,
        )


def _with_progress(instance: Instance, now: datetime) -> tuple[Instance, tuple[Operation, ...]]:
    """Return the instance with its operation as far as its status says, and that operation if it moved."""
    operation = instance.operation
    if operation is None or not operation.is_running:
        return instance, ()
    moved = progress(operation, instance.status.value, instance.usable, instance.last_error, now)
    return replace(instance, operation=moved), (moved,)
