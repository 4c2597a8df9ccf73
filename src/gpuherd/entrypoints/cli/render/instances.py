"""What people see of instances: the list and the page of one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from gpuherd.domain.instance.instance import Status
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.cli.render.times import relative_time


def status_style(details: Details) -> str:
    """Green works, red needs a person, yellow is on its way."""
    if details.usable:
        return "green"
    if details.status == Status.FAILED:
        return "red"
    return "dim" if details.status in (Status.EXITED, Status.DELETED) else "yellow"


def instance_table(rows: Sequence[Details], now: datetime, width: int) -> Table:
    """Build the table of instances."""
    columns: list[Column[Details]] = [
        Column("NAME", lambda d: d.name, 0, shrinks_to=16),
        Column("STATUS", lambda d: d.status, 1, style=status_style),
        Column("GPU", _gpu, 4, shrinks_to=14),
        Column("REGION", lambda d: d.text("region"), 3),
        Column("PRICE", lambda d: d.price, 2, right=True),
        Column("CREATED", lambda d: when(d, "createdAt", now), 5),
        Column("ID", lambda d: d.id, 6),
    ]
    return table(columns, rows, width)


def instance_page(details: Details, now: datetime) -> Table:
    """Build the page of one instance, without empty fields."""
    status = Text(safe(details.status), status_style(details))
    lines: list[tuple[str, Text | str]] = [
        ("name", details.name),
        ("id", details.id),
        ("status", status),
        ("reason", details.text("statusReason")),
        ("gpu", _gpu(details)),
        ("region", details.text("region")),
        ("price", " ".join(filter(None, (details.price, details.text("billingMode"))))),
        ("disk", f"{details.text('rootfsSize')} GB" if details.text("rootfsSize") else ""),
        ("template", details.text("templateId")),
        ("image", details.text("imageUrl")),
        ("cloud id", details.text("cloudInstanceId", "novitaInstanceId")),
        *((name, when(details, key, now)) for name, key in _MOMENTS),
        ("health", Details(details.mapping("healthCheck")).text("status")),
        *endpoint_lines(details),
        ("labels", ", ".join(f"{key}={value}" for key, value in details.mapping("labels").items())),
        ("webhook", details.text("webhookUrl")),
        ("last error", _last_error(details)),
        (
            "note",
            "the cloud could not be asked: last known state" if details.raw.get("stale") is True else "",
        ),
    ]
    return pairs([(name, value) for name, value in lines if value])


def endpoint_lines(details: Details) -> list[tuple[str, Text | str]]:
    """Return the ways in, for `pairs`."""
    return [(_WAYS.get(name, name), where) for name, where in details.endpoints]


def when(details: Details, key: str, now: datetime) -> str:
    """Say when it was, or nothing if it was not yet."""
    moment = details.time(key)
    return relative_time(moment, now) if moment else ""


_WAYS = {"webTerminal": "terminal"}
_MOMENTS = (
    ("created", "createdAt"),
    ("started", "startedAt"),
    ("ready", "readyAt"),
    ("stopped", "stoppedAt"),
)


def _gpu(details: Details) -> str:
    number = details.text("gpuNum")
    product = details.text("productName")
    return f"{number} × {product}" if number not in ("", "1") and product else product


def _last_error(details: Details) -> str:
    error = Details(details.last_error)
    return ": ".join(filter(None, (error.text("code"), error.text("message"))))
