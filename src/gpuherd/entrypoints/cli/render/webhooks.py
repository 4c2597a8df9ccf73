"""What people see of webhooks: endpoints, deliveries, tries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from gpuherd.contract.webhook_models import Delivery, DeliveryTry, WebhookEndpoint, WebhookTest
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.durations import relative_time

_STYLES = {"delivered": "green", "dead": "red", "enabled": "green", "disabled": "red"}


def endpoint_table(rows: Sequence[WebhookEndpoint], now: datetime, width: int) -> Table:
    """Build the table of endpoints."""
    columns: list[Column[WebhookEndpoint]] = [
        Column("ID", lambda it: it.id, 1),
        Column("KIND", lambda it: it.kind, 2),
        Column("URL", lambda it: it.url, 0, shrinks_to=20),
        Column("STATE", _endpoint_state, 2, style=lambda it: _STYLES[_endpoint_state(it)]),
        Column("EVENTS", _events, 4, shrinks_to=12),
        Column("LABEL", lambda it: it.label or "", 3, shrinks_to=8),
        Column("CREATED", lambda it: when(it.created_at, now), 5),
    ]
    return table(columns, rows, width)


def endpoint_page(it: WebhookEndpoint, now: datetime, secret: str = "") -> Table:
    """Build the page of one endpoint, with its secret where there is one."""
    lines: list[tuple[str, Text | str]] = [
        ("id", it.id),
        ("kind", it.kind),
        ("url", it.url),
        ("label", it.label or ""),
        ("events", _events(it)),
        ("state", Text(_endpoint_state(it), _STYLES[_endpoint_state(it)])),
        ("reason", it.disabled_reason or ""),
        ("secret", secret),
        ("note", "" if it.secret_known else "its root key is lost; rotate the secret"),
        ("created", when(it.created_at, now)),
        ("rotated", when(it.rotated_at, now)),
        ("old secret signs until", _overlap(it, now)),
    ]
    return pairs([(name, value) for name, value in lines if value])


def delivery_table(rows: Sequence[Delivery], now: datetime, width: int) -> Table:
    """Build the table of deliveries."""
    columns: list[Column[Delivery]] = [
        Column("ID", lambda it: it.id, 3),
        Column("TYPE", lambda it: it.type, 0, shrinks_to=12),
        Column("STATE", lambda it: it.state, 1, style=_state_style),
        Column("TRIES", lambda it: str(it.tries), 4, right=True),
        Column("CREATED", lambda it: when(it.created_at, now), 5),
        Column("NEXT", lambda it: when(it.next_try_at, now), 6),
        Column("URL", lambda it: it.url, 7, shrinks_to=20),
        Column("ERROR", lambda it: it.last_error or "", 2, shrinks_to=16),
    ]
    return table(columns, rows, width)


def delivery_page(it: Delivery, now: datetime) -> Table:
    """Build the page of one delivery with its tries."""
    lines: list[tuple[str, Text | str]] = [
        ("id", it.id),
        ("type", it.type),
        ("state", Text(safe(it.state), _state_style(it))),
        ("instance", it.instance_id or ""),
        ("endpoint", it.endpoint_id or ""),
        ("url", it.url),
        ("tries", str(it.tries)),
        ("created", when(it.created_at, now)),
        ("next try", when(it.next_try_at, now)),
        ("delivered", when(it.delivered_at, now)),
        ("error", it.last_error or ""),
        *((f"try {n}", _try(one, now)) for n, one in enumerate(it.log, start=1)),
    ]
    return pairs([(name, value) for name, value in lines if value])


def tried_line(tried: WebhookTest) -> Text:
    """Say in one line how a test went."""
    took = f"in {_ms(tried.duration_ms or 0)}"
    if tried.accepted:
        return Text(safe(f"accepted with {tried.status} {took}"), "green")
    return Text(safe(f"not accepted ({tried.outcome}) {took}: {tried.error or ''}"), "red")


def _endpoint_state(it: WebhookEndpoint) -> str:
    return "enabled" if it.enabled else "disabled"


def _events(it: WebhookEndpoint) -> str:
    return "all" if it.events is None else ", ".join(it.events)


def _overlap(it: WebhookEndpoint, now: datetime) -> str:
    until = it.previous_secret_signs_until
    return relative_time(until, now) if until is not None and until > now else ""


def _state_style(it: Delivery) -> str:
    return _STYLES.get(it.state, "yellow")


def _try(one: DeliveryTry, now: datetime) -> str:
    status = "" if one.status is None else str(one.status)
    took = "" if one.duration_ms is None else _ms(one.duration_ms)
    return "  ".join(filter(None, (when(one.at, now), one.outcome, status, took)))


def _ms(duration: float) -> str:
    return f"{int(duration) if duration == int(duration) else duration} ms"
