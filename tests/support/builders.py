"""Domain objects for tests: sensible defaults, and only what a test is about is said in it."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine, Witness
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    Goal,
    Instance,
    Rental,
    Status,
)
from gpuherd.domain.instance.instance_event import CREATED, Event
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState, Tag, cloud_name
from gpuherd.domain.job import NewJob, Priority
from gpuherd.domain.webhooks.webhook_delivery import Delivery
from tests.support.fake_clock import START

INSTALLATION = "0a1b2c3d"
PRODUCT = "RTX 4090 24GB"


def instance_id(n: int) -> str:
    """Return the id of the n-th instance: like real ones it sorts by age."""
    return f"{ID_PREFIX}{n:026d}"


def an_instance(n: int = 1, **changes: Any) -> Instance:
    """Return an instance that was accepted just now."""
    created_at: datetime = changes.pop("created_at", START)
    fields: dict[str, Any] = {
        "id": instance_id(n),
        "name": f"job-{n}",
        "wish": LaunchSpec(PRODUCT, "101"),
        "goal": Goal.RUNNING,
        "status": Status.CREATING,
        "created_at": created_at,
        "deadline": created_at + timedelta(minutes=20),
        "estimated_ready_at": created_at + timedelta(minutes=3),
    }
    return Instance(**{**fields, **changes})


def a_running_instance(n: int = 1, **changes: Any) -> Instance:
    """Return an instance that is in use, on the machine `machine-<n>`, with nothing left to do."""
    fields: dict[str, Any] = {
        "status": Status.RUNNING,
        "cloud_id": f"machine-{n}",
        "rental": Rental("prod-1", PRODUCT, "CN-HK-01", "cluster-hk", Decimal("0.35"), "image:1"),
        "ready_at": START,
        "settled": True,
    }
    return an_instance(n, **{**fields, **changes})


def a_tag(n: int = 1, attempt: int = 1) -> Tag:
    """Return the tag of one attempt of the n-th instance."""
    return Tag(INSTALLATION, instance_id(n).removeprefix(ID_PREFIX), attempt)


def an_attempt(n: int = 1, number: int = 1, **changes: Any) -> Attempt:
    """Return a create call of the n-th instance whose outcome nobody knows yet."""
    fields: dict[str, Any] = {
        "instance_id": instance_id(n),
        "n": number,
        "tag": str(a_tag(n, number)),
        "state": AttemptState.SENT,
        "product_id": "prod-1",
        "product_name": PRODUCT,
        "region": "CN-HK-01",
        "cluster_id": "cluster-hk",
        "gpu_hourly_usd": Decimal("0.35"),
        "sent_at": START,
        "boot_id": "boot-1",
    }
    return Attempt(**{**fields, **changes})


def an_event(n: int = 1, sequence: int = 1, **changes: Any) -> Event:
    """Return an event of the n-th instance."""
    fields: dict[str, Any] = {"type": CREATED, "at": START}
    return Event(instance_id(n), sequence, **{**fields, **changes})


def a_delivery(n: int = 1, sequence: int = 1, **changes: Any) -> Delivery:
    """Return a webhook of the n-th instance that nobody has tried to send."""
    fields: dict[str, Any] = {
        "id": f"msg_{n:05d}_{sequence:05d}",
        "instance_id": instance_id(n),
        "sequence": sequence,
        "type": CREATED,
        "url": "https://example.com/hook",
        "body": b'{"type":"instance.created"}',
        "created_at": START,
    }
    return Delivery(**{**fields, **changes})


def a_machine(n: int = 1, **changes: Any) -> Machine:
    """Return the machine `machine-<n>`, running and without a tag."""
    fields: dict[str, Any] = {
        "cloud_id": f"machine-{n}",
        "name": f"somebody-{n}",
        "phase": Phase.RUNNING,
        "raw_status": "running",
    }
    return Machine(**{**fields, **changes})


def a_tagged_machine(n: int = 1, attempt: int = 1, **changes: Any) -> Machine:
    """Return the machine that a create call of the n-th instance made."""
    return a_machine(n, **{"name": cloud_name(f"job-{n}", a_tag(n, attempt)), **changes})


def a_sighting(machine: Machine, **changes: Any) -> ObservedMachine:
    """Return that a machine was seen, once."""
    fields: dict[str, Any] = {"first_seen_at": START, "changed_at": START}
    return ObservedMachine(machine, **{**fields, **changes})


def a_list(after: timedelta = timedelta(0), **changes: Any) -> ListRecord:
    """Return the record of a list that was made so long after the start, and took a second."""
    begun = START + after
    fields: dict[str, Any] = {
        "started_at": begun,
        "finished_at": begun + timedelta(seconds=1),
        "complete": True,
        "witness": Witness.SEEN,
        "machines": 1,
    }
    return ListRecord(**{**fields, **changes})


def a_reconcile_job(n: int = 1, name: str = "", **changes: Any) -> NewJob:
    """Return the job that moves the n-th instance; with a `name` it is another one under the same key."""
    fields: dict[str, Any] = {
        "id": f"job_{n:05d}{name}",
        "kind": "create_instance",
        "key": f"turn:{instance_id(n)}",
        "payload": {"instanceId": instance_id(n)},
        "instance_id": instance_id(n),
        "priority": Priority.HIGH,
    }
    return NewJob(**{**fields, **changes})


def a_sending_job(delivery: Delivery, name: str = "", **changes: Any) -> NewJob:
    """Return the job that sends a webhook."""
    fields: dict[str, Any] = {
        "id": f"job_{delivery.id}{name}",
        "kind": "send_webhook",
        "key": f"delivery:{delivery.id}",
        "payload": {"deliveryId": delivery.id},
        "instance_id": delivery.instance_id,
        "max_attempts": 10,
    }
    return NewJob(**{**fields, **changes})
