"""The kinds of jobs, and the factory of the job that an instance or a delivery needs now."""

from __future__ import annotations

from gpuherd.domain.instance.instance import Goal, Instance
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.domain.instance.instance_state import is_starting_again
from gpuherd.domain.job import (
    JOB_ID_PREFIX,
    Job,
    NewJob,
    Priority,
    delivery_key,
)
from gpuherd.domain.webhooks.webhook_delivery import Delivery
from gpuherd.ports.clock_port import Ids
from gpuherd.usecases.views.instance_view import wish_json

CREATE_INSTANCE = "create_instance"
MONITOR_INSTANCE = "monitor_instance"
MONITOR_STARTUP = "monitor_startup"
CHECK_HEALTH = "check_health"
SEND_WEBHOOK = "send_webhook"
RECONCILE_KINDS = (CREATE_INSTANCE, MONITOR_INSTANCE, MONITOR_STARTUP)
WEBHOOK_TRIES_MAX = 10


class JobFactory:
    """Makes jobs. Each job key allows one unfinished job, so a second request does no harm."""

    def __init__(self, ids: Ids, max_attempts: int):
        self._ids = ids
        self._max_attempts = max_attempts

    def reconcile_job(self, instance: Instance, registry_auth_id: str | None = None) -> NewJob:
        """Return the job that reconciles this instance; `registry_auth_id` is that of its image, if known."""
        kind = reconcile_job_kind(instance)
        return NewJob(
            id=self._ids.new(JOB_ID_PREFIX),
            kind=kind,
            key=f"turn:{instance.id}",
            payload=create_payload(instance, registry_auth_id)
            if kind == CREATE_INSTANCE
            else {"instanceId": instance.id},
            instance_id=instance.id,
            priority=Priority.HIGH if kind == CREATE_INSTANCE or _is_ending(instance) else Priority.NORMAL,
            max_attempts=self._max_attempts,
        )

    def health_job(self, instance: Instance) -> NewJob:
        """Return the job that checks the health of this instance, beside the job that reconciles it."""
        return NewJob(
            id=self._ids.new(JOB_ID_PREFIX),
            kind=CHECK_HEALTH,
            key=f"health:{instance.id}",
            payload={"instanceId": instance.id},
            instance_id=instance.id,
            max_attempts=self._max_attempts,
        )

    def requeue_of(self, job: Job) -> NewJob:
        """Return a job like this one, to wake it."""
        return NewJob(
            id=self._ids.new(JOB_ID_PREFIX),
            kind=job.kind,
            key=f"{'health' if job.kind == CHECK_HEALTH else 'turn'}:{job.instance_id}",
            payload=job.payload,
            instance_id=job.instance_id,
            priority=job.priority,
            max_attempts=job.max_attempts,
        )

    def delivery_job(self, delivery: Delivery) -> NewJob:
        """Return the job that sends this webhook."""
        instance_id = None if delivery.instance_id == ACCOUNT else delivery.instance_id
        return NewJob(
            id=self._ids.new(JOB_ID_PREFIX),
            kind=SEND_WEBHOOK,
            key=delivery_key(delivery.id),
            payload={"deliveryId": delivery.id, "instanceId": instance_id, "event": delivery.type},
            instance_id=instance_id,
            priority=Priority.NORMAL,
            max_attempts=WEBHOOK_TRIES_MAX,
        )


def reconcile_job_kind(instance: Instance) -> str:
    """Return the kind of the passes of an instance: renting, starting again, or watching."""
    if is_starting_again(instance):
        return MONITOR_STARTUP
    renting = instance.cloud_id is None and not instance.settled and instance.goal is Goal.RUNNING
    return CREATE_INSTANCE if renting else MONITOR_INSTANCE


def _is_ending(instance: Instance) -> bool:
    """Return True if a machine is to be stopped or deleted, which costs money until then."""
    return instance.goal is not Goal.RUNNING or instance.releasing


def create_payload(instance: Instance, registry_auth_id: str | None = None) -> dict[str, object]:
    """Return the payload of a create. Only the template may name the credential of its image."""
    payload: dict[str, object] = {
        "instanceId": instance.id,
        "name": instance.name,
        "region": next(iter(instance.wish.regions), None),
        **wish_json(instance.wish),
        "webhookUrl": instance.webhook_url,
    }
    if registry_auth_id:
        payload["registryAuthId"] = registry_auth_id
    return payload
