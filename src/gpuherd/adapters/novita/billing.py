"""Novita's bill, balance and network volumes, in its own words: amounts are sent in 1/10,000 USD, rounded
down, and beside them exactly as decimal text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from gpuherd.adapters.novita import failures, wire
from gpuherd.adapters.novita.fields import moment, text, usd, whole
from gpuherd.adapters.novita.pages import PAGE_SIZE, NovitaPage, PagedList
from gpuherd.adapters.novita.transport import NovitaTransport
from gpuherd.domain.costs.bill import VOLUME_USD_PER_GB_DAY, BillCategory, ProviderCharge, StorageVolume
from gpuherd.resilience.rate_limit import Lane

# Not below the root of the GPU API.
HOST_BILLING = "/openapi/v1/billing"
UNITS_PER_USD = 10_000
CATEGORIES = {BillCategory.GPU: "gpu", BillCategory.STORAGE: "cloud_storage"}
# There are no pages, so the answer to a long question could be too long for us. Storage has few rows, and
# some of them are for a whole day.
SLICES = {BillCategory.GPU: timedelta(hours=6), BillCategory.STORAGE: timedelta(days=1)}

_DECIMAL = re.compile(r"-?\d{1,15}(?:\.\d{1,30})?", re.ASCII)


class NovitaBilling:
    """The billing port. Its calls wait behind everything that a rental or the observer needs."""

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
            raise failures.unreadable()
        return Decimal(units) / UNITS_PER_USD

    async def list_volumes(self) -> tuple[StorageVolume, ...]:
        found = await self._volume_list.gather(self._volume_page)
        # guard: a list of volumes with a gap ends none of them
        if not found.complete:
            # A volume that is only not shown would look like one that costs nothing any more.
            raise failures.unreadable()
        return tuple(found.items.values())

    async def _rows_of(
        self, category: BillCategory, begin: datetime, end: datetime
    ) -> Iterator[ProviderCharge]:
        params = {
            "cycleType": "Hour",
            "productCategory": CATEGORIES[category],
            "startTime": str(int(begin.timestamp())),
            # The last second that is included.
            "endTime": str(int(end.timestamp()) - 1),
        }
        rows = wire.rows(await self._read(f"{HOST_BILLING}/bill/list", params), "bills")
        if rows is None:
            raise failures.unreadable()
        read = (read_charge(row, category) for row in rows)
        # Whatever a row has to do with two slices, it is counted in one.
        return (row for row in read if row is not None and begin <= row.begin < end)

    async def _volume_page(self, number: int, size: int) -> NovitaPage:
        # This one call spells its page so.
        params = {"pageSize": str(size), "pageNo": str(number)}
        body = await self._read("/networkstorages/list", params)
        rows = wire.rows(body, "data")
        if rows is None:
            raise failures.unreadable()
        return NovitaPage(rows, whole(body, "total"))


def read_charge(row: Any, category: BillCategory) -> ProviderCharge | None:
    """Return what a row says; None where it says neither when nor how much."""
    if not isinstance(row, dict):
        return None
    begin, amount = moment(row, "startTime"), _amount(row, "amount")
    if begin is None or amount is None:
        return None
    return ProviderCharge(
        owner_id=text(row, "ownerID")[: wire.ID_CHARS],
        category=category,
        begin=begin.astimezone(UTC),
        quantity=whole(row, "billNum0") or 0,
        unit_usd=_unit_price(row),
        amount_usd=amount,
        voucher_usd=_amount(row, "voucherAmount") or Decimal(0),
    )


def _amount(row: dict[str, Any], key: str) -> Decimal | None:
    """Return an amount, exact where Novita says it exactly."""
    exact = row.get(f"{key}Decimal")
    if isinstance(exact, str) and _DECIMAL.fullmatch(exact.strip()):
        return Decimal(exact.strip())
    units = whole(row, key)
    return None if units is None else Decimal(units) / UNITS_PER_USD


def _unit_price(row: dict[str, Any]) -> Decimal | None:
    """Return the price after discounts, of which a row has more digits than of an amount."""
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
        volume_id=volume_id[: wire.ID_CHARS],
        name=text(row, "storageName"),
        region=wire.region_code(label),
        size_gb=size_gb,
        usd_per_gb_day=usd(row, "price") or VOLUME_USD_PER_GB_DAY,
    )
    return volume.volume_id, volume
