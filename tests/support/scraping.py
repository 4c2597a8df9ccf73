"""A scrape as Prometheus sees it: read by the library's own parser, so that a malformed page fails."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gpuherd.ports.telemetry_port import MetricsPage


@dataclass(frozen=True)
class Scrape:
    """One page, by the names of its metrics (the parser calls a counter by its name without `_total`)."""

    families: dict[str, Metric]

    @property
    def samples(self) -> list[Sample]:
        return [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """Return the one sample with this name and exactly these labels."""
        (found,) = [it.value for it in self.samples if it.name == name and it.labels == labels]
        return float(found)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with this name that have at least these labels."""
        wanted = labels.items()
        return sum(it.value for it in self.samples if it.name == name and wanted <= it.labels.items())


def read_page(page: bytes) -> Scrape:
    """Parse a page."""
    return Scrape({it.name: it for it in text_string_to_metric_families(page.decode())})


async def scrape(page: MetricsPage) -> Scrape:
    """Render and parse a page."""
    body, _ = await page.render()
    return read_page(body)
