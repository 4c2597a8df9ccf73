"""Writes history: numbers the events, makes the webhooks that tell of them, and the jobs that send those."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuherd.clock import Clock, Ids
from gpuherd.domain.attempt import Attempt
from gpuherd.domain.copying import replace
from gpuherd.domain.delivery import Delivery
from gpuherd.domain.events import ACCOUNT, ORPHAN_DETECTED, WEBHOOK_TYPES, Event, is_told
from gpuherd.domain.instance import Instance
from gpuherd.domain.operation import Operation, progress
from gpuherd.domain.redaction import without_query
from gpuherd.domain.webhook_endpoint import WebhookEndpoint
from gpuherd.ports.store import Change, Told
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
    """Turns "this happened" into a change that is written in one transaction with it.

    `endpoints` is asked at each event, so it must know its answer by heart.
    """

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        activities: Activities,
        endpoints: Callable[[], Sequence[WebhookEndpoint]] = tuple,
    ):
        self._clock = clock
        self._ids = ids
        self._activities = activities
        self._endpoints = endpoints

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
        told = self._told([it for event in events for it in self._of_instance(event, instance)])
        return Change(
            instance=instance,
            events=events,
            attempt=attempt,
            deliveries=told.deliveries,
            jobs=told.jobs,
            operations=operations,
        )

    def tell_account(self, event: Event) -> Told:
        """Return the webhooks of an event that belongs to no instance; endpoints alone hear of it.

        Its details are the data. It must have its number already, so ask in the transaction that numbers it.
        """
        event = replace(event, instance_id=ACCOUNT)
        body = _body(event, {"instanceId": None, "reason": event.reason, **event.details})
        return self._told([self._delivery(event, it.url, body, it.id) for it in self._wanted(event)])

    def _told(self, deliveries: Sequence[Delivery]) -> Told:
        return Told(tuple(deliveries), tuple(self._activities.sending(it) for it in deliveries))

    def _of_instance(self, event: Event, instance: Instance) -> list[Delivery]:
        url, wanted = instance.webhook_url, self._wanted(event)
        own = is_told(event, instance)
        if not own and not wanted:
            return []
        data = describe(instance)
        if event.type == ORPHAN_DETECTED:
            # The instance alone would not tell which machine it is about.
            data["orphan"] = event.details
        deliveries = [self._delivery(event, url or "", _body(event, data))] if own else []
        if wanted:
            # The query of an address may be a secret between that address and its instance.
            body = _body(event, {**data, "webhookUrl": url and without_query(url)})
            deliveries += [self._delivery(event, it.url, body, it.id) for it in wanted]
        return deliveries

    def _wanted(self, event: Event) -> list[WebhookEndpoint]:
        if event.type not in WEBHOOK_TYPES:
            return []
        return [it for it in self._endpoints() if it.wants(event.type)]

    def _delivery(self, event: Event, url: str, body: bytes, endpoint_id: str | None = None) -> Delivery:
        return Delivery(
            id=self._ids.new("msg_"),
            instance_id=event.instance_id,
            sequence=event.sequence,
            type=event.type,
            url=url,
            body=body,
            created_at=event.at,
            endpoint_id=endpoint_id,
        )


def _body(event: Event, data: dict[str, Any]) -> bytes:
    whole = {"type": event.type, "timestamp": iso(event.at), "data": {**data, "sequence": event.sequence}}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()


def _with_progress(instance: Instance, now: datetime) -> tuple[Instance, tuple[Operation, ...]]:
    """Return the instance with its operation as far as its status says, and that operation if it moved."""
    operation = instance.operation
    if operation is None or not operation.is_running:
        return instance, ()
    moved = progress(operation, instance.status.value, instance.usable, instance.last_error, now)
    return replace(instance, operation=moved), (moved,)
