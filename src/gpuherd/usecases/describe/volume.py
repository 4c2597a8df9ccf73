"""Network volumes as the contract shows them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from gpuherd.contract.catalogue import Volume, VolumeList
from gpuherd.domain.costs.amount import nano_usd, usd_of
from gpuherd.domain.costs.bill import StorageVolume


def describe_volume(it: StorageVolume) -> Volume:
    """Return one volume."""
    return Volume(
        id=it.volume_id,
        name=it.name,
        region=it.region,
        size_gb=it.size_gb,
        hourly_price=usd_of(nano_usd(it.hourly_usd)),
    )


def describe_volumes(found: Iterable[StorageVolume]) -> VolumeList:
    """Return all of them, and what they cost together."""
    shown = tuple(map(describe_volume, found))
    return VolumeList(
        volumes=shown, total=len(shown), hourly_total=sum((it.hourly_price for it in shown), Decimal(0))
    )
