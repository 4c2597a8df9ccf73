"""The optional fields of a create, and their names in the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypedDict

from pydantic.alias_generators import to_camel

from gpuherd.client.client_transport import Json

Usd = Decimal | str | float


@dataclass(frozen=True)
class HealthCheck:
    """What your program must answer before the instance counts as ready; None is the server's default."""

    target_port: int | None = None
    path: str | None = None
    expected_status: int | Sequence[int] | None = None
    body_contains: str | None = None
    timeout_ms: int | None = None
    retry_attempts: int | None = None
    retry_delay_ms: int | None = None
    max_wait_time_ms: int | None = None

    @property
    def body(self) -> Json:
        return {to_camel(name): value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Lease:
    """An end that is agreed: so many seconds from the rental on, or until a moment."""

    seconds: int | None = None
    until: datetime | None = None
    then: Literal["stop", "delete"] | None = None

    @property
    def body(self) -> Json:
        until = None if self.until is None else self.until.isoformat()
        said = {"seconds": self.seconds, "until": until, "then": self.then}
        return {name: value for name, value in said.items() if value is not None}


@dataclass(frozen=True)
class Activity:
    """Where the application tells whether it is in use: 204 says no, 200 yes, or since when it is not."""

    port: int
    path: str = "/"


@dataclass(frozen=True)
class AutoStop:
    """An end for what nobody uses: so many seconds without a `heartbeat`, or of idleness, or both.

    It is idle while every GPU and the CPU are below so many percent, and the application, where it is asked
    (`activity`), says so.
    """

    silence_seconds: int | None = None
    then: Literal["stop", "delete"] = "stop"
    idle_seconds: int | None = None
    gpu_below: int | None = None
    cpu_below: int | None = None
    activity: Activity | None = None

    @property
    def body(self) -> Json:
        said = {to_camel(name): it for name, it in asdict(self).items() if it is not None}
        return dict(sorted(said.items()))


class Wish(TypedDict, total=False):
    """The optional fields of a create. None and absent are the same."""

    gpu_num: int | None
    rootfs_size: int | None
    region: str | None
    regions: Sequence[str] | None
    billing_mode: Literal["spot", "onDemand", "auto"] | None
    # Of `auto`: so long only spot will do.
    fallback_after_seconds: int | None
    max_hourly_price: Usd | None
    optimize: Literal["region", "price"] | None
    on_failure: Literal["delete", "keep"] | None
    labels: Mapping[str, str] | None
    webhook_url: str | None
    health_check: HealthCheck | None
    wait_for_capacity_s: float | None
    lease: Lease | None
    auto_stop: AutoStop | None
    delete_after_stopped_seconds: int | None
    # What happens when the cloud takes a spot machine back.
    on_reclaim: Literal["none", "replace"] | None
    max_replacements: int | None
    handover_seconds: int | None
    # What runs, beside or instead of a template: what is given here wins.
    image_url: str | None
    command: str | None
    # As "8888/http".
    ports: Sequence[str] | None
    min_cuda_version: str | None
    registry_auth_id: str | None
    # Values are kept sealed and never come back; {"secret": NAME} refers to one of `herd.secrets`.
    envs: Mapping[str, str | Mapping[str, str]] | None
    # Paths by the ids of network volumes; they pin the region.
    volumes: Mapping[str, str] | None


def create_body(
    name: str | None, product_name: str | Sequence[str], template_id: str | int | None, wish: Wish
) -> Json:
    """Return the body of a create or a plan; what was not given is not in it: the server's defaults hold."""
    body: Json = {} if name is None else {"name": name}
    if isinstance(product_name, str):
        body["productName"] = product_name
    else:
        body["productNames"] = list(product_name)
    if template_id is not None:
        body["templateId"] = template_id
    for field, value in wish.items():
        match field, value:
            case _, None:
                pass
            case "max_hourly_price", price:
                body["maxHourlyPrice"] = str(price)
            case _, (HealthCheck() | Lease() | AutoStop()) as part:
                body[to_camel(field)] = part.body
            case "wait_for_capacity_s", seconds:
                body["waitForCapacity"] = {"seconds": seconds}
            case (("regions" | "ports"), words):
                assert isinstance(words, Sequence)
                body[field] = list(words)
            case "envs", envs:
                assert isinstance(envs, Mapping)
                body["envs"] = dict(envs)
            case "volumes", mounts:
                assert isinstance(mounts, Mapping)
                body["volumes"] = [{"id": key, "mountPath": path} for key, path in mounts.items()]
            case _:
                body[to_camel(field)] = value
    return body
