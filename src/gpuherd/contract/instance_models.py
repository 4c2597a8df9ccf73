"""Instances, alone and merged with the cloud's machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from gpuherd.contract.launch_models import (
    BillingChoice,
    CapacityWait,
    OnFailure,
    OnReclaim,
    Optimize,
)
from gpuherd.contract.lease_models import AutoStop, HealthReport, Lease
from gpuherd.contract.wire_models import Moment, Number, ReplyModel, Url, Usd, one_of
from gpuherd.contract.workload_models import MountedVolume

Status = Annotated[
    str,
    one_of(
        "creating",
        "starting",
        "running",
        "health_checking",
        "ready",
        "stopping",
        "exited",
        "migrating",
        "deleting",
        "deleted",
        "failed",
    ),
]
Goal = Annotated[str, one_of("running", "stopped", "deleted")]
Consistency = Annotated[str, one_of("consistent", "local-newer", "novita-newer", "conflicted")]
Ownership = Annotated[str, one_of("ours", "foreign")]


class Failure(ReplyModel, needs=("code",)):
    """What went wrong, for programs (code, details) and for people (message)."""

    code: str
    message: str
    at: Moment
    details: Mapping[str, Any] = Field(
        description="what programs may want to know besides; it depends on the code"
    )


class PortMapping(ReplyModel, needs=("port",)):
    """A port of the machine, and where the world reaches it."""

    port: int
    endpoint: str = Field(description="a host and port, or a URL")
    type: str = Field(description="http, https or tcp")


class ConnectionDetails(ReplyModel):
    """Ways in. They may hold tokens, so they stay out of every repr."""

    ssh: str | None = Field(repr=False, description="the command that logs in")
    jupyter: str | None = Field(repr=False)
    web_terminal: str | None = Field(repr=False)


class InstanceRecord(ReplyModel, needs=("id", "name", "status")):
    """A rented GPU machine as gpuherd remembers it. Prices are USD an hour."""

    id: str
    instance_id: str = Field(description="the same as `id`")
    name: str
    status: Status
    status_reason: str = Field(description="why it has this status, for people")
    goal: Goal = Field(description="what the user wants of it")
    usable: bool = Field(
        description="whether it can be used now: it runs, and its health check, if there is one, has passed"
    )
    cloud_instance_id: str | None = Field(description="the cloud's id of the machine")
    novita_instance_id: str | None = Field(description="the same as `cloudInstanceId`")
    product_id: str | None = Field(description="of the offer that was taken")
    product_name: str
    product_names: tuple[str, ...] = Field(
        description="as they were asked for, best first; empty where there was one"
    )
    region: str | None = Field(description="where it runs, or the first that was asked for")
    regions: tuple[str, ...] = Field(description="as they were asked for, best first")
    gpu_num: int
    rootfs_size: int = Field(description="GB")
    billing_mode: BillingChoice = Field(description="as it is rented, or as it was asked for")
    fallback_after_seconds: int | None = Field(description="asked for as `auto`: so long only spot will do")
    hourly_price: Usd | None = Field(description="of the whole instance while it runs, its disk included")
    gpu_hourly_price: Usd | None = Field(description="of one GPU")
    disk_hourly_price: Usd | None = Field(
        description="of the disk above the free part, also while it is stopped"
    )
    max_hourly_price: Usd | None = Field(description="what the whole instance may cost at most")
    optimize: Optimize = Field(description="what matters more: the order of the regions, or the price")
    on_failure: OnFailure = Field(description="what becomes of the machine when the create fails")
    wait_for_capacity: CapacityWait | None
    template_id: str = Field(description="empty where an image was given instead, or where it was adopted")
    image_url: str | None
    command: str | None = Field(
        description="this and the next ones as they were asked for: they win over the template"
    )
    ports: tuple[str, ...] | None = Field(description="as 8888/http")
    min_cuda_version: str | None
    registry_auth_id: str | None
    envs: Mapping[str, Any] = Field(
        description="names only: each value is ***, or says which secret is meant"
    )
    volumes: tuple[MountedVolume, ...] = Field(description="they pin the region")
    port_mappings: tuple[PortMapping, ...]
    connection: ConnectionDetails = Field(
        validation_alias="connectionDetails", serialization_alias="connectionDetails"
    )
    owner: str = Field(description="the id of the key that made it")
    labels: Mapping[str, str]
    webhook_url: Url | None = Field(repr=False)
    health_check: HealthReport | None
    lease: Lease | None
    auto_stop: AutoStop | None
    delete_after_stopped_seconds: int | None
    on_reclaim: OnReclaim = Field(description="what happens when the cloud takes a spot machine back")
    max_replacements: int = Field(description="of the lineage in 24 hours")
    handover_seconds: int = Field(description="how long both stay up once the new one can be used")
    lineage: str = Field(
        description="the id of the first of those that take over from one another; its own where it is alone"
    )
    link: int = Field(description="which of them it is, from 1")
    replaces: str | None = Field(description="the instance that it takes over from")
    replaced_by: str | None = Field(description="the instance that takes over from it")
    operation_id: str | None = Field(
        description="the start, restart, stop, delete or replacement that was accepted last"
    )
    created_at: Moment
    started_at: Moment | None
    ready_at: Moment | None
    stopped_at: Moment | None
    spot_reclaim_at: Moment | None = Field(
        description="when the cloud takes a spot machine back, if it has said so"
    )
    loss_expected_at: Moment | None = Field(
        description="after a notice, also if it has not; null without one"
    )
    estimated_ready_time: Moment | None
    last_error: Failure | None
    source: Annotated[str, one_of("local")]

    @property
    def ssh(self) -> str | None:
        """The command that logs in, once there is one."""
        return self.connection.ssh if self.connection else None

    def endpoint(self, port: int) -> str | None:
        """Return where a port of the machine is reached, if it is mapped."""
        return next((it.endpoint for it in self.port_mappings if it.port == port and it.endpoint), None)


class InstanceCost(ReplyModel):
    """What it has cost, in USD. Now it is `settled` plus `hourlyNow` for the time since `settledAt`."""

    settled: Usd
    settled_at: Moment | None = Field(description="null before a list has shown its machine")
    hourly_now: Usd = Field(description="GPUs and disk, as long as they are paid for")
    uncertainty: Usd = Field(description="what is settled may be wrong by this, either way")


class Answer(ReplyModel):
    """What the cloud said last about an offer that would do."""

    at: Moment
    offer: str
    message: str


class InstanceWait(ReplyModel, needs=("what",)):
    """What it waits for outside of gpuherd."""

    what: Annotated[str, one_of("cloud", "capacity", "creates")] = Field(
        validation_alias="for", serialization_alias="for"
    )
    since: Moment | None
    until: Moment | None = Field(description="then it is given up")
    position: int | None = Field(description="in line for capacity; 1 is tried next")
    ahead: int | None = Field(description="how many come first")
    next_try_at: Moment | None = Field(description="of who is tried next, as far as it is known")
    last_answer: Answer | None


class Instance(InstanceRecord):
    """A rented GPU machine, and whether what is known of it may be out of date."""

    stale: bool = Field(description="the cloud could not be asked for a while")
    cost: InstanceCost
    waits: InstanceWait | None


class InstanceRow(InstanceRecord):
    """An instance in a list."""

    cost: InstanceCost


class InstancePage(ReplyModel):
    """One page of instances, newest first."""

    instances: tuple[InstanceRow, ...]
    total: int = Field(description="on all pages")
    next_cursor: str | None = Field(description="of the next page; null on the last")


class ListedInstance(InstanceRecord, needs=("name", "source")):
    """An instance, with its machine where the cloud shows one."""

    source: Literal["local", "merged"] = Field(description="merged: with what the cloud shows")
    ownership: Ownership
    local_status: Status | None = Field(description="what gpuherd remembers")
    consistency: Consistency = Field(description="which side knows better")
    consistency_reason: str
    cloud_status: str | None = Field(description="in the cloud's own word")
    cloud_error: str | None
    spot_status: str | None
    spot_reclaim_time: Moment | None


class ListedMachine(ReplyModel, needs=("name", "source")):
    """A machine on the account that no instance has."""

    id: None
    instance_id: None
    name: str
    status: Status | None
    status_reason: str
    goal: None
    usable: None
    cloud_instance_id: str
    novita_instance_id: str = Field(description="the same as `cloudInstanceId`")
    product_id: str | None
    product_name: str | None
    region: str | None
    gpu_num: int
    rootfs_size: int = Field(description="GB")
    billing_mode: str | None
    hourly_price: None
    template_id: None
    image_url: str | None
    port_mappings: tuple[PortMapping, ...]
    labels: Mapping[str, str]
    created_at: Moment | None
    source: Literal["novita"]
    ownership: Ownership
    local_status: None
    consistency: Consistency
    consistency_reason: str
    cloud_status: str = Field(description="in the cloud's own word")
    cloud_error: str | None
    spot_status: str | None
    spot_reclaim_time: Moment | None


class ListSummary(ReplyModel):
    """What a merged list says besides its entries."""

    total: int
    sources: Mapping[str, int] = Field(description="how many entries are local, novita or merged")
    stale: bool = Field(description="the cloud could not be asked")
    note: str | None = Field(description="for people: why something may be missing")
    synced: bool = Field(description="what gpuherd remembers has followed what the cloud shows")


class ListPerformance(ReplyModel):
    """How long the parts took; 0 for what came from the cache."""

    total_request_time_ms: Number
    novita_api_time_ms: Number
    local_data_time_ms: Number
    merge_processing_time_ms: Number
    cache_hit: bool


class ListEntries(ReplyModel):
    """The entries of a merged list."""

    instances: tuple[Annotated[ListedInstance | ListedMachine, Field(discriminator="source")], ...]


# The fields of the last base come first.
class Comprehensive(ListSummary, ListEntries, needs=("instances",)):
    """Everything that gpuherd remembers and everything on the account, merged."""

    performance: ListPerformance
