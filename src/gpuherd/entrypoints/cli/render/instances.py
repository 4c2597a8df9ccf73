"""What people see of instances: the list, the page of one, and what was rented in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from rich.table import Table
from rich.text import Text

from gpuherd.contract.instance_models import Instance
from gpuherd.contract.wire_models import price_text
from gpuherd.entrypoints.cli.render.amounts import usd, usd_sure
from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.durations import relative_time, rough_duration


class Rentable(Protocol):
    """What was, or could be, rented."""

    @property
    def product_name(self) -> str | None: ...
    @property
    def region(self) -> str | None: ...
    @property
    def hourly_price(self) -> Decimal | None: ...


def status_style(status: str, *, usable: bool) -> str:
    """Green works, red needs a person, yellow is on its way."""
    if usable:
        return "green"
    if status == "failed":
        return "red"
    return "dim" if status in ("exited", "deleted") else "yellow"


def variables(envs: Mapping[str, Any] | None) -> str:
    """Return the variables of a container: their names, and which secrets are meant."""
    words = []
    for name, value in (envs or {}).items():
        secret = value.get("secret") if isinstance(value, Mapping) else None
        words.append(f"{name} from the secret {secret}" if secret else f"{name}=***")
    return ", ".join(words)


def instance_table(rows: Sequence[Instance], now: datetime, width: int) -> Table:
    """Build the table of instances."""
    columns: list[Column[Instance]] = [
        Column("NAME", lambda it: it.name, 0, shrinks_to=16),
        Column("STATUS", lambda it: it.status, 1, style=_style),
        Column("GPU", _gpu, 5, shrinks_to=14),
        Column("REGION", lambda it: it.region or "", 3),
        Column("PRICE", lambda it: usd_an_hour(price_now(it)), 2, right=True),
        Column("COST", lambda it: spent(it, now), 4, right=True),
        Column("ENDS", lambda it: ends(it, now), 6),
        Column("CREATED", lambda it: when(it.created_at, now), 7),
        Column("ID", lambda it: it.id, 8),
    ]
    return table(columns, rows, width)


def instance_page(it: Instance, now: datetime) -> Table:
    """Build the page of one instance, without empty fields."""
    lines: list[tuple[str, Text | str]] = [
        ("name", it.name),
        ("id", it.id),
        ("status", Text(safe(it.status), _style(it))),
        ("reason", it.status_reason or ""),
        ("gpu", _gpu(it)),
        ("region", it.region or ""),
        ("price", " ".join(filter(None, (usd_an_hour(it.hourly_price), it.billing_mode)))),
        ("disk", _disk(it)),
        ("cost so far", _spent_surely(it, now)),
        ("template", it.template_id or ""),
        ("image", it.image_url or ""),
        ("command", it.command or ""),
        ("ports", "" if it.ports is None else ", ".join(it.ports) or "none"),
        ("CUDA", f"{it.min_cuda_version} or newer" if it.min_cuda_version else ""),
        ("pulled with", it.registry_auth_id or ""),
        ("volumes", ", ".join(f"{one.id} at {one.mount_path}" for one in it.volumes or ())),
        ("variables", variables(it.envs)),
        ("cloud id", it.cloud_instance_id or ""),
        ("created", when(it.created_at, now)),
        ("started", when(it.started_at, now)),
        ("ready", when(it.ready_at, now)),
        ("stopped", when(it.stopped_at, now)),
        ("taken back", when(it.loss_expected_at, now)),
        ("ends", _ends_line(it, now)),
        ("health", it.health_check.status if it.health_check else ""),
        *endpoint_lines(it),
        ("labels", ", ".join(f"{key}={value}" for key, value in it.labels.items())),
        ("webhook", it.webhook_url or ""),
        ("last error", _last_error(it)),
        ("note", "the cloud could not be asked: last known state" if it.stale else ""),
    ]
    return pairs([(name, value) for name, value in lines if value])


def endpoint_lines(it: Instance) -> list[tuple[str, Text | str]]:
    """Return the ways in, for `pairs`."""
    named = it.connection
    ways = (
        []
        if named is None
        else [("ssh", named.ssh), ("jupyter", named.jupyter), ("terminal", named.web_terminal)]
    )
    ports = [(f"port {mapping.port}", mapping.endpoint) for mapping in it.port_mappings]
    return [(name, where) for name, where in (*ways, *ports) if where]


def facts_of(it: Rentable, gpu_num: int | None, billing_mode: str | None) -> list[str]:
    """Return what was, or will be, rented: product, region, price."""
    count = f"{gpu_num} × " if gpu_num not in (None, 1) else ""
    price = " ".join(filter(None, (usd_an_hour(it.hourly_price), _BILLING.get(billing_mode or "", ""))))
    facts = (count + it.product_name if it.product_name else "", it.region, price)
    return [fact for fact in facts if fact]


def when(moment: datetime | None, now: datetime) -> str:
    """Say when it was, or nothing if it was not yet."""
    return relative_time(moment, now) if moment else ""


def price_now(it: Instance) -> Decimal | None:
    """Return what it costs an hour: all of it while it runs, or shall run; else what is still paid for."""
    if it.status in _AT_REST and it.cost is not None:
        return it.cost.hourly_now
    return it.hourly_price


def spent(it: Instance, now: datetime) -> str:
    """Say what it has cost so far, or nothing before a list has shown its machine."""
    cost = it.cost
    if cost is None or cost.settled_at is None:
        return ""
    hours = Decimal(max(0.0, (now - cost.settled_at).total_seconds())) / 3600
    return usd(cost.settled + cost.hourly_now * hours)


def _spent_surely(it: Instance, now: datetime) -> str:
    """Say the same with its parts: what is settled has an uncertainty, what goes on since then a price."""
    cost = it.cost
    if cost is None or cost.settled_at is None:
        return ""
    settled = usd_sure(cost.settled, cost.uncertainty)
    if not cost.hourly_now:
        return settled
    parts = f"settled {when(cost.settled_at, now)}: {settled}, since then {usd_an_hour(cost.hourly_now)}"
    return f"{spent(it, now)} ({parts})"


def ends(it: Instance, now: datetime) -> str:
    """Say when it ends by itself, or nothing if it does not."""
    moments = [part.ends_at for part in (it.lease, it.auto_stop) if part is not None and part.ends_at]
    return when(min(moments, default=None), now)


def usd_an_hour(amount: Decimal | None) -> str:
    """Say a price as people do, or nothing if it is none."""
    return "" if amount is None else f"{price_text(amount)}/h"


# What is not to run costs what is left of it: a disk, or a machine that was kept after a failure.
_AT_REST = frozenset({"exited", "failed", "deleted"})
_BILLING = {"spot": "spot", "onDemand": "on-demand", "auto": "spot or on-demand"}


def _style(it: Instance) -> str:
    return status_style(it.status, usable=it.usable)


def _gpu(it: Instance) -> str:
    product = it.product_name or ""
    return f"{it.gpu_num} × {product}" if it.gpu_num not in (None, 1) and product else product


def _ends_line(it: Instance, now: datetime) -> str:
    parts = []
    if it.lease is not None:
        at = when(it.lease.ends_at, now) or "so long after it is rented"
        parts.append(f"{it.lease.then} {at} (lease)")
    auto_stop = it.auto_stop
    if auto_stop is not None and auto_stop.silence_seconds is not None:
        parts.append(f"{auto_stop.then} after {rough_duration(auto_stop.silence_seconds)} of silence")
    if auto_stop is not None and auto_stop.idle_seconds is not None:
        parts.append(f"{auto_stop.then} after {rough_duration(auto_stop.idle_seconds)} of idleness")
    return ", ".join(parts)


def _disk(it: Instance) -> str:
    size = f"{it.rootfs_size} GB" if it.rootfs_size else ""
    if not size or not it.disk_hourly_price:
        return size
    return f"{size}, {usd_an_hour(it.disk_hourly_price)} of the price, also while it is stopped"


def _last_error(it: Instance) -> str:
    error = it.last_error
    return ": ".join(filter(None, (error.code, error.message))) if error else ""
