"""How many GPUs of each product are free in each cluster."""

from __future__ import annotations

from collections.abc import Iterator

from gpuherd.simulator.catalogue import CloudCatalogue

LOW_UNITS = 5
HIGH_UNITS = 40


class Stock:
    """Free units per product and cluster; a unit is one GPU."""

    def __init__(self, catalogue: CloudCatalogue, units: int) -> None:
        self._free = {
            (product.id, cluster_id): units
            for product in catalogue.products
            for cluster_id in product.cluster_ids
        }
        # Not for sale at the moment, however many units there are.
        self.withheld: set[tuple[str, str]] = set()

    def sells(self, product_id: str, cluster_id: str) -> bool:
        return (product_id, cluster_id) in self._free

    def set_units(self, product_id: str, cluster_id: str, units: int) -> None:
        if not self.sells(product_id, cluster_id):
            raise ValueError(f"{product_id!r} is not sold in {cluster_id!r}")
        if units < 0:
            raise ValueError("there cannot be fewer than 0 units")
        self._free[product_id, cluster_id] = units

    def free(self, product_id: str, cluster_id: str) -> int:
        place = product_id, cluster_id
        return 0 if place in self.withheld else self._free.get(place, 0)

    def take(self, product_id: str, cluster_id: str, units: int) -> None:
        self._free[product_id, cluster_id] -= units

    def release(self, product_id: str, cluster_id: str, units: int) -> None:
        self._free[product_id, cluster_id] += units

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        return ((product_id, cluster_id, units) for (product_id, cluster_id), units in self._free.items())


def inventory_state(units: int) -> str:
    """Put a number of free units into the cloud's four words."""
    if units <= 0:
        return "none"
    if units < LOW_UNITS:
        return "low"
    return "normal" if units < HIGH_UNITS else "high"
