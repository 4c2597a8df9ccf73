"""The commands about instances and their ends: ls, show, lease, keep."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import click
from rich.text import Text

from gpuherd.entrypoints.cli.cli_output import (
    Ago,
    Column,
    ListTable,
    Output,
    Row,
    amount_of,
    joined,
    moment_of,
    safe,
    usd,
    usd_an_hour,
    usd_with_doubt,
)
from gpuherd.entrypoints.cli.command_runner import (
    ALL_OPTION,
    LABEL_OPTION,
    LIMIT_OPTION,
    NAME_OR_ID,
    THEN_OPTION,
    labels_of,
    server_command,
)
from gpuherd.entrypoints.cli.instance_facts import (
    endpoint_lines,
    find_instance,
    status_style,
    variables_text,
)
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.durations import parse_duration, relative_time, rough_duration

STATUSES = (
    *("creating", "starting", "running", "health_checking", "ready"),
    *("stopping", "exited", "migrating", "deleting", "deleted", "failed"),
)
# In these states the instance is not usable, or not for long.
AT_REST = frozenset({"stopping", "exited", "deleting", "deleted", "failed"})
# In these states only a part is paid: a disk, or a machine that was kept after a failure.
PAID_IN_PART = frozenset({"exited", "failed", "deleted"})


# --- look ---


@server_command(
    "ls",
    click.option("--status", type=click.Choice(STATUSES), help="Only those with this status."),
    LABEL_OPTION,
    click.option("--name", help="Only those with this name."),
    LIMIT_OPTION,
    ALL_OPTION,
    ids=True,
)
def list_instances(
    server: ServerConnection,
    output: Output,
    status: str | None,
    label: tuple[str, ...],
    name: str | None,
    limit: int,
    everything: bool,
) -> None:
    """List instances."""
    if len(label) > 1:
        # The API would silently use only one.
        raise click.BadParameter("a list can be filtered by one label only", param_hint="--label")
    pair = next((f"{key}={value}" for key, value in labels_of(label).items()), None)
    reply = server.rows(
        "/api/instances",
        "instances",
        everything=everything,
        status=status,
        name=name,
        label=pair,
        limit=limit,
    )
    is_filtered = any(value is not None for value in (status, name, pair))
    empty = "no instance is like that" if is_filtered else "no instances yet; rent one with: gpuherd up"
    now = output.clock.now()
    columns = [
        Column("NAME", "name", 0, shrinks_to=16),
        Column("STATUS", "status", 1, style=_style),
        Column("GPU", _gpu, 5, shrinks_to=14),
        Column("REGION", "region", 3),
        Column("PRICE", lambda row: usd_an_hour(_price_now(row)), 2, right=True),
        Column("COST", lambda row: _spent(row, now), 4, right=True),
        Column("ENDS", lambda row: _ends(row, now), 6),
        Column("CREATED", Ago("createdAt"), 7),
        Column("ID", "id", 8),
    ]
    output.list(ListTable("instances", columns, empty), reply)


@server_command("show", NAME_OR_ID, ids=True)
def show(server: ServerConnection, output: Output, name_or_id: str) -> None:
    """Show everything about one instance."""
    instance = find_instance(server, name_or_id)
    if not output.for_people:
        output.answer(instance, str(instance["id"]))
        return
    when, get, ports = output.when, instance.get, instance.get("ports")
    volumes = [f"{volume.get('id')} at {volume.get('mountPath')}" for volume in get("volumes") or ()]
    error = get("lastError") or {}
    output.page(
        ("name", str(instance["name"])),
        ("id", str(instance["id"])),
        ("status", Text(safe(instance["status"]), _style(instance))),
        ("reason", get("statusReason")),
        ("gpu", _gpu(instance)),
        ("region", get("region")),
        ("price", joined(usd_an_hour(get("hourlyPrice")), get("billingMode"))),
        ("disk", _disk(instance)),
        ("cost so far", _spent_with_doubt(instance, output)),
        ("template", get("templateId")),
        ("image", get("imageUrl")),
        ("command", get("command")),
        ("ports", "" if ports is None else ", ".join(ports) or "none"),
        ("CUDA", f"{get('minCudaVersion')} or newer" if get("minCudaVersion") else ""),
        ("pulled with", get("registryAuthId")),
        ("volumes", ", ".join(volumes)),
        ("variables", variables_text(get("envs"))),
        ("cloud id", get("cloudInstanceId")),
        ("created", when(get("createdAt"))),
        ("started", when(get("startedAt"))),
        ("ready", when(get("readyAt"))),
        ("stopped", when(get("stoppedAt"))),
        ("taken back", when(get("lossExpectedAt"))),
        ("ends", _ends_line(instance, output)),
        ("health", (get("healthCheck") or {}).get("status")),
        *endpoint_lines(instance),
        ("labels", ", ".join(f"{key}={value}" for key, value in (get("labels") or {}).items())),
        ("webhook", get("webhookUrl")),
        ("last error", joined(error.get("code"), error.get("message"), by=": ")),
        ("note", "the cloud could not be asked: last known state" if get("stale") else ""),
    )


def _style(instance: Row) -> str:
    return status_style(str(instance.get("status")), usable=bool(instance.get("usable")))


def _gpu(instance: Row) -> str:
    count, product = instance.get("gpuNum"), str(instance.get("productName") or "")
    return f"{count} × {product}" if count not in (None, 1) and product else product


def _price_now(instance: Row) -> object:
    """Return the hourly cost: the full price while it runs or will run, otherwise what is still paid."""
    cost = instance.get("cost")
    is_paid_in_part = instance["status"] in PAID_IN_PART and cost is not None
    return cost.get("hourlyNow") if is_paid_in_part else instance.get("hourlyPrice")


def _spent(instance: Row, now: datetime) -> str:
    """Return the cost so far; empty before a list has shown its machine."""
    cost = instance.get("cost") or {}
    settled_at = moment_of(cost.get("settledAt"))
    if settled_at is None:
        return ""
    hours = Decimal(max(0.0, (now - settled_at).total_seconds())) / 3600
    return usd((amount_of(cost.get("settled")) or 0) + (amount_of(cost.get("hourlyNow")) or 0) * hours)


def _spent_with_doubt(instance: Row, output: Output) -> str:
    """Return the same with its parts: what is settled is uncertain, what continues since then has a price."""
    cost = instance.get("cost") or {}
    if not cost.get("settledAt"):
        return ""
    settled = usd_with_doubt(cost.get("settled"), cost.get("uncertainty"))
    if not amount_of(cost.get("hourlyNow")):
        return settled
    since = (
        f"settled {output.when(cost['settledAt'])}: {settled}, since then {usd_an_hour(cost['hourlyNow'])}"
    )
    return f"{_spent(instance, output.clock.now())} ({since})"


def _ends(instance: Row, now: datetime) -> str:
    """Return when it ends by itself; empty if it does not."""
    ends = [moment_of((instance.get(name) or {}).get("endsAt")) for name in ("lease", "autoStop")]
    end = min((moment for moment in ends if moment), default=None)
    return relative_time(end, now) if end else ""


def _ends_line(instance: Row, output: Output) -> str:
    parts = []
    if lease := instance.get("lease"):
        at = output.when(lease.get("endsAt")) or "so long after it is rented"
        parts.append(f"{lease.get('then')} {at} (lease)")
    auto_stop = instance.get("autoStop") or {}
    for name, what in (("silenceSeconds", "silence"), ("idleSeconds", "idleness")):
        if auto_stop.get(name) is not None:
            parts.append(f"{auto_stop.get('then')} after {rough_duration(auto_stop[name])} of {what}")
    return ", ".join(parts)


def _disk(instance: Row) -> str:
    size = f"{instance['rootfsSize']} GB" if instance.get("rootfsSize") else ""
    price = amount_of(instance.get("diskHourlyPrice"))
    return f"{size}, {usd_an_hour(price)} of the price, also while it is stopped" if size and price else size


# --- when an instance ends ---


def _moment_with_zone(
    _context: click.Context, _parameter: click.Parameter, words: str | None
) -> datetime | None:
    if words is None:
        return None
    try:
        moment = datetime.fromisoformat(words.strip())
    except ValueError:
        moment = None
    # A date alone could mean its begin or its end, in any zone.
    if moment is None or moment.tzinfo is None:
        example = "like 2026-12-24T18:00Z or 2026-12-24T19:00+01:00"
        raise click.BadParameter(f"say a moment with its time zone, {example}")
    return moment


@server_command(
    "lease",
    NAME_OR_ID,
    click.argument("span", required=False, metavar="[DURATION]", help="How long from now: +2h, 90m, 3d."),
    click.option(
        "--until", callback=_moment_with_zone, metavar="TIME", help="Until then: 2026-12-24T18:00Z."
    ),
    click.option("--none", is_flag=True, help="Take the lease away: it ends by hand only."),
    THEN_OPTION,
    ids=True,
)
def lease(
    server: ServerConnection,
    output: Output,
    name_or_id: str,
    span: str | None,
    until: datetime | None,
    none: bool,
    then: str | None,
) -> None:
    """Set when an instance ends, counted from now. It is stopped then, or deleted with --then delete."""
    if (span is not None) + (until is not None) + none != 1:
        raise click.BadParameter("say how long from now (+2h, 90m, 3d), or --until a time, or --none")
    body = {"seconds": _seconds(span), "until": until and until.isoformat(), "then": then}
    found = find_instance(server, name_or_id)
    path = path_of("instances", str(found["id"]), "lease")
    changed = server.delete(path) if none else server.post(path, body)
    if output.for_people:
        output.line(_lease_sentence(found, changed, output))
    else:
        output.answer(changed, str(changed["instanceId"]))


@server_command("keep", NAME_OR_ID, ids=True)
def keep(server: ServerConnection, output: Output, name_or_id: str) -> None:
    """Say that an instance is in use, so that silence does not end it."""
    found = find_instance(server, name_or_id)
    instance_id = str(found["id"])
    server.post(path_of("instances", instance_id, "heartbeat"))
    name, status = safe(found["name"]), str(found["status"])
    if not output.for_people:
        output.answer({"instanceId": instance_id}, instance_id)
    elif status in AT_REST:
        output.line(f"{name} is {safe(status)}: it is not in use, and silence does not end it")
    else:
        output.line(f"{name} is in use")


def _seconds(span: str | None) -> int | None:
    if span is None:
        return None
    try:
        return round(parse_duration(span.removeprefix("+")))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _lease_sentence(instance: Row, changed: Row, output: Output) -> str:
    name, is_stopped = safe(instance["name"]), instance["status"] == "exited"
    end = output.when(changed.get("endsAt"))
    if not end:
        return f"{name} has no end: {'once started, ' if is_stopped else ''}it runs until somebody stops it"
    cost = amount_of(changed.get("costUntilEnd"))
    costs = None if cost is None else f"costs {usd(cost) if cost else 'nothing'} until then"
    if is_stopped and changed.get("then") == "stop":
        sentence = f"{name} is stopped already; its lease ends {end}"
        return sentence if costs is None else f"{sentence}, and it {costs}"
    sentence = f"{name} is {'deleted' if changed.get('then') == 'delete' else 'stopped'} {end}"
    return sentence if costs is None else f"{sentence}, and {costs}"
