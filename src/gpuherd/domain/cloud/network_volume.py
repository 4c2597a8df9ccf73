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
    """One volume to make."""

    name: str
    cluster_id: str
    size_gb: int


@dataclass(frozen=True)
class VolumeIntent:
    """A create that may have been sent; written down before the first byte goes out.

    Volumes have no tag, so their name is the witness: none is made while another one has it.
    """

    # Tells it from every other intent of the same words.
    nonce: str
    cluster_id: str
    size_gb: int
    sent_at: datetime

    def is_for(self, order: VolumeOrder) -> bool:
        """Return True if this create asked for the same."""
        return (self.cluster_id, self.size_gb) == (order.cluster_id, order.size_gb)

    def to_text(self) -> str:
        """Return it as it is stored."""
        stored = [self.nonce, self.cluster_id, self.size_gb, self.sent_at.isoformat()]
        return json.dumps(stored)

    @staticmethod
    def of_text(stored: str) -> VolumeIntent:
        """Return what was stored."""
        nonce, cluster_id, size_gb, sent_at = json.loads(stored)
        return VolumeIntent(nonce, cluster_id, size_gb, datetime.fromisoformat(sent_at))


PRODUCT_NAME = "network volume"


class VolumeLook(NamedTuple):
    """When the volumes were looked at; `previous` is when the look before began, None if there was none."""

    previous: datetime | None
    started_at: datetime
    finished_at: datetime
    # By so much the wall clock was set forward since the look before.
    step: timedelta = timedelta(0)

    @property
    def since_previous(self) -> Edge:
        """The interval in which everything has happened that this look shows for the first time."""
        begin = self.finished_at if self.previous is None else self.previous + self.step
        # The wall clock may have been set back while nobody could notice it.
        return Edge(min(begin, self.finished_at), self.finished_at)

    def by_old_clock(self, edge: Edge) -> Edge:
        """Return an interval as the clock would have told it that was not set."""
        return Edge(edge.lo - self.step, edge.hi - self.step)


def read_volumes(
    going_on: Mapping[str, CostSpan], listed: Iterable[StorageVolume], look: VolumeLook
) -> list[CostSpan]:
    """Return the spans that a look opens, carries on and closes."""
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
            # No hour that only the clock has seen, and none that it has seen twice.
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


def _after_begin(span: CostSpan, edge: Edge, look: VolumeLook) -> Edge:
    """Return an interval, as the clock is now, without what lies before the begin of a span."""
    return Edge(max(edge.lo, min(span.began.lo + look.step, edge.hi)), edge.hi)


def _closed(span: CostSpan, edge: Edge, by: str, look: VolumeLook) -> CostSpan:
    """End a span by the clock that it began with."""
    ended = look.by_old_clock(_after_begin(span, edge, look))
    return replace(span, ended=ended, ended_by=by, sure_until=None)


def _opened(volume_id: str, rate: Rate, began: Edge, by: str, look: VolumeLook) -> list[CostSpan]:
    if not rate.nano_usd:
        return []
    return [CostSpan(volume_id, CostKind.VOLUME, rate, began, by, sure_until=look.started_at)]
