"""Options that several commands share, with what makes sense of their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar, get_args

import typer
from typer._click.exceptions import MissingParameter

from gpuherd.client.wish import (
    AutoStop,
    HealthCheck,
    Lease,
    Wish,
)
from gpuherd.entrypoints.cli.runtime.workload_options import envs_of, secret_envs_of, volumes_of
from gpuherd.entrypoints.durations import parse_duration

T = TypeVar("T")


def _duration(value: object) -> float:
    try:
        return parse_duration(str(value))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _usd(value: object) -> Decimal:
    try:
        amount = Decimal(str(value).strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(0)
    if not amount.is_finite() or amount <= 0:
        raise typer.BadParameter("give US dollars an hour, like 0.40")
    return amount


def _name_or_id(value: str) -> str:
    if not value.strip():
        raise typer.BadParameter("give a name or an id")
    return value


def _key(value: object) -> str:
    if not KEY.fullmatch(str(value)):
        raise typer.BadParameter("1 to 255 visible ASCII characters")
    return str(value)


# The server's own rule; here it also keeps line breaks out of the header.
KEY = re.compile(r"[\x21-\x7e]{1,255}")

TIMEOUT_S = 30 * 60.0


class Billing(StrEnum):
    """How to pay, in the words of the command line."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


BILLING_MODES: dict[Billing, Literal["spot", "onDemand"]] = {
    Billing.SPOT: "spot",
    Billing.ON_DEMAND: "onDemand",
}


class PaymentChoice(StrEnum):
    """How a wish may be paid for, in the words of the command line."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    AUTO = "auto"


BILLING_CHOICES: dict[PaymentChoice, Literal["spot", "onDemand", "auto"]] = {
    PaymentChoice.SPOT: "spot",
    PaymentChoice.ON_DEMAND: "onDemand",
    PaymentChoice.AUTO: "auto",
}

Gpu = Annotated[
    list[str],
    typer.Option(
        "--gpu",
        "--product",
        help="The GPU; part of its name is enough: 4090. Several are tried in this order.",
    ),
]
OptionalGpu = Annotated[list[str] | None, get_args(Gpu)[1]]
HoldOption = Annotated[
    bool, typer.Option("--hold", help="Hold it for ten minutes, to rent it with up --plan: never for more.")
]
HeldPlanOption = Annotated[
    str | None,
    typer.Option("--plan", help="Rent the plan with this id (plan --hold), instead of what is said here."),
]
TemplateId = Annotated[
    str | None, typer.Option("--template", help="Id of the template to run; or give an image.")
]
Name = Annotated[str | None, typer.Option("--name", help="What to call it; made from the GPU by default.")]
GpuNum = Annotated[int | None, typer.Option("--gpu-num", min=1, max=8, help="How many GPUs.")]
Disk = Annotated[int | None, typer.Option("--disk", min=10, max=1000, help="Root disk in GB.")]
Regions = Annotated[
    list[str] | None, typer.Option("--region", help="Only here; several are tried in this order.")
]
BillingOption = Annotated[
    PaymentChoice | None,
    typer.Option("--billing", help="How to pay; the server says spot. auto: spot, after a while on demand."),
]
FallbackAfter = Annotated[
    float | None,
    typer.Option(
        "--fallback-after",
        parser=_duration,
        metavar="DURATION",
        help="With --billing auto: so long only spot will do; the server says 10m.",
    ),
]
OptimizeOption = Annotated[
    Literal["region", "price"] | None,
    typer.Option("--optimize", help="What counts more: the order of regions, or price."),
]
OnFailureOption = Annotated[
    Literal["delete", "keep"] | None,
    typer.Option("--on-failure", help="What becomes of the machine when the create fails."),
]
WaitForCapacity = Annotated[
    int | None,
    typer.Option(
        "--wait-for-capacity",
        min=1,
        max=604_800,
        metavar="SECONDS",
        help="Wait so long for stock if there is none.",
    ),
]

IdempotencyKey = Annotated[
    str | None,
    typer.Option(parser=_key, metavar="KEY", help="Say the same key again and it is the same instance."),
]
Timeout = Annotated[
    float,
    typer.Option(
        parser=_duration, metavar="DURATION", show_default="30m", help="How long to wait: 90, 90s, 20m, 1h."
    ),
]
Since = Annotated[
    float | None,
    typer.Option("--since", parser=_duration, metavar="DURATION", help="How long ago: 90s, 20m, 2h."),
]
MaxPrice = Annotated[
    Decimal | None,
    typer.Option(parser=_usd, metavar="USD", help="The most that the whole instance may cost an hour."),
]
WebhookUrl = Annotated[str | None, typer.Option("--webhook-url", help="Where to tell what happens.")]
LeaseOption = Annotated[
    float | None,
    typer.Option(
        "--lease",
        parser=_duration,
        metavar="DURATION",
        help="Stop it so long after it was rented: 90m, 8h, 2d. Extend it with gpuherd lease.",
    ),
]
MaxLeaseOption = Annotated[
    float | None,
    typer.Option(
        "--max-lease",
        parser=_duration,
        metavar="DURATION",
        help="Each of its instances has a lease, of at most so long: 90m, 8h, 2d.",
    ),
]
SilenceOption = Annotated[
    float | None,
    typer.Option(
        "--silence",
        parser=_duration,
        metavar="DURATION",
        help="Stop it when nobody has said for so long that it is in use: gpuherd keep.",
    ),
]
IdleOption = Annotated[
    float | None,
    typer.Option(
        "--idle",
        parser=_duration,
        metavar="DURATION",
        help="Stop it when neither its GPUs nor its CPU were used for so long: 30m, 2h.",
    ),
]
ThenOption = Annotated[
    Literal["stop", "delete"] | None,
    typer.Option("--then", help="What becomes of it at its end; stop keeps its disk, which may cost."),
]
OnReclaimOption = Annotated[
    Literal["none", "replace"] | None,
    typer.Option("--on-reclaim", help="When the cloud takes the spot machine back: replace it, or not."),
]
MaxReplacementsOption = Annotated[
    int | None,
    typer.Option(
        "--max-replacements", min=1, max=1000, help="At most so many in 24 hours; the server says 10."
    ),
]
HandoverOption = Annotated[
    float | None,
    typer.Option(
        "--handover",
        parser=_duration,
        metavar="DURATION",
        help="Keep the old one so long after the new one can be used: 30s, 5m.",
    ),
]
HealthPort = Annotated[
    int | None,
    typer.Option("--health-port", min=1, max=65535, help="Ready only when the program answers on this port."),
]
HealthPath = Annotated[
    str | None,
    typer.Option(
        "--health-path", help="Ready only when this path answers well: /health. On every HTTP port."
    ),
]
HealthTimeout = Annotated[
    float | None,
    typer.Option(
        "--health-timeout",
        parser=_duration,
        metavar="DURATION",
        help="How long the program may take until it answers well; the server says 5m.",
    ),
]
Labels = Annotated[list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="May be given often.")]
PageSize = Annotated[
    int, typer.Option("--limit", min=1, max=100, help="How many at most (a page, with --all).")
]
AllPages = Annotated[bool, typer.Option("--all", help="All pages.")]
NameOrId = Annotated[str, typer.Argument(metavar="NAME_OR_ID", callback=_name_or_id, help="Which instance.")]


def required(context: typer.Context, name: str, value: T | None) -> T:
    """Return the value of an option that is required here."""
    if not value:
        option: Any = next(it for it in context.command.params if it.name == name)
        raise MissingParameter("Or rent a plan: --plan.", ctx=context, param=option)
    return value


def product_of(gpu: Sequence[str]) -> str | Sequence[str]:
    """Return what the options name as the API takes it: one product, or several in their order."""
    return gpu[0] if len(gpu) == 1 else gpu


def template_of(context: typer.Context, template: str | None, image: str | None) -> str | None:
    """Return the template, if one is meant; it is required where no image is given."""
    if template is None and image is None:
        option: Any = next(it for it in context.command.params if it.name == "template")
        raise MissingParameter("Or give an image: --image.", ctx=context, param=option)
    return template


def labels_of(words: Sequence[str] | None) -> dict[str, str]:
    """Return the labels that were written as key=value."""
    labels = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{word!r} is not KEY=VALUE", param_hint="--label")
        labels[key.strip()] = value
    return labels


def health_check_of(port: int | None, path: str | None, timeout_s: float | None) -> HealthCheck | None:
    """Return the health check that the options ask for; what was not said is left to the server."""
    if port is None and path is None and timeout_s is None:
        return None
    max_wait_ms = None if timeout_s is None else round(timeout_s * 1000)
    return HealthCheck(target_port=port, path=path, max_wait_time_ms=max_wait_ms)


def wish_of(
    *,
    gpu_num: int | None,
    disk: int | None,
    region: Sequence[str] | None,
    max_price: Decimal | None,
    billing: PaymentChoice | None,
    fallback_after: float | None,
    optimize: Literal["region", "price"] | None,
    label: Sequence[str] | None,
    webhook_url: str | None,
    health_check: HealthCheck | None,
    on_failure: Literal["delete", "keep"] | None,
    wait_for_capacity: int | None,
    lease: float | None,
    idle: float | None,
    silence: float | None,
    then: Literal["stop", "delete"] | None,
    on_reclaim: Literal["none", "replace"] | None,
    max_replacements: int | None,
    handover: float | None,
    image: str | None,
    command: str | None,
    env: Sequence[str] | None,
    secret: Sequence[str] | None,
    port: Sequence[str] | None,
    min_cuda: str | None,
    registry_auth: str | None,
    volume: Sequence[str] | None = None,
) -> Wish:
    """Return the wish that the options of `up` and `plan` say."""
    return {
        "gpu_num": gpu_num,
        "rootfs_size": disk,
        "regions": region or None,
        "max_hourly_price": max_price,
        "billing_mode": BILLING_CHOICES[billing] if billing else None,
        "fallback_after_seconds": None if fallback_after is None else round(fallback_after),
        "optimize": optimize,
        "labels": labels_of(label) or None,
        "webhook_url": webhook_url,
        "on_failure": on_failure,
        "health_check": health_check,
        "wait_for_capacity_s": wait_for_capacity,
        "lease": None if lease is None else Lease(seconds=round(lease), then=then),
        "auto_stop": auto_stop_of(silence, idle, then),
        "on_reclaim": on_reclaim,
        "max_replacements": max_replacements,
        "handover_seconds": None if handover is None else round(handover),
        "image_url": image,
        "command": command,
        "envs": {**secret_envs_of(secret), **envs_of(env)} or None,
        "ports": port or None,
        "min_cuda_version": min_cuda,
        "registry_auth_id": registry_auth,
        "volumes": volumes_of(volume) or None,
    }


def auto_stop_of(
    silence_s: float | None, idle_s: float | None, then: Literal["stop", "delete"] | None
) -> AutoStop | None:
    """Return the end for what nobody uses that the options ask for."""
    if silence_s is None and idle_s is None:
        return None
    return AutoStop(
        silence_seconds=None if silence_s is None else round(silence_s),
        idle_seconds=None if idle_s is None else round(idle_s),
        then=then or "stop",
    )
