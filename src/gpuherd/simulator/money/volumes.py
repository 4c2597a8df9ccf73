"""Network volumes: they live on their own, in one cluster, and cost money whether mounted or not."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from random import Random

from gpuherd.simulator.catalogue import CloudCatalogue
from gpuherd.simulator.errors import SimulatedError, invalid, not_found
from gpuherd.simulator.money.charge import VOLUME, Charge, Dated, Span, cut
from gpuherd.simulator.money.tariff import volume_usd_per_hour

SIZE_GB_MIN = 10
SIZE_GB_MAX = 4096


@dataclass(frozen=True, slots=True)
class NetworkVolume:
    """A volume, and when it had which size."""

    id: str
    name: str
    cluster_id: str
    created_at: float
    sizes: tuple[Dated, ...]
    deleted_at: float | None = None

    @property
    def size_gb(self) -> int:
        return self.sizes[-1].value

    def charges(self, now: float) -> list[Charge]:
        whole = Span(self.created_at, now if self.deleted_at is None else min(now, self.deleted_at))
        return [
            Charge(self.id, VOLUME, span, size_gb, volume_usd_per_hour(size_gb))
            for span, size_gb in cut(whole, self.sizes)
        ]


@dataclass(slots=True)
class Volumes:
    """All volumes that ever were; deleted ones stay for the bill."""

    catalogue: CloudCatalogue
    rng: Random
    all: dict[str, NetworkVolume] = field(default_factory=dict)

    def listed(self) -> list[NetworkVolume]:
        """Return those that exist, newest first."""
        return [volume for volume in reversed(self.all.values()) if volume.deleted_at is None]

    def find(self, volume_id: str) -> NetworkVolume:
        volume = self.all.get(volume_id)
        if volume is None or volume.deleted_at is not None:
            raise SimulatedError(400, "NETWORK_STORAGE_NOT_FOUND", "network storage not found")
        return volume

    def create(self, name: str, cluster_id: str, size_gb: int, now: float) -> NetworkVolume:
        cluster = self.catalogue.cluster(cluster_id)
        if cluster is None:
            raise not_found("cluster")
        if not cluster.network_storage:
            raise SimulatedError(
                400, "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT", "the cluster has no network storage"
            )
        volume_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        volume = NetworkVolume(volume_id, name, cluster_id, now, (Dated(now, _checked(size_gb)),))
        self.all[volume_id] = volume
        return volume

    def change(self, volume_id: str, name: str, size_gb: int, now: float) -> NetworkVolume:
        """Rename a volume and let it grow; it never shrinks."""
        volume = self.find(volume_id)
        if size_gb < volume.size_gb:
            raise invalid("storageSize", "a volume cannot shrink")
        sizes = volume.sizes
        if size_gb > volume.size_gb:
            sizes = (*sizes, Dated(now, _checked(size_gb)))
        self.all[volume_id] = volume = replace(volume, name=name or volume.name, sizes=sizes)
        return volume

    def delete(self, volume_id: str, now: float, mounted: Collection[str]) -> None:
        volume = self.find(volume_id)
        if volume_id in mounted:
            raise SimulatedError(400, "NETWORK_STORAGE_IN_USE", "the network storage is in use")
        self.all[volume_id] = replace(volume, deleted_at=now)

    def check_mount(self, volume_id: str, cluster_id: str) -> None:
        """Refuse a volume that does not exist or lies elsewhere."""
        if self.find(volume_id).cluster_id != cluster_id:
            raise SimulatedError(
                400, "NETWORK_STORAGE_UNAVAILABLE", "the network storage is in another cluster"
            )


def _checked(size_gb: int) -> int:
    if size_gb > SIZE_GB_MAX:
        raise SimulatedError(400, "NETWORK_STORAGE_TOO_LARGE", f"a volume has at most {SIZE_GB_MAX} GB")
    if size_gb < SIZE_GB_MIN:
        raise invalid("storageSize", f"must be at least {SIZE_GB_MIN}")
    return size_gb
