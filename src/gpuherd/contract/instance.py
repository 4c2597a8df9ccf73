"""Instances, alone and merged with the cloud's machines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from gpuherd.contract.codec.model import Model, hidden, on_wire_as
from gpuherd.contract.codec.values import OneOf, Url

Status = Annotated[
    str,
    OneOf(
        (
            *("creating", "starting", "running", "health_checking", "ready", "stopping"),
            *("exited", "migrating", "deleting", "deleted", "failed"),
        )
    ),
]
Goal = Annotated[str, OneOf(("running", "stopped", "deleted"))]
BillingMode = Annotated[str, OneOf(("spot", "onDemand"))]
# Of a wish; what is rented is one of the others.
BillingChoice = Annotated[str, OneOf(("spot", "onDemand", "auto"))]
EndAction = Annotated[str, OneOf(("stop", "delete"))]
OnReclaim = Annotated[str, OneOf(("none", "replace"))]
Optimize = Annotated[str, OneOf(("region", "price"))]
OnFailure = Annotated[str, OneOf(("delete", "keep"))]
HealthStatus = Annotated[str, OneOf(("pending", "in_progress", "passed", "failed"))]
EndpointStatus = Annotated[str, OneOf(("pending", "healthy", "unhealthy"))]
HealthCategory = Annotated[
    str,
    OneOf(
        (
            *("ok", "timeout", "connection_refused", "connection_reset", "dns_failure", "tls_error"),
            *("client_error", "server_error", "bad_gateway", "redirect", "error_page", "unexpected_status"),
            *("unexpected_body", "blocked_target", "protocol_error", "unreachable", "no_such_port"),
        )
    ),
]
Consistency = Annotated[str, OneOf(("consistent", "local-newer", "novita-newer", "conflicted"))]
Ownership = Annotated[str, OneOf(("ours", "foreign"))]


class Failure(Model, needs=("code",)):
    """What went wrong, for programs (code, details) and for people (message)."""

    code: str
    message: str
    at: datetime
    details: Mapping[str, Any]  # what programs may want to know besides; it depends on the code


class PortMapping(Model, needs=("port",)):
    """A port of the machine, and where the world reaches it."""

    port: int
    endpoint: str  # a host and port, or a URL
    type: str  # http, https or tcp


class ConnectionDetails(Model):
    """Ways in. They may hold tokens, so they stay out of every repr."""

    ssh: str | None = hidden()  # the command that logs in
    jupyter: str | None = hidden()
    web_terminal: str | None = hidden()


class HealthCheckConfig(Model):
    """A health check as it was ordered, defaults included."""

    target_port: int | None  # None: every port over HTTP, or every port where there is none
    path: str
    timeout_ms: int
    retry_attempts: int  # quick tries within one round, after the first
    retry_delay_ms: int
    max_wait_time_ms: int  # after that the check has failed
    expected_status: tuple[int, ...] | None  # None: any 2xx
    body_contains: str | None


class EndpointHealth(Model):
    """The last look at one endpoint."""

    port: int
    endpoint: str | None
    type: str | None
    status: EndpointStatus
    category: HealthCategory | None  # what the look found
    error: str | None
    response_time_ms: float | None  # only where a reply or a connection came
    checked_at: datetime | None


class HealthReport(Model, needs=("status",)):
    """What the health check has found so far."""

    status: HealthStatus
    config: HealthCheckConfig
    started_at: datetime | None
    completed_at: datetime | None
    endpoints: tuple[EndpointHealth, ...]


class CapacityWait(Model):
    """How long to wait for an offer that fits, if there is none."""

    seconds: int


class MountedVolume(Model, needs=("id",)):
    """A network volume of the account, and where the machine has it."""

    id: str
    mount_path: str


class Lease(Model, needs=("then",)):
    """Until when it may cost money, and what becomes of it then."""

    ends_at: datetime | None  # None while nothing is rented: the time counts from the rental
    seconds: int | None  # how long it was agreed; None where a moment was
    then: EndAction


class LeaseChanged(Model):
    """The new end of an instance."""

    instance_id: str
    ends_at: datetime | None  # None: it has no end
    then: EndAction | None
    cost_until_end: Decimal | None  # USD, at what it costs now, as far as that is known


class Activity(Model):
    """Where the application tells whether it is in use: 204 says no, 200 yes, or since when it is not."""

    port: int
    path: str


class AutoStop(Model, needs=("then",)):
    """An end for what nobody uses."""

    idle_seconds: int | None  # without more use of any GPU or CPU than this; None: it may idle
    gpu_below: int | None  # percent
    cpu_below: int | None  # percent
    activity: Activity | None
    silence_seconds: int | None  # without a heartbeat; None: it may be silent
    then: EndAction
    last_used_at: datetime | None  # as somebody said, or it was seen
    ends_at: datetime | None  # if it stays as it is; None while it is in use, or cannot be used


class InstanceRecord(Model, needs=("id", "name", "status")):
    """A rented GPU machine as gpuherd remembers it. Prices are USD an hour."""

    id: str
    instance_id: str  # the same as `id`
    name: str
    status: Status
    status_reason: str  # why it has this status, for people
    goal: Goal  # what the user wants of it
    usable: bool  # whether it can be used now: it runs, and its health check, if there is one, has passed
    cloud_instance_id: str | None  # the cloud's id of the machine
    novita_instance_id: str | None  # the same as `cloudInstanceId`
    product_id: str | None  # of the offer that was taken
    product_name: str
    product_names: tuple[str, ...]  # as they were asked for, best first; empty where there was one
    region: str | None  # where it runs, or the first that was asked for
    regions: tuple[str, ...]  # as they were asked for, best first
    gpu_num: int
    rootfs_size: int  # GB
    billing_mode: BillingChoice  # as it is rented, or as it was asked for
    fallback_after_seconds: int | None  # asked for as `auto`: so long only spot will do
    hourly_price: Decimal | None  # of the whole instance while it runs, its disk included
    gpu_hourly_price: Decimal | None  # of one GPU
    disk_hourly_price: Decimal | None  # of the disk above the free part, also while it is stopped
    max_hourly_price: Decimal | None  # what the whole instance may cost at most
    optimize: Optimize  # what matters more: the order of the regions, or the price
    on_failure: OnFailure  # what becomes of the machine when the create fails
    wait_for_capacity: CapacityWait | None
    template_id: str  # empty where an image was given instead, or where it was adopted
    image_url: str | None
    command: str | None  # this and the next ones as they were asked for: they win over the template
    ports: tuple[str, ...] | None  # as 8888/http
    min_cuda_version: str | None
    registry_auth_id: str | None
    envs: Mapping[str, Any]  # names only: each value is ***, or says which secret is meant
    volumes: tuple[MountedVolume, ...]  # they pin the region
    port_mappings: tuple[PortMapping, ...]
    connection: ConnectionDetails = on_wire_as("connectionDetails")
    owner: str  # the id of the key that made it
    labels: Mapping[str, str]
    webhook_url: Url | None = hidden()
    health_check: HealthReport | None
    lease: Lease | None
    auto_stop: AutoStop | None
    delete_after_stopped_seconds: int | None
    on_reclaim: OnReclaim  # what happens when the cloud takes a spot machine back
    max_replacements: int  # of the lineage in 24 hours
    handover_seconds: int  # how long both stay up once the new one can be used
    lineage: str  # the id of the first of those that take over from one another; its own where it is alone
    link: int  # which of them it is, from 1
    replaces: str | None  # the instance that it takes over from
    replaced_by: str | None  # the instance that takes over from it
    operation_id: str | None  # the start, restart, stop, delete or replacement that was accepted last
    created_at: datetime
    started_at: datetime | None
    ready_at: datetime | None
    stopped_at: datetime | None
    spot_reclaim_at: datetime | None  # when the cloud takes a spot machine back, if it has said so
    loss_expected_at: datetime | None  # after a notice, also if it has not; None without one
    estimated_ready_time: datetime | None
    last_error: Failure | None
    source: Annotated[str, OneOf(("local",))]

    @property
    def ssh(self) -> str | None:
        """The command that logs in, once there is one."""
        return self.connection.ssh if self.connection else None

    def endpoint(self, port: int) -> str | None:
        """Return where a port of the machine is reached, if it is mapped."""
        return next((it.endpoint for it in self.port_mappings if it.port == port and it.endpoint), None)


class InstanceCost(Model):
    """What it has cost, in USD. Now it is `settled` plus `hourlyNow` for the time since `settledAt`."""

    settled: Decimal
    settled_at: datetime | None  # None before a list has shown its machine
    hourly_now: Decimal  # GPUs and disk, as long as they are paid for
    uncertainty: Decimal  # what is settled may be wrong by this, either way


class Answer(Model):
    """What the cloud said last about an offer that would do."""

    at: datetime
    offer: str
    message: str


class InstanceWait(Model, needs=("what",)):
    """What it waits for outside of gpuherd."""

    what: Annotated[str, OneOf(("cloud", "capacity", "creates"))] = on_wire_as("for")
    since: datetime | None
    until: datetime | None  # then it is given up
    position: int | None  # in line for capacity; 1 is tried next
    ahead: int | None  # how many come first
    next_try_at: datetime | None  # of who is tried next, as far as it is known
    last_answer: Answer | None


class Instance(InstanceRecord):
    """A rented GPU machine, and whether what is known of it may be out of date."""

    stale: bool  # the cloud could not be asked for a while
    cost: InstanceCost
    waits: InstanceWait | None


class InstanceRow(InstanceRecord):
    """An instance in a list."""

    cost: InstanceCost


class InstancePage(Model):
    """One page of instances, newest first."""

    instances: tuple[InstanceRow, ...]
    total: int  # on all pages
    next_cursor: str | None  # of the next page; None on the last


class ListedInstance(InstanceRecord, needs=("name", "source")):
    """An instance, with its machine where the cloud shows one."""

    source: Annotated[str, OneOf(("local", "merged"))]  # merged: with what the cloud shows
    ownership: Ownership
    local_status: Status | None  # what gpuherd remembers
    consistency: Consistency  # which side knows better
    consistency_reason: str
    cloud_status: str | None  # in the cloud's own word
    cloud_error: str | None
    spot_status: str | None
    spot_reclaim_time: datetime | None


class ListedMachine(Model, needs=("name", "source")):
    """A machine on the account that no instance has."""

    id: None
    instance_id: None
    name: str
    status: Status | None
    status_reason: str
    goal: None
    usable: None
    cloud_instance_id: str
    novita_instance_id: str  # the same as `cloudInstanceId`
    product_id: str | None
    product_name: str | None
    region: str | None
    gpu_num: int
    rootfs_size: int  # GB
    billing_mode: str | None
    hourly_price: None
    template_id: None
    image_url: str | None
    port_mappings: tuple[PortMapping, ...]
    labels: Mapping[str, str]
    created_at: datetime | None
    source: Annotated[str, OneOf(("novita",))]
    ownership: Ownership
    local_status: None
    consistency: Consistency
    consistency_reason: str
    cloud_status: str  # in the cloud's own word
    cloud_error: str | None
    spot_status: str | None
    spot_reclaim_time: datetime | None


class ListSummary(Model):
    """What a merged list says besides its entries."""

    total: int
    sources: Mapping[str, int]  # how many entries are local, novita or merged
    stale: bool  # the cloud could not be asked
    note: str | None  # for people: why something may be missing
    synced: bool  # what gpuherd remembers has followed what the cloud shows


class ListPerformance(Model):
    """How long the parts took; 0 for what came from the cache."""

    total_request_time_ms: float
    novita_api_time_ms: float
    local_data_time_ms: float
    merge_processing_time_ms: float
    cache_hit: bool


class ListEntries(Model):
    """The entries of a merged list."""

    instances: tuple[ListedInstance | ListedMachine, ...]


# The fields of the last base come first.
class Comprehensive(ListSummary, ListEntries, needs=("instances",)):
    """Everything that gpuherd remembers and everything on the account, merged."""

    performance: ListPerformance
