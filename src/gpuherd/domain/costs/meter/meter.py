"""The meter: what a list of the cloud's machines opens and closes in the spans of one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuherd.domain.costs.meter.disk import read_disk
from gpuherd.domain.costs.meter.gpu import read_gpu
from gpuherd.domain.costs.meter.reading import MachineMeter, MeterReading
from gpuherd.domain.costs.meter.tariff import NO_RATE
from gpuherd.domain.costs.span import CostKind, CostSpan


def read_meter(meter: MachineMeter, reading: MeterReading) -> list[CostSpan]:
    """Return the spans that a list opens, closes or puts in doubt, in the order in which to write them."""
    return [*_price(meter, reading), *read_gpu(meter, reading), *read_disk(meter, reading)]


def _price(meter: MachineMeter, it: MeterReading) -> Iterator[CostSpan]:
    """Give spans that have ended the price that nobody knew then."""
    for span in meter.unpriced:
        rate = it.rate(CostKind.GPU, again=False)
        if rate is not NO_RATE:
            yield replace(span, rate=rate)
