"""Network volumes and how they are metered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from gpuherd.domain.money.bill import StorageVolume
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    CostSubject,
    Edge,
    PriceSource,
    Rate,
    nano_usd,
)

VOLUME_GB_MIN, VOLUME_GB_MAX = 10, 4096


@dataclass(frozen=True)
class VolumeOrder:
    """The order of one volume."""

    name: str
    cluster_id: str
    size_gb: int


@dataclass(frozen=True)
class VolumeIntent:
    """A create call that may have been sent; stored before the call.

    Volumes have no tag, so the name is the proof. While a name is taken, no volume of that name is created.
    """

    # Distinguishes this intent from others with the same fields.
    nonce: str
    cluster_id: str
    size_gb: int
    sent_at: datetime

    def is_for(self, order: VolumeOrder) -> bool:
        """Return True if this create is for the same order."""
        return (self.cluster_id, self.size_gb) == (order.cluster_id, order.size_gb)

    def to_text(self) -> str:
        """Return the intent as text, for storage."""
        stored = [self.nonce, self.cluster_id, self.size_gb, self.sent_at.isoformat()]
        return json.dumps(stored)

    @staticmethod
    def of_text(stored: str) -> VolumeIntent:
        """Return the intent from its stored text."""
        nonce, cluster_id, size_gb, sent_at = json.loads(stored)
        return VolumeIntent(nonce, cluster_id, size_gb, datetime.fromisoformat(sent_at))


PRODUCT_NAME = "network volume"


class VolumeLook(NamedTuple):
    """The time of one volume list. `previous` is the start of the list before; None if there was none."""

    previous: datetime | None
    started_at: datetime
    finished_at: datetime
    # By how much the wall clock was set forward since the previous list.
    step: timedelta = timedelta(0)

    @property
    def since_previous(self) -> Edge:
        """The interval that contains every change that this list shows first."""
        begin = self.finished_at if self.previous is None else self.previous + self.step
        # An undetected step may have set the wall clock back.
        return Edge(min(begin, self.finished_at), self.finished_at)

    def by_old_clock(self, edge: Edge) -> Edge:
        """Return an interval by the clock before it was set."""
        return Edge(edge.lo - self.step, edge.hi - self.step)


def read_volumes(
    going_on: Mapping[str, CostSpan], listed: Iterable[StorageVolume], look: VolumeLook
) -> list[CostSpan]:
    """Return the spans that a list opens, continues and closes."""
    found: list[CostSpan] = []
    seen = {it.volume_id: it for it in listed}
    for volume_id, span in going_on.items():
        volume = seen.get(volume_id)
        if volume is None:
            found.append(_closed(span, look.since_previous, "removed", look))
        elif (rate := rate_of(volume)).nano_usd != span.rate.nano_usd:
            seam = _after_begin(span, look.since_previous, look)
            found += [_closed(span, seam, "rate", look), *_opened(volume_id, rate, seam, "rate", look)]
        elif look.step:
            # Neither count an hour that only the clock has seen nor count an hour twice.
            seam = Edge(look.started_at, look.started_at)
            found += [_closed(span, seam, "clock", look), *_opened(volume_id, rate, seam, "clock", look)]
        else:
            found.append(replace(span, sure_until=look.started_at))
    for volume_id, volume in seen.items():
        if volume_id not in going_on:
            found += _opened(volume_id, rate_of(volume), look.since_previous, "listed", look)
    return found


def rate_of(volume: StorageVolume) -> Rate:
    return Rate(nano_usd(volume.hourly_usd), PriceSource.CATALOGUE)


def subject_of_volume(volume_id: str, volume: StorageVolume | None, now: datetime) -> CostSubject:
    """Return whose a volume is: it belongs to the account, not to a key."""
    return CostSubject(
        volume_id,
        None,
        None,
        now,
        name="" if volume is None else volume.name,
        product_name=PRODUCT_NAME,
        region="" if volume is None else volume.region,
    )


def _after_begin(span: CostSpan, edge: Edge, look: VolumeLook) -> Edge:
    """Return an interval, by the present clock, without the part before the start of a span."""
    return Edge(max(edge.lo, min(span.began.lo + look.step, edge.hi)), edge.hi)


def _closed(span: CostSpan, edge: Edge, by: str, look: VolumeLook) -> CostSpan:
    """End a span by the clock that it began with."""
    ended = look.by_old_clock(_after_begin(span, edge, look))
    return replace(span, ended=ended, ended_by=by, sure_until=None)


def _opened(volume_id: str, rate: Rate, began: Edge, by: str, look: VolumeLook) -> list[CostSpan]:
    if not rate.nano_usd:
        return []
    return [CostSpan(volume_id, CostKind.VOLUME, rate, began, by, sure_until=look.started_at)]
