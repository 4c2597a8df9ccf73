"""Novita's bill, balance, volumes and metrics."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from gpuherd.adapters.novita import novita_failures, novita_json
from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.adapters.novita.novita_json import (
    ID_CHARS,
    moment,
    part,
    parts,
    text,
    usd,
    whole,
)
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.adapters.novita.paged_list import PAGE_SIZE, NovitaPage, PagedList
from gpuherd.domain.cloud.network_volume import VolumeOrder
from gpuherd.domain.instance.idleness import Utilization
from gpuherd.domain.money.bill import (
    VOLUME_USD_PER_GB_DAY,
    BillCategory,
    ProviderCharge,
    StorageVolume,
)
from gpuherd.resilience.rate_limiter import Lane, RateLimiter

# Not below the root of the GPU API.
HOST_BILLING = "/openapi/v1/billing"


UNITS_PER_USD = 10_000
CATEGORIES = {BillCategory.GPU: "gpu", BillCategory.STORAGE: "cloud_storage"}


# There are no pages, so a reply for a long period could be too large. Storage has few rows, and some of them
# cover a whole day.
SLICES = {BillCategory.GPU: timedelta(hours=6), BillCategory.STORAGE: timedelta(days=1)}


_DECIMAL = re.compile(r"-?\d{1,15}(?:\.\d{1,30})?", re.ASCII)


class NovitaBilling:
    """The billing port. Its calls wait behind those of rentals and of the observer."""

    def __init__(self, transport: NovitaTransport) -> None:
        self._read = partial(transport.read, lane=Lane.BROWSE)
        self._volume_list = PagedList(_volume_entry, page_size=PAGE_SIZE)

    async def charges(self, begin: datetime, end: datetime) -> tuple[ProviderCharge, ...]:
        found: list[ProviderCharge] = []
        for category in BillCategory:
            for slice_begin, slice_end in _slices(begin, end, SLICES[category]):
                found += await self._rows_of(category, slice_begin, slice_end)
        return tuple(found)

    async def available_usd(self) -> Decimal:
        body = await self._read(f"{HOST_BILLING}/balance/detail")
        units = whole(body, "availableBalance")
        if units is None:
            raise novita_failures.unreadable()
        return Decimal(units) / UNITS_PER_USD

    async def list_volumes(self) -> tuple[StorageVolume, ...]:
        found = await self._volume_list.gather(self._volume_page)
        # guard: a list of volumes with a gap ends none of them
        if not found.complete:
            # A volume that is missing from the reply would look like one that costs nothing.
            raise novita_failures.unreadable()
        return tuple(found.items.values())

    async def _rows_of(
        self, category: BillCategory, begin: datetime, end: datetime
    ) -> Iterator[ProviderCharge]:
        params = {
            "cycleType": "Hour",
            "productCategory": CATEGORIES[category],
            "startTime": str(int(begin.timestamp())),
            # Novita includes this second.
            "endTime": str(int(end.timestamp()) - 1),
        }
        rows = novita_json.rows(await self._read(f"{HOST_BILLING}/bill/list", params), "bills")
        if rows is None:
            raise novita_failures.unreadable()
        read = (read_charge(row, category) for row in rows)
        # A row that touches two slices is counted in one.
        return (row for row in read if row is not None and begin <= row.begin < end)

    async def _volume_page(self, number: int, size: int) -> NovitaPage:
        # Only this call spells its page parameters like this.
        params = {"pageSize": str(size), "pageNo": str(number)}
        body = await self._read("/networkstorages/list", params)
        rows = novita_json.rows(body, "data")
        if rows is None:
            raise novita_failures.unreadable()
        return NovitaPage(rows, whole(body, "total"))


def read_charge(row: Any, category: BillCategory) -> ProviderCharge | None:
    """Return the charge of a row; None if time or amount is missing."""
    if not isinstance(row, dict):
        return None
    begin, amount = moment(row, "startTime"), _amount(row, "amount")
    if begin is None or amount is None:
        return None
    return ProviderCharge(
        owner_id=text(row, "ownerID")[: novita_json.ID_CHARS],
        category=category,
        begin=begin.astimezone(UTC),
        quantity=whole(row, "billNum0") or 0,
        unit_usd=_unit_price(row),
        amount_usd=amount,
        voucher_usd=_amount(row, "voucherAmount") or Decimal(0),
    )


def _amount(row: dict[str, Any], key: str) -> Decimal | None:
    """Return an amount, in full precision if Novita gives it."""
    exact = row.get(f"{key}Decimal")
    if isinstance(exact, str) and _DECIMAL.fullmatch(exact.strip()):
        return Decimal(exact.strip())
    units = whole(row, key)
    return None if units is None else Decimal(units) / UNITS_PER_USD


def _unit_price(row: dict[str, Any]) -> Decimal | None:
    """Return the price after discounts. It has more digits than the amount."""
    price, precision = whole(row, "discountPrice0"), whole(row, "pricePrecision") or 1
    if price is None or price <= 0 or precision <= 0:
        return None
    return Decimal(price) / UNITS_PER_USD / precision


def _slices(begin: datetime, end: datetime, length: timedelta) -> Iterator[tuple[datetime, datetime]]:
    while begin < end:
        yield begin, min(begin + length, end)
        begin += length


def _volume_entry(row: Any) -> tuple[str, StorageVolume] | None:
    if not isinstance(row, dict) or not (volume_id := text(row, "storageId")):
        return None
    size_gb = whole(row, "storageSize")
    if size_gb is None or size_gb < 0:
        return None
    label = text(row, "clusterName") or text(row, "clusterId")
    volume = StorageVolume(
        volume_id=volume_id[: novita_json.ID_CHARS],
        name=text(row, "storageName"),
        region=novita_json.region_code(label),
        size_gb=size_gb,
        usd_per_gb_day=usd(row, "price") or VOLUME_USD_PER_GB_DAY,
    )
    return volume.volume_id, volume


class NovitaVolumes:
    """The port `NetworkVolumes`."""

    def __init__(self, transport: NovitaTransport) -> None:
        self._transport = transport

    async def create_volume(self, order: VolumeOrder, send_by_s: float = math.inf) -> str:
        body = {"clusterId": order.cluster_id, "storageName": order.name, "storageSize": order.size_gb}
        reply = await self._transport.change(
            "/networkstorage/create", body, may_probe=False, send_by_s=send_by_s
        )
        volume_id = _id_in(reply) if reply.is_success else ""
        if volume_id:
            return volume_id
        raise novita_failures.failure_of_change(
            reply, ResourceKind.VOLUME
        ) or novita_failures.outcome_unknown(reply)

    async def delete_volume(self, volume_id: str) -> None:
        reply = await self._transport.change("/networkstorage/delete", {"storageId": volume_id})
        error = novita_failures.failure_of_change(reply, ResourceKind.VOLUME)
        if error is not None:
            raise error


def _id_in(reply: NovitaReply) -> str:
    """Return the id: a bare string in the documents, sometimes an object in practice."""
    value: Any = (reply.body or {}).get("storageId")
    if reply.body is None:
        try:
            value = json.loads(reply.head)
        except ValueError:
            return ""
    usable = isinstance(value, str) and 0 < len(value) <= ID_CHARS and value.isprintable()
    return value if usable else ""


# Not below the root of the GPU API.
METRICS_PATH = "/openapi/v1/metrics/gpu/instance"


Series = dict[datetime, float]


class NovitaMetrics:
    """The metrics port. Its calls wait behind all others and have their own budget."""

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
    """Return the moments for which all values were measured, oldest first."""
    cpu = _series(body, "cpuUtilization")
    gpus = [_series(row, "items") for row in parts(part(body, "gpuUtilization"), "gpuIds")]
    if not gpus:
        # An average alone would hide that one of several GPUs is busy.
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
    """Return a measurement; None if it is invalid."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
