"""Writes the Grafana dashboard from a list of its panels: `python -m tools.grafana`.

A dashboard's JSON is long and hard to review; what a panel asks is one line here. Every series has its name
beside it, so that nobody needs its colour to tell it apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parent.parent / "deploy" / "monitoring" / "dashboard.json"
WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class Query:
    """One line of a panel: what Prometheus is asked, and how the answer is called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """What is drawn. A `stat` is one number, a `timeseries` a line for each series."""

    title: str
    about: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    """Panels of one subject."""

    title: str
    panels: Sequence[Panel]


def _stat(title: str, about: str, expr: str, unit: str = "short", width: int = 4) -> Panel:
    return Panel(title, about, (Query(expr),), unit, "stat", width, 4)


def _quantiles(metric: str) -> tuple[Query, Query]:
    asked = "histogram_quantile({}, sum by (le) (rate({}_bucket[$__rate_interval])))"
    return Query(asked.format(0.5, metric), "half"), Query(asked.format(0.99, metric), "99 of 100")


def _by(label: str, expr: str) -> tuple[Query]:
    """Ask for a line for each value of a label; `{by}` in the expression is where it is grouped."""
    return (Query(expr.replace("{by}", f"by ({label})"), f"{{{{{label}}}}}"),)


ROWS = (
    Row(
        "Money",
        (
            _stat("An hour costs", "Everything on the account.", "max(gpuherd_usd_per_hour)", "currencyUSD"),
            _stat(
                "Last day",
                "GPUs, disks and volumes.",
                "sum(max by (kind) (increase(gpuherd_usd_total[1d])))",
                "currencyUSD",
            ),
            _stat(
                "Of it for nothing",
                "Machines of nobody, failed boots, and what ran past its end.",
                "sum(max by (cause) (increase(gpuherd_waste_usd_total[1d])))",
                "currencyUSD",
            ),
            _stat("Instances that run", "", 'max(gpuherd_instances{status="running"})'),
            _stat("Wait for capacity", "In line for a machine.", "max(gpuherd_waiting_instances)"),
            _stat(
                "Machines of nobody",
                "Surplus, unrecorded and foreign ones.",
                "sum(max by (verdict) (gpuherd_orphans))",
            ),
            Panel(
                "Cost of an hour",
                "What goes on, and what of it belongs to no instance.",
                (
                    Query("max(gpuherd_usd_per_hour)", "all"),
                    Query("max by (verdict) (gpuherd_orphans_usd_per_hour)", "{{verdict}}"),
                ),
                "currencyUSD",
            ),
            Panel(
                "Paid for nothing, a day",
                "By cause. A dollar may have two causes.",
                _by("cause", "max {by} (increase(gpuherd_waste_usd_total[1d]))"),
                "currencyUSD",
            ),
            Panel(
                "Budgets",
                "What is spent of each in its period.",
                _by("budget", "max {by} (gpuherd_budget_ratio)"),
                "percentunit",
            ),
        ),
    ),
    Row(
        "Instances",
        (
            Panel(
                "By status",
                "",
                _by("status", "max {by} (gpuherd_instances)"),
                stacked=True,
            ),
            Panel(
                "Time in a status, half of them below",
                "Counted when an instance leaves it.",
                (
                    Query(
                        "histogram_quantile(0.5, sum by (le, status)"
                        " (rate(gpuherd_instance_status_duration_seconds_bucket[$__rate_interval])))",
                        "{{status}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Create calls",
                "By the state that they came into. Unknown ones are found out from lists.",
                _by("state", "sum {by} (increase(gpuherd_create_attempts_total[$__rate_interval]))"),
            ),
        ),
    ),
    Row(
        "Replacement of spot machines",
        (
            Panel(
                "Replacements",
                "By how they ended: handed over warm, while the old machine ran, or cold, after its loss.",
                (
                    Query(
                        "sum by (outcome) (increase(gpuherd_replacements_total[$__rate_interval]))",
                        "{{outcome}}",
                    ),
                ),
            ),
            Panel(
                "Time without a usable machine",
                "At each handover; 0 of a warm one.",
                _quantiles("gpuherd_handover_gap_seconds"),
                "s",
            ),
        ),
    ),
    Row(
        "Novita",
        (
            Panel(
                "Calls a second",
                "By how they ended.",
                _by("outcome", "sum {by} (rate(gpuherd_novita_calls_total[$__rate_interval]))"),
                "reqps",
            ),
            Panel(
                "How long they take",
                "The exchange alone.",
                _quantiles("gpuherd_novita_call_duration_seconds"),
                "s",
            ),
            Panel(
                "Calls that wait for their turn",
                "By limiter.",
                _by("limiter", "max {by} (gpuherd_rate_limiter_waiting)"),
            ),
        ),
    ),
    Row(
        "API and webhooks",
        (
            Panel(
                "Requests a second",
                "By status of the reply.",
                _by("status", "sum {by} (rate(gpuherd_http_requests_total[$__rate_interval]))"),
                "reqps",
            ),
            Panel(
                "How long replies take",
                "Long polls included.",
                _quantiles("gpuherd_http_request_duration_seconds"),
                "s",
            ),
            Panel(
                "Webhook tries",
                "By how they ended.",
                _by("outcome", "sum {by} (increase(gpuherd_webhook_tries_total[$__rate_interval]))"),
            ),
        ),
    ),
    Row(
        "Service",
        (
            Panel(
                "Oldest job that is due",
                "More than some seconds: the workers do not keep up.",
                (Query("max(gpuherd_jobs_oldest_due_seconds)", "waits"),),
                "s",
            ),
            Panel(
                "Runs of jobs",
                "By how they ended.",
                _by("outcome", "sum {by} (rate(gpuherd_job_runs_total[$__rate_interval]))"),
                "ops",
            ),
            Panel(
                "Database",
                "Transactions that wait for the writer, by process.",
                (Query("gpuherd_database_waiting_writes", "{{instance}}"),),
            ),
            Panel(
                "Replicas",
                "Processes by role, and how many say that they lead.",
                (
                    Query("max by (role) (gpuherd_replicas)", "{{role}}"),
                    Query("sum(gpuherd_is_leader)", "leaders"),
                ),
            ),
            Panel(
                "Memory",
                "By process.",
                (Query('process_resident_memory_bytes{job="gpuherd"}', "{{instance}}"),),
                "bytes",
            ),
            Panel(
                "CPU",
                "Of one core, by process.",
                (Query('rate(process_cpu_seconds_total{job="gpuherd"}[$__rate_interval])', "{{instance}}"),),
                "percentunit",
            ),
        ),
    ),
)


def expressions() -> Iterator[str]:
    """All that the dashboard asks."""
    yield from (query.expr for row in ROWS for panel in row.panels for query in panel.queries)


def dashboard() -> dict[str, Any]:
    """Return what Grafana imports."""
    return {
        "uid": "gpuherd",
        "title": "gpuherd",
        "tags": ["gpuherd"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": list(_placed()),
    }


def _placed() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place}
        top += 1
        left = height = 0
        for panel in row.panels:
            number += 1
            if left + panel.width > WIDTH:
                left, top = 0, top + height
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": place, **_drawn(panel)}
            left, height = left + panel.width, panel.height
        top += height


def _drawn(panel: Panel) -> dict[str, Any]:
    lines = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {"fillOpacity": 5}
    targets = [
        {
            "refId": chr(ord("A") + n),
            "expr": it.expr,
            "legendFormat": it.legend or "__auto",
            "datasource": SOURCE,
        }
        for n, it in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "color": {"mode": "palette-classic-by-name"},
                "custom": lines if panel.kind == "timeseries" else {},
            },
            "overrides": [],
        },
        "targets": targets,
    }


def as_text() -> str:
    """Return the file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    DASHBOARD.write_text(as_text())
