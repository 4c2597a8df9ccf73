"""Instances, and what happened to them, also as events of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuherd.client.models.base import ApiModel


@dataclass(frozen=True, kw_only=True)
class Failure(ApiModel):
    """What went wrong, for programs and for people."""

    code: str
    message: str = ""
    at: datetime | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class PortMapping(ApiModel):
    """A port of the machine, and where the world reaches it."""

    port: int
    endpoint: str = ""
    type: str = ""


@dataclass(frozen=True, kw_only=True)
class ConnectionDetails(ApiModel):
    """Ways in. They may hold tokens, so they stay out of every repr."""

    ssh: str | None = field(default=None, repr=False)
    jupyter: str | None = field(default=None, repr=False)
    web_terminal: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class EndpointHealth(ApiModel):
    """The last look at one endpoint."""

    port: int
    endpoint: str | None = None
    status: str = ""
    category: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class HealthReport(ApiModel):
    """What the health check has found so far."""

    status: str
    started_at: datetime | None = None
    completed_at: datetime | None = None
    endpoints: tuple[EndpointHealth, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Instance(ApiModel):
    """A rented GPU machine, as the server remembers it. Prices are USD an hour for the whole instance."""

    id: str
    name: str
    status: str
    usable: bool = False
    status_reason: str | None = None
    goal: str | None = None
    cloud_instance_id: str | None = None
    product_id: str | None = None
    product_name: str | None = None
    region: str | None = None
    gpu_num: int | None = None
    rootfs_size: int | None = None
    billing_mode: str | None = None
    hourly_price: Decimal | None = None
    gpu_hourly_price: Decimal | None = None
    max_hourly_price: Decimal | None = None
    template_id: str | None = None
    image_url: str | None = None
    port_mappings: tuple[PortMapping, ...] = ()
    connection: ConnectionDetails | None = field(default=None, metadata={"key": "connectionDetails"})
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    webhook_url: str | None = field(default=None, repr=False)
    health_check: HealthReport | None = None
    operation_id: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ready_at: datetime | None = None
    stopped_at: datetime | None = None
    spot_reclaim_at: datetime | None = None
    estimated_ready_time: datetime | None = None
    last_error: Failure | None = None
    stale: bool = False

    @property
    def ssh(self) -> str | None:
        """The command that logs in, once there is one."""
        return self.connection.ssh if self.connection else None

    def endpoint(self, port: int) -> str | None:
        """Return where a port of the machine is reached, if it is mapped."""
        return next((it.endpoint for it in self.port_mappings if it.port == port and it.endpoint), None)


@dataclass(frozen=True, kw_only=True)
class Event(ApiModel):
    """One fact of an instance's history."""

    sequence: int
    type: str
    at: datetime
    actor: str | None = None
    reason: str | None = None
    before: str | None = None
    after: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class Attempt(ApiModel):
    """One offer that was tried, and what became of it. The price is for one GPU."""

    n: int
    state: str
    tag: str | None = None
    product_id: str | None = None
    product_name: str | None = None
    region: str | None = None
    gpu_hourly_price: Decimal | None = None
    sent_at: datetime | None = None
    closed_at: datetime | None = None
    cloud_instance_id: str | None = None
    error: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Accepted(ApiModel):
    """An order to start, stop or delete that the server has written down and will carry out."""

    operation_id: str
    instance_id: str
    name: str = ""
    status: str = ""
    goal: str | None = None
    message: str | None = None
    estimated_ready_time: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class OperationPhase(ApiModel):
    """A stage of an operation, and when it was reached."""

    phase: str
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Operation(ApiModel):
    """A start, stop or delete: running, succeeded, failed or superseded."""

    operation_id: str
    instance_id: str
    type: str
    status: str
    requested_at: datetime | None = None
    ended_at: datetime | None = None
    phases: tuple[OperationPhase, ...] = ()
    error: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Job(ApiModel):
    """Work in the background."""

    id: str
    type: str
    status: str
    priority: str | None = None
    attempts: int = 0
    max_attempts: int | None = None
    instance_id: str | None = None
    created_at: datetime | None = None
    processed_at: datetime | None = None
    completed_at: datetime | None = None
    next_retry_at: datetime | None = None
    error: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, kw_only=True)
class JobStats(ApiModel):
    """How many jobs there are, by status and by type."""

    total: int
    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    by_type: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class LiveEvent(Event):
    """One fact, with its place among all. Without an instance where it concerns the account as a whole."""

    id: int
    instance_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class EventPage(ApiModel):
    """Events that have happened; `last_event_id` is where to go on from."""

    events: tuple[LiveEvent, ...]
    last_event_id: str
