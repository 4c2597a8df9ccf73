"""What people see of webhooks: endpoints, deliveries, tries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.cli.render.times import parse_time, relative_time

_STYLES = {"delivered": "green", "dead": "red", "enabled": "green", "disabled": "red"}


def endpoint_table(rows: Sequence[Details], now: datetime, width: int) -> Table:
    """Build the table of endpoints."""
    columns: list[Column[Details]] = [
        Column("ID", lambda e: e.id, 1),
        Column("URL", lambda e: e.text("url"), 0, shrinks_to=20),
        Column("STATE", _endpoint_state, 2, style=lambda e: _STYLES[_endpoint_state(e)]),
        Column("EVENTS", _events, 4, shrinks_to=12),
        Column("LABEL", lambda e: e.text("label"), 3, shrinks_to=8),
        Column("CREATED", lambda e: when(e, "createdAt", now), 5),
    ]
    return table(columns, rows, width)


def endpoint_page(endpoint: Details, now: datetime) -> Table:
    """Build the page of one endpoint, with its secret where there is one."""
    lines: list[tuple[str, Text | str]] = [
        ("id", endpoint.id),
        ("url", endpoint.text("url")),
        ("label", endpoint.text("label")),
        ("events", _events(endpoint)),
        ("state", Text(_endpoint_state(endpoint), _STYLES[_endpoint_state(endpoint)])),
        ("reason", endpoint.text("disabledReason")),
        ("secret", endpoint.text("secret")),
        ("note", "" if _secret_known(endpoint) else "its root key is lost; rotate the secret"),
        ("created", when(endpoint, "createdAt", now)),
        ("rotated", when(endpoint, "rotatedAt", now)),
        ("old secret signs until", _overlap(endpoint, now)),
    ]
    return pairs([(name, value) for name, value in lines if value])


def delivery_table(rows: Sequence[Details], now: datetime, width: int) -> Table:
    """Build the table of deliveries."""
    columns: list[Column[Details]] = [
        Column("ID", lambda d: d.id, 3),
        Column("TYPE", lambda d: d.text("type"), 0, shrinks_to=12),
        Column("STATE", lambda d: d.text("state"), 1, style=_state_style),
        Column("TRIES", lambda d: d.text("tries"), 4, right=True),
        Column("CREATED", lambda d: when(d, "createdAt", now), 5),
        Column("NEXT", lambda d: when(d, "nextTryAt", now), 6),
        Column("URL", lambda d: d.text("url"), 7, shrinks_to=20),
        Column("ERROR", lambda d: d.text("lastError"), 2, shrinks_to=16),
    ]
    return table(columns, rows, width)


def delivery_page(delivery: Details, now: datetime) -> Table:
    """Build the page of one delivery with its tries."""
    log = delivery.raw.get("log")
    tries = [Details(one) for one in log if isinstance(one, dict)] if isinstance(log, list) else []
    moments = (("created", "createdAt"), ("next try", "nextTryAt"), ("delivered", "deliveredAt"))
    lines: list[tuple[str, Text | str]] = [
        ("id", delivery.id),
        ("type", delivery.text("type")),
        ("state", Text(safe(delivery.text("state")), _state_style(delivery))),
        ("instance", delivery.text("instanceId")),
        ("endpoint", delivery.text("endpointId")),
        ("url", delivery.text("url")),
        ("tries", delivery.text("tries")),
        *((name, when(delivery, key, now)) for name, key in moments),
        ("error", delivery.text("lastError")),
        *((f"try {n}", _try(one, now)) for n, one in enumerate(tries, start=1)),
    ]
    return pairs([(name, value) for name, value in lines if value])


def tried_line(tried: Details) -> Text:
    """Say in one line how a test went."""
    took = f"in {tried.text('durationMs') or 0} ms"
    status = tried.text("status")
    if tried.raw.get("accepted") is True:
        return Text(safe(f"accepted with {status} {took}"), "green")
    return Text(safe(f"not accepted ({tried.text('outcome')}) {took}: {tried.text('error')}"), "red")


def _endpoint_state(endpoint: Details) -> str:
    return "enabled" if endpoint.raw.get("enabled") is True else "disabled"


def _secret_known(endpoint: Details) -> bool:
    return endpoint.raw.get("secretKnown") is not False


def _events(endpoint: Details) -> str:
    events = endpoint.raw.get("events")
    return ", ".join(map(str, events)) if isinstance(events, list) else "all"


def _overlap(endpoint: Details, now: datetime) -> str:
    until = parse_time(endpoint.raw.get("previousSecretSignsUntil"))
    return relative_time(until, now) if until is not None and until > now else ""


def _state_style(delivery: Details) -> str:
    return _STYLES.get(delivery.text("state"), "yellow")


def _try(one: Details, now: datetime) -> str:
    parts = (when(one, "at", now), one.text("outcome"), one.text("status"), f"{one.text('durationMs')} ms")
    return "  ".join(filter(None, parts))
