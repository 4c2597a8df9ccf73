"""Novita's measurements of a machine: one call a machine, one series for the CPU and one for each GPU."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from gpuherd.adapters.novita.failures import ResourceKind
from gpuherd.adapters.novita.fields import moment, part, parts
from gpuherd.adapters.novita.transport import NovitaTransport
from gpuherd.domain.endings.idleness import Utilization
from gpuherd.resilience.rate_limit import Lane, RateLimiter

# Not below the root of the GPU API.
METRICS_PATH = "/openapi/v1/metrics/gpu/instance"

Series = dict[datetime, float]


class NovitaMetrics:
    """The port of the metrics. Its calls wait behind all others, and have a budget of their own."""

    def __init__(self, transport: NovitaTransport, budget: RateLimiter | None = None) -> None:
        self._transport = transport
        self._budget = budget

    async def samples(
        self, cloud_id: str, begin: datetime, end: datetime, interval: timedelta
    ) -> tuple[Utilization, ...]:
        params = {
            "instanceId": cloud_id,
            "startTime": str(int(begin.timestamp())),
            "endTime": str(int(end.timestamp())),
            "interval": str(int(interval.total_seconds())),
        }
        body = await self._transport.read(
            METRICS_PATH, params, about=ResourceKind.MACHINE, lane=Lane.BROWSE, budget=self._budget
        )
        return read_samples(body)


def read_samples(body: dict[str, Any]) -> tuple[Utilization, ...]:
    """Return the moments at which everything was measured, oldest first."""
    cpu = _series(body, "cpuUtilization")
    gpus = [_series(row, "items") for row in parts(part(body, "gpuUtilization"), "gpuIds")]
    if not gpus:
        # An average alone would hide that one of several works.
        return ()
    whole = sorted(at for at in cpu if all(at in series for series in gpus))
    return tuple(Utilization(at, tuple(series[at] for series in gpus), cpu[at]) for at in whole)


def _series(row: dict[str, Any], key: str) -> Series:
    found: Series = {}
    for point in parts(row, key):
        at, value = moment(point, "timestamp"), _percent(point.get("value"))
        if at is not None and value is not None:
            found[at] = value
    return found


def _percent(value: Any) -> float | None:
    """Return a measurement; None where it is none."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
