"""The optional fields of a create, and their names in the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal, TypedDict

from pydantic.alias_generators import to_camel

from gpuherd.client.client_transport import Json
from gpuherd.contract.body_models import RequestModel
from gpuherd.contract.lease_models import AutoStopBody, HealthCheckBody, LeaseBody

Usd = Decimal | str | float


def body_of(part: RequestModel) -> Json:
    """Return the JSON of a part of a body, only with what the caller has set: the server has the defaults."""
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


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
    health_check: HealthCheckBody | None
    wait_for_capacity_s: float | None
    lease: LeaseBody | None
    auto_stop: AutoStopBody | None
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
            case _, RequestModel() as part:
                body[to_camel(field)] = body_of(part)
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
