"""The page that Prometheus reads."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector, generate_latest

from gpuherd.adapters.metrics.readings import Readings, Sources


class PrometheusPage:
    """The port `MetricsPage`: what the meter of the same registry counted, and how things stand now."""

    def __init__(self, registry: CollectorRegistry, sources: Sources) -> None:
        self._registry = registry
        self._readings = Readings(sources)
        registry.register(self._readings)
        ProcessCollector(registry=registry)

    async def refresh(self) -> None:
        """Read what can only be had by waiting for it."""
        await self._readings.refresh()

    async def render(self) -> tuple[bytes, str]:
        await self.refresh()
        # No wait in between, so that a page never mixes two readings.
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4
