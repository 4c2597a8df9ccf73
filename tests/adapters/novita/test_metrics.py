"""Measurements as Novita writes them, on good days and bad ones: what is not whole is left out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuherd.adapters.novita.novita_billing import read_samples
from gpuherd.domain.instance.idleness import Utilization

AT = 1_790_000_000
MOMENT = datetime.fromtimestamp(AT, UTC)


def points(*values: Any, begin: int = AT) -> list[dict[str, Any]]:
    return [{"timestamp": str(begin + 60 * n), "value": value} for n, value in enumerate(values)]


def body(cpu: Any, *gpus: Any, **more: Any) -> dict[str, Any]:
    rows = [{"gpuId": str(n), "items": items} for n, items in enumerate(gpus)]
    return {"cpuUtilization": cpu, "gpuUtilization": {"avg": [], "gpuIds": rows}, **more}


def test_a_moment_at_which_all_was_measured_is_a_sample() -> None:
    read = read_samples(body(points(1), points(2.5), points("3"), memUtilization=points(99)))
    assert read == (Utilization(MOMENT, (2.5, 3.0), 1.0),)


def test_a_value_that_is_none_is_no_idleness(subtests: pytest.Subtests) -> None:
    values: list[Any] = [None, "n/a", "NaN", float("nan"), float("inf"), -1, True, [], {}]
    for value in values:
        with subtests.test(value=value):
            assert len(read_samples(body(points(0, value, 0), points(0, 0, 0)))) == 2
            assert len(read_samples(body(points(0, 0, 0), points(0, value, 0), points(0, 0, 0)))) == 2


def test_where_a_series_is_missing_there_is_no_sample(subtests: pytest.Subtests) -> None:
    for reply in [
        {},
        body(points(0)),
        body([], points(0)),
        body(points(0), []),
        body("x", "y"),
        {"cpuUtilization": points(0), "gpuUtilization": {"avg": points(0), "gpuIds": []}},
        {"cpuUtilization": points(0), "gpuUtilization": points(0)},
        body(points(0), points(0, begin=AT + 1)),
    ]:
        with subtests.test(reply=reply):
            assert read_samples(reply) == ()
