"""Alert rules and the Grafana dashboard ask for metrics, labels and values that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.resilience.circuit_breaker import BreakerState
from tools.grafana import DASHBOARD, as_text, dashboard, expressions

ROOT = Path(__file__).parent.parent.parent
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
RECORDED = (ROOT / "tests" / "golden" / "recorded" / "metrics.txt").read_text()
# Of Prometheus' own library and server.
OTHERS = {"process_resident_memory_bytes", "process_cpu_seconds_total", "up"}
# What Prometheus adds to every series, and to a histogram's.
ADDED_LABELS = {"job", "instance", "le"}
KNOWN_VALUES = {
    ("gpuherd_create_attempts_total", "state"): {it.value for it in AttemptState},
    ("gpuherd_instances", "status"): {it.value for it in Status},
    ("gpuherd_orphans", "verdict"): {it.value for it in OrphanVerdict},
    ("gpuherd_breaker_state", "state"): {it.value for it in BreakerState},
}


@dataclass(frozen=True)
class Asked:
    """A series that an expression names: its metric, and the labels by which it is chosen."""

    metric: str
    labels: tuple[tuple[str, str], ...]


def types() -> dict[str, str]:
    """Return every metric that the service shows, as it was recorded from the real page."""
    return {it[1]: it[2] for it in re.finditer(r"^# TYPE (\w+) (\w+)$", RECORDED, re.MULTILINE)}


def labels_of() -> dict[str, set[str]]:
    """Return the labels of each metric, as the operators' table states them."""
    rows = re.finditer(r"^\| ((?:`\w+`(?:, )?)+) \| \w+ \| ([\w, ]*)\|", OPERATIONS, re.MULTILINE)
    return {
        name: {it for it in re.split(r"[, ]+", row[2]) if it}
        for row in rows
        for name in re.findall(r"`(\w+)`", row[1])
    }


def parsed(expr: str) -> Any:
    return promql_parser.parse(expr.replace("$__rate_interval", "5m"))


def nodes(expr: str) -> list[Any]:
    found: list[Any] = []
    promql_parser.walk(parsed(expr), found.append)
    return found


def asked(expr: str) -> Iterator[Asked]:
    for node in nodes(expr):
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector):
            chosen = tuple((it.name, it.value) for it in node.matchers.matchers)
            yield Asked(node.name or "", chosen)


EXPRESSIONS = sorted({*expressions(), *(it["expr"] for it in RULES)})


def test_every_metric_label_and_value_exists(subtests: pytest.Subtests) -> None:
    metrics, labels = types(), labels_of()
    for expr in EXPRESSIONS:
        with subtests.test(expr):
            assert list(asked(expr))
            for it in asked(expr):
                if it.metric in OTHERS:
                    assert {name for name, _ in it.labels} <= ADDED_LABELS
                    continue
                family = it.metric.removesuffix("_bucket")
                assert family in metrics, f"{it.metric} is no metric of ours"
                is_histogram = metrics[family] == "histogram"
                assert (it.metric != family) == is_histogram, "a histogram is asked by its buckets"
                for name, value in it.labels:
                    assert name in labels[family] | ADDED_LABELS, f"{family} has no label {name}"
                    assert value in KNOWN_VALUES.get((family, name), {value})


def test_what_is_grouped_by_is_a_label(subtests: pytest.Subtests) -> None:
    for expr in EXPRESSIONS:
        families = {it.metric.removesuffix("_bucket") for it in asked(expr)}
        there = ADDED_LABELS.union(*(labels_of().get(it, set()) for it in families))
        aggregates = [it for it in nodes(expr) if isinstance(it, promql_parser.AggregateExpr)]
        groups = [label for it in aggregates if it.modifier is not None for label in it.modifier.labels]
        with subtests.test(expr):
            assert there.issuperset(groups)


def test_counters_are_asked_for_their_growth_and_gauges_for_their_value(subtests: pytest.Subtests) -> None:
    metrics = types()
    for expr in EXPRESSIONS:
        selectors = [it for it in nodes(expr) if isinstance(it, promql_parser.MatrixSelector)]
        ranged = {it.vector_selector.name for it in selectors}
        for it in asked(expr):
            kind = metrics.get(it.metric.removesuffix("_bucket"))
            with subtests.test(expr):
                assert kind is None or (it.metric in ranged) == (kind in ("counter", "histogram")), kind


def test_an_alert_says_what_is_and_what_to_do_and_is_explained(subtests: pytest.Subtests) -> None:
    for rule in RULES:
        with subtests.test(rule["alert"]):
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert rule["annotations"].keys() == {"summary", "description"}
            assert f"`{rule['alert']}`" in OPERATIONS


def test_the_operators_table_names_no_alert_that_is_gone() -> None:
    assert set(re.findall(r"`(Gpuherd\w+)`", OPERATIONS)) == {it["alert"] for it in RULES}


def test_the_dashboard_is_written_from_its_list() -> None:
    assert DASHBOARD.read_text() == as_text(), "run python -m tools.grafana"


def test_no_panel_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_every_metric_of_money_and_safety_is_on_the_dashboard_or_an_alert() -> None:
    named = {it.metric.removesuffix("_bucket") for expr in EXPRESSIONS for it in asked(expr)}
    # Seen elsewhere, or of use only while something is looked into.
    left_out = {
        "gpuherd_build_info",
        "gpuherd_cache_entries",
        "gpuherd_cache_evictions_total",
        "gpuherd_cache_hits_total",
        "gpuherd_cache_misses_total",
        "gpuherd_event_streams",
        "gpuherd_job_run_duration_seconds",
        "gpuherd_jobs",
        "gpuherd_rate_limiter_calls_per_second",
        "gpuherd_trace_spans_total",
        "gpuherd_webhook_try_duration_seconds",
    }
    assert types().keys() - named == left_out
