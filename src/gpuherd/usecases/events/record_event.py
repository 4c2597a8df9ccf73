"""Number events, and make the outbox entries (deliveries and their jobs) of the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_json

from gpuherd.contract.instance_models import InstanceRecord
from gpuherd.contract.money_models import (
    BalanceNotice,
    BudgetNotice,
    DriftNotice,
    PriceNotice,
)
from gpuherd.contract.service_models import OrphanNotice
from gpuherd.contract.webhook_models import (
    AccountEventBody,
    AccountEventData,
    BalanceEventBody,
    BalanceEventData,
    BudgetEventBody,
    BudgetEventData,
    DriftEventBody,
    DriftEventData,
    InstanceEventBody,
    InstanceEventData,
    PriceEventBody,
    PriceEventData,
)
from gpuherd.domain.egress_policy import redact_query
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_event import (
    ACCOUNT,
    ENDPOINT_WEBHOOK_TYPES,
    ORPHAN_DETECTED,
    Cause,
    Event,
    goes_to_instance_webhook,
)
from gpuherd.domain.instance.instance_state import settled_health
from gpuherd.domain.instance.operation import Operation, progress
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.domain.job import NewJob
from gpuherd.domain.webhooks.webhook_delivery import DELIVERY_ID_PREFIX, OUT_OF_ORDER_RETRY, Delivery
from gpuherd.domain.webhooks.webhook_endpoint import WebhookEndpoint
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import Change, EndedStatus
from gpuherd.ports.webhook_port import OutboxEntries
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.views.instance_view import describe


@dataclass(frozen=True)
class NewEvent:
    """An event before it has a number."""

    type: str
    reason: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    before: str = ""
    after: str = ""
    cause: Cause | None = None


class EventRecorder:
    """Makes the change that saves an instance, its events and their webhooks in one transaction.

    `endpoints` is called for each event, so it must answer from memory.
    """

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        job_factory: JobFactory,
        endpoints: Callable[[], Sequence[WebhookEndpoint]] = tuple,
    ):
        self._clock = clock
        self._ids = ids
        self._job_factory = job_factory
        self._endpoints = endpoints

    def change(
        self,
        instance: Instance,
        *new_events: NewEvent,
        attempt: Attempt | None = None,
        actor: str = "gpuherd",
    ) -> Change:
        """Return the change that saves `instance` with `new_events`."""
        now = self._clock.now()
        instance, operations = _with_progress(instance, now)
        health = settled_health(instance, now)
        status_since, ended_status = _status_times(instance, new_events, now)
        first = instance.sequence + 1
        sequence = instance.sequence + len(new_events)
        instance = replace(instance, health=health, status_since=status_since, sequence=sequence)
        events = tuple(
            Event(
                instance_id=instance.id,
                sequence=first + i,
                type=it.type,
                at=now,
                actor=actor,
                reason=it.reason,
                before=it.before,
                after=it.after,
                details=it.details,
                cause=it.cause,
            )
            for i, it in enumerate(new_events)
        )
        outbox = self._outbox_entries(self._instance_deliveries(events, instance))
        return Change(
            instance=instance,
            events=events,
            attempt=attempt,
            deliveries=outbox.deliveries,
            jobs=outbox.jobs,
            operations=operations,
            ended_status=ended_status,
        )

    def account_outbox_entries(self, event: Event) -> OutboxEntries:
        """Return the webhooks of an event that belongs to no instance; only endpoints receive it.

        The event must have its number, so the transaction that numbers it calls this.
        """
        event = replace(event, instance_id=ACCOUNT)
        body = _account_body(event)
        return self._outbox_entries(
            [self._delivery(event, it.delivery_url, body, it.id) for it in self._subscribed_endpoints(event)]
        )

    def _outbox_entries(self, deliveries: Sequence[Delivery]) -> OutboxEntries:
        jobs: list[NewJob] = []
        receivers: set[tuple[str | None, str]] = set()
        for it in deliveries:
            job, receiver = self._job_factory.delivery_job(it), (it.endpoint_id, it.url)
            # This delivery goes after the one before it, which wakes its job.
            jobs.append(replace(job, delay=OUT_OF_ORDER_RETRY) if receiver in receivers else job)
            receivers.add(receiver)
        return OutboxEntries(tuple(deliveries), tuple(jobs))

    def _instance_deliveries(self, events: Sequence[Event], instance: Instance) -> list[Delivery]:
        audiences = [
            (event, goes_to_instance_webhook(event, instance), self._subscribed_endpoints(event))
            for event in events
        ]
        heard = [it for it in audiences if it[1] or it[2]]
        if not heard:
            return []
        # Described once for all receivers.
        shown = describe(instance)
        return [it for audience in heard for it in self._event_deliveries(*audience, instance, shown)]

    def _event_deliveries(
        self,
        event: Event,
        own: bool,
        wanted: Sequence[WebhookEndpoint],
        instance: Instance,
        shown: InstanceRecord,
    ) -> list[Delivery]:
        url = instance.webhook_url
        data = InstanceEventData.extending(
            shown,
            # The instance alone does not name the machine.
            orphan=OrphanNotice.model_validate(event.details) if event.type == ORPHAN_DETECTED else None,
            sequence=event.sequence,
        )
        deliveries = []
        if own:
            deliveries.append(self._delivery(event, url or "", _body(event, data), owner=instance.owner))
        if wanted:
            # The query of an address may hold a secret of its instance.
            body = _body(event, InstanceEventData.extending(data, webhook_url=url and redact_query(url)))
            deliveries += [self._delivery(event, it.delivery_url, body, it.id) for it in wanted]
        return deliveries

    def _subscribed_endpoints(self, event: Event) -> list[WebhookEndpoint]:
        if event.type not in ENDPOINT_WEBHOOK_TYPES:
            return []
        return [it for it in self._endpoints() if it.wants(event.type)]

    def _delivery(
        self, event: Event, url: str, body: bytes, endpoint_id: str | None = None, owner: str | None = None
    ) -> Delivery:
        return Delivery(
            id=self._ids.new(DELIVERY_ID_PREFIX),
            instance_id=event.instance_id,
            sequence=event.sequence,
            type=event.type,
            url=url,
            body=body,
            created_at=event.at,
            endpoint_id=endpoint_id,
            owner=owner,
        )


def _body(event: Event, data: InstanceEventData) -> bytes:
    return to_json(InstanceEventBody(type=event.type, timestamp=event.at, data=data))


def _account_body(event: Event) -> bytes:
    more: Any = {"reason": event.reason, "sequence": event.sequence}
    about: Any = {"type": event.type, "timestamp": event.at}
    match event.type:
        case instance_event.COSTS_DRIFT:
            drift = DriftEventData.extending(DriftNotice.model_validate(event.details), **more)
            return to_json(DriftEventBody(data=drift, **about))
        case instance_event.PRICE_CHANGED:
            price = PriceEventData.extending(PriceNotice.model_validate(event.details), **more)
            return to_json(PriceEventBody(data=price, **about))
        case instance_event.LOW_BALANCE:
            balance = BalanceEventData.extending(BalanceNotice.model_validate(event.details), **more)
            return to_json(BalanceEventBody(data=balance, **about))
        case instance_event.BUDGET_WARNING | instance_event.BUDGET_EXHAUSTED | instance_event.BUDGET_RESET:
            budget = BudgetEventData.extending(BudgetNotice.model_validate(event.details), **more)
            return to_json(BudgetEventBody(data=budget, **about))
    data = AccountEventData.extending(OrphanNotice.model_validate(event.details), instance_id=None, **more)
    return to_json(AccountEventBody(data=data, **about))


def _with_progress(instance: Instance, now: datetime) -> tuple[Instance, tuple[Operation, ...]]:
    """Return the instance with the progress of its operation, and the operation if it has moved."""
    operation = instance.operation
    if operation is None or not operation.is_running:
        return instance, ()
    moved = progress(operation, instance.status.value, instance.usable, instance.last_error, now)
    return replace(instance, operation=moved), (moved,)


def _status_times(
    instance: Instance, new_events: Sequence[NewEvent], now: datetime
) -> tuple[datetime | None, EndedStatus | None]:
    """Return since when the instance has its status, and the status that ends if one does."""
    since = instance.status_since
    moved = next((it for it in new_events if it.after and it.after != it.before), None)
    if moved is None:
        return since, None
    # The wall clock may have been set back meanwhile.
    ended = EndedStatus(moved.before, max(now - since, timedelta(0))) if moved.before and since else None
    return now, ended
