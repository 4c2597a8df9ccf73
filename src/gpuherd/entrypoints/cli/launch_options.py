"""The options of up, plan and run, and the request body that they make."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from gpuherd.entrypoints.cli.cli_output import Output, amount_of, pairs, safe, text_of, usd_an_hour
from gpuherd.entrypoints.cli.command_runner import (
    LABEL_OPTION,
    THEN_OPTION,
    Choice,
    Duration,
    Lookup,
    command_context,
    completion,
    fetch_choices,
    labels_of,
)
from gpuherd.entrypoints.cli.server_connection import ServerConnection

SUGGESTION_TIMEOUT_S = 4.0
SUGGESTIONS_MAX = 8
BILLING_MODES = {"spot": "spot", "on-demand": "onDemand", "auto": "auto"}


class UsdAnHour(click.ParamType[Decimal]):
    """A positive amount of US dollars."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            amount = Decimal(str(value).strip().removeprefix("$"))
        except InvalidOperation:
            amount = Decimal(0)
        if not amount.is_finite() or amount <= 0:
            self.fail("give US dollars an hour, like 0.40", param, ctx)
        return amount


def gpu_choices(server: ServerConnection) -> list[Choice]:
    """Return the GPUs that are available now, with the price of one, the cheapest first."""
    cheapest: dict[str, Decimal] = {}
    for product in server.rows("/api/products", "products")["products"]:
        price = amount_of(product.get("gpuHourlyPrice"))
        # One name may be sold in several builds.
        if product.get("available") and price is not None:
            name = str(product["productName"])
            cheapest[name] = min(price, cheapest.get(name, price))
    found = sorted(cheapest.items(), key=lambda pair: pair[1])
    return [((name,), f"from {usd_an_hour(price)}") for name, price in found]


def template_choices(server: ServerConnection) -> list[Choice]:
    """Return the usable templates, the oldest first: every account has those."""
    rows = server.rows("/api/templates", "templates")["templates"]
    found = sorted(rows, key=lambda row: (len(str(row["id"])), str(row["id"])))
    return [((str(row["id"]),), text_of(row.get("name"))) for row in found if not row.get("problem")]


def region_choices(server: ServerConnection) -> list[Choice]:
    rows = server.rows("/api/regions", "regions")["regions"]
    return [((str(row["code"]),), text_of(row.get("label"))) for row in rows]


TEMPLATE = click.option(
    "--template",
    shell_complete=completion(template_choices),
    help="Id of the template to run; or give an image.",
)
REGISTRY_AUTH = click.option("--registry-auth", metavar="ID", help="Pull with this credential of the cloud.")
SECRET = click.option(
    "--secret",
    multiple=True,
    metavar="NAME=SECRET",
    help="A variable with the value of a secret: HF_TOKEN=hf. See gpuherd secrets.",
)
WEBHOOK_URL = click.option("--webhook-url", help="Where to tell what happens.")
WAIT_FOR_CAPACITY = click.option(
    "--wait-for-capacity",
    type=click.IntRange(1, 604_800),
    metavar="SECONDS",
    help="Wait up to this time for stock if there is none.",
)
IMAGE = click.option(
    "--image", help="The image to run, instead of the template's: docker.io/pytorch/pytorch:…"
)
MIN_CUDA = click.option("--min-cuda", metavar="VERSION", help="Only where CUDA is at least this: 12.4.")
LEASE = click.option(
    "--lease",
    type=Duration(),
    help="Stop it this time after it was rented: 90m, 8h, 2d. Extend it with gpuherd lease.",
)
SILENCE = click.option(
    "--silence",
    type=Duration(),
    help="Stop it this time after the last gpuherd keep.",
)
HEALTH_OPTIONS = (
    click.option(
        "--health-port",
        type=click.IntRange(1, 65535),
        help="Ready only when the program answers on this port.",
    ),
    click.option(
        "--health-path", help="Ready only when this path answers well: /health. On every HTTP port."
    ),
    click.option(
        "--health-timeout",
        type=Duration(),
        help="How long the program may take until it answers well; the server says 5m.",
    ),
)
# Options of up, plan and run: size, place, price.
OFFER_OPTIONS = (
    click.option("--name", help="What to call it; made from the GPU by default."),
    click.option("--gpu-num", type=click.IntRange(1, 8), help="How many GPUs."),
    click.option("--disk", type=click.IntRange(10, 1000), help="Root disk in GB."),
    click.option(
        "--region",
        multiple=True,
        shell_complete=completion(region_choices),
        help="Only here; several are tried in this order.",
    ),
    click.option("--max-price", type=UsdAnHour(), help="The most that the whole instance may cost an hour."),
    click.option(
        "--billing",
        type=click.Choice(list(BILLING_MODES)),
        help="How to pay; the server says spot. auto: spot, after a while on demand.",
    ),
)
# Options of up and plan only.
LAUNCH_OPTIONS = (
    TEMPLATE,
    IMAGE,
    click.option("--command", help="What to start in the container, instead of the template's."),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME=VALUE",
        help="A variable of the container; NAME alone takes its value from here. May be given often.",
    ),
    SECRET,
    click.option(
        "--port",
        multiple=True,
        metavar="PORT/TYPE",
        help="A port to open: 8000/http, 22/tcp. May be given often.",
    ),
    MIN_CUDA,
    REGISTRY_AUTH,
    click.option(
        "--volume",
        multiple=True,
        metavar="ID:PATH",
        help="Mount a network volume: ID:/data. It pins the region. May be given often.",
    ),
    *OFFER_OPTIONS,
    click.option(
        "--fallback-after",
        type=Duration(),
        help="With --billing auto: rent on demand, too, after this time; the server says 10m.",
    ),
    click.option(
        "--optimize",
        type=click.Choice(["region", "price"]),
        help="What counts more: the order of regions, or price.",
    ),
    LABEL_OPTION,
    WEBHOOK_URL,
    *HEALTH_OPTIONS,
    click.option(
        "--on-failure",
        type=click.Choice(["delete", "keep"]),
        help="What becomes of the machine when the create fails.",
    ),
    WAIT_FOR_CAPACITY,
    LEASE,
    click.option(
        "--idle",
        type=Duration(),
        help="Stop it when neither its GPUs nor its CPU were used for this time: 30m, 2h.",
    ),
    SILENCE,
    THEN_OPTION,
    click.option(
        "--on-reclaim",
        type=click.Choice(["none", "replace"]),
        help="When the cloud takes the spot machine back: replace it, or not.",
    ),
    click.option(
        "--max-replacements",
        type=click.IntRange(1, 1000),
        help="At most so many in 24 hours; the server says 10.",
    ),
    click.option(
        "--handover",
        type=Duration(),
        help="Keep the old one for this time after the new one can be used: 30s, 5m.",
    ),
)


def gpu_option(*, required: bool) -> Any:
    """Return `--gpu`."""
    return click.option(
        "--gpu",
        "--product",
        "gpu",
        multiple=True,
        required=required,
        help="The GPU; part of its name is enough: 4090. Several are tried in this order.",
    )


def launch_body_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a create or a plan from the values of the options; the server fills in the rest."""
    get = values.get
    gpu = get("gpu") or ()
    named: dict[str, Any] = {"productNames": list(gpu)} if gpu[1:] else {"productName": next(iter(gpu), None)}
    body = {
        "name": get("name"),
        **named,
        "templateId": get("template"),
        "gpuNum": get("gpu_num"),
        "rootfsSize": get("disk"),
        "regions": list(get("region") or ()) or None,
        "maxHourlyPrice": None if get("max_price") is None else str(get("max_price")),
        "billingMode": BILLING_MODES.get(get("billing") or ""),
        "fallbackAfterSeconds": _whole(get("fallback_after")),
        "optimize": get("optimize"),
        "labels": labels_of(get("label") or ()) or None,
        "webhookUrl": get("webhook_url"),
        "onFailure": get("on_failure"),
        "healthCheck": health_check_of(get("health_port"), get("health_path"), get("health_timeout")),
        "waitForCapacity": get("wait_for_capacity") and {"seconds": get("wait_for_capacity")},
        "lease": _without_none({"seconds": _whole(get("lease")), "then": get("then")})
        if get("lease")
        else None,
        "autoStop": _auto_stop(get("silence"), get("idle"), get("then")),
        "onReclaim": get("on_reclaim"),
        "maxReplacements": get("max_replacements"),
        "handoverSeconds": _whole(get("handover")),
        "imageUrl": get("image"),
        "command": get("command"),
        "envs": {**secret_envs_of(get("secret") or ()), **envs_of(get("env") or ())} or None,
        "ports": list(get("port") or ()) or None,
        "minCudaVersion": get("min_cuda"),
        "registryAuthId": get("registry_auth"),
        "volumes": _volumes(get("volume") or ()) or None,
    }
    return _without_none(body)


def health_check_of(port: int | None, path: str | None, timeout_s: float | None) -> dict[str, Any] | None:
    """Return the health check that the options ask for; the server fills in the rest."""
    wait_ms = None if timeout_s is None else round(timeout_s * 1000)
    return _without_none({"targetPort": port, "path": path, "maxWaitTimeMs": wait_ms}) or None


def envs_of(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the variables from NAME=VALUE, or from NAME with the value of this environment."""
    envs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in environ:
            raise click.BadParameter(f"there is no variable {name!r} here", param_hint="--env")
        envs[name] = value if equals else environ[name]
    return envs


def secret_envs_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the variables from NAME=SECRET; the server has their values."""
    envs = {}
    for word in words:
        name, _, secret = word.partition("=")
        if not secret:
            raise click.BadParameter(f"{word!r} is not NAME=SECRET", param_hint="--secret")
        envs[name] = {"secret": secret}
    return envs


def require_gpu_and_template(output: Output, values: Mapping[str, Any], *, or_plan: bool = False) -> None:
    """Reject a rental without a GPU, or with neither template nor image; show the choices of both."""
    context = click.get_current_context()
    missing = {"gpu": "Or rent a plan: --plan." if or_plan else None}
    if values["image"] is None:
        missing["template"] = "Or give an image: --image."
    for name, hint in missing.items():
        if not values[name]:
            _suggest_values(output, context.command_path, values)
            parameter = next(param for param in context.command.params if param.name == name)
            raise click.MissingParameter(hint, ctx=context, param=parameter)


# What a rental needs: the option, its choices, the command that lists them all.
_NEEDED: dict[str, tuple[str, Lookup, str]] = {
    "gpu": ("--gpu", gpu_choices, "gpuherd offers"),
    "template": ("--template", template_choices, "gpuherd templates"),
}


def _suggest_values(output: Output, command_path: str, values: Mapping[str, Any]) -> None:
    """Show the choices of everything that is missing, and a command to paste."""
    command = command_path.split()
    for name, (option, lookup, more) in _NEEDED.items():
        if name == "template" and not values["template"] and values["image"]:
            command += ["--image", values["image"]]
            continue
        given = values[name]
        words = [given] if isinstance(given, str) else list(given or ())
        if not words:
            found = fetch_choices(lookup, command_context(), SUGGESTION_TIMEOUT_S)
            if not found:
                return
            rest = f"; all of them: {more}" if len(found) > SUGGESTIONS_MAX else ""
            output.note(f"{option} can be{rest}", "bold")
            output.err.print(pairs([(names[0], about) for names, about in found[:SUGGESTIONS_MAX]]))
            words = [found[0][0][0]]
        for word in words:
            command += [option, word]
    output.note(f"for example: {safe(shlex.join(command))}\n", "yellow")


def _auto_stop(silence_s: float | None, idle_s: float | None, then: str | None) -> dict[str, Any] | None:
    if silence_s is None and idle_s is None:
        return None
    ends = {"idleSeconds": _whole(idle_s), "silenceSeconds": _whole(silence_s), "then": then or "stop"}
    return _without_none(ends)


def _volumes(words: Sequence[str]) -> list[dict[str, str]]:
    found: dict[str, str] = {}
    for word in words:
        volume_id, separator, path = word.partition(":")
        if not separator or not volume_id or not path or volume_id in found:
            raise click.BadParameter("say it like ID:/data, each volume once", param_hint="--volume")
        found[volume_id] = path
    return [{"id": volume_id, "mountPath": path} for volume_id, path in found.items()]


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
