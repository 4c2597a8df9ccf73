"""Network volumes: which there are, one more, one less."""

from __future__ import annotations

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import VolumeServices
from gpuherd.usecases.cloud.create_once import CreateOnce
from gpuherd.usecases.costs.meter_volumes import MeterVolumes
from gpuherd.usecases.volumes.create import WORDS, CreateVolume
from gpuherd.usecases.volumes.delete import DeleteVolume
from gpuherd.usecases.volumes.list_all import ListVolumes


def build_volumes(
    ports: Ports, values: Values, shared: Shared, list_all: ListVolumes, meter: MeterVolumes
) -> VolumeServices:
    """Return what the outside may ask about volumes."""
    stores, clock = ports.stores, ports.clock
    return VolumeServices(
        list_all=list_all,
        create=CreateVolume(
            volumes=ports.volumes,
            list_volumes=list_all,
            catalogue=shared.browsed_catalogue,
            flags=stores.flags,
            clock=clock,
            ids=ports.ids,
            create_once=CreateOnce(WORDS, stores.flags, clock, values.settling),
            meter=meter,
        ),
        delete=DeleteVolume(ports.volumes, list_all, stores.audit, clock, meter),
    )
