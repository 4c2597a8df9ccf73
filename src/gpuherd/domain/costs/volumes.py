"""The meter of network volumes: what a look at them opens, carries on and closes.

A look shows every volume there is, or it fails. What is there at one look and not at the next was deleted in
between. What is there at the first look of all may be old: what it has cost until then is not ours to say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from gpuherd.domain.costs.amount import nano_usd
from gpuherd.domain.costs.bill import StorageVolume
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge, PriceSource, Rate
from gpuherd.domain.costs.subject import CostSubject
from gpuherd.domain.fast_replace import replace

PRODUCT_NAME = "network volume"


class VolumeLook(NamedTuple):
    """When the volumes were looked at; `previous` is when the look before began, None if there was none."""

    previous: datetime | None
    started_at: datetime
    finished_at: datetime

    @property
    def since_previous(self) -> Edge:
        """The interval in which everything has happened that this look shows for the first time."""
        begin = self.finished_at if self.previous is None else self.previous
        # The wall clock may have been set back meanwhile.
        return Edge(min(begin, self.finished_at), self.finished_at)


def read_volumes(
    going_on: Mapping[str, CostSpan], listed: Iterable[StorageVolume], look: VolumeLook
) -> list[CostSpan]:
    """Return the spans that a look opens, carries on and closes."""
    found: list[CostSpan] = []
    seen = {it.volume_id: it for it in listed}
    for volume_id, span in going_on.items():
        volume = seen.get(volume_id)
        rate = None if volume is None else rate_of(volume)
        if rate is None or rate.nano_usd != span.rate.nano_usd:
            by = "removed" if rate is None else "rate"
            found.append(replace(span, ended=_end(span, look), ended_by=by, sure_until=None))
        if rate is not None and rate.nano_usd != span.rate.nano_usd:
            found += _opened(volume_id, rate, _end(span, look), "rate", look)
        elif rate is not None:
            found.append(replace(span, sure_until=look.started_at))
    for volume_id, volume in seen.items():
        if volume_id not in going_on:
            found += _opened(volume_id, rate_of(volume), look.since_previous, "listed", look)
    return found


def rate_of(volume: StorageVolume) -> Rate:
    return Rate(nano_usd(volume.hourly_usd), PriceSource.CATALOGUE)


def subject_of_volume(volume_id: str, volume: StorageVolume | None, now: datetime) -> CostSubject:
    """Return whose a volume is: the account's, and no key's."""
    return CostSubject(
        volume_id,
        None,
        None,
        now,
        name="" if volume is None else volume.name,
        product_name=PRODUCT_NAME,
        region="" if volume is None else volume.region,
    )


def _end(span: CostSpan, look: VolumeLook) -> Edge:
    edge = look.since_previous
    return Edge(max(edge.lo, min(span.began.lo, edge.hi)), edge.hi)


def _opened(volume_id: str, rate: Rate, began: Edge, by: str, look: VolumeLook) -> list[CostSpan]:
    if not rate.nano_usd:
        return []
    return [CostSpan(volume_id, CostKind.VOLUME, rate, began, by, sure_until=look.started_at)]
