"""The endpoints of Novita's v1 API for network volumes."""

from __future__ import annotations

from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json
from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.catalogue import PRICE_UNITS_PER_USD, CloudCatalogue
from gpuherd.simulator.fault_injection import ask
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.money.tariff import VOLUME_USD_PER_GB_DAY
from gpuherd.simulator.money.volumes import SIZE_GB_MAX, NetworkVolume
from gpuherd.simulator.views.listing import read_paging
from gpuherd.simulator.world.world import World


async def list_volumes(world: World, query: Values) -> Json:
    fields = Fields(query)
    paging = read_paging(query, "pageNo")
    name, volume_id = fields.text("storageName").casefold(), fields.text("storageId")
    matching = [
        volume
        for volume in await ask(world, ApiEndpoint.NETWORK_STORAGES, world.volumes.listed)
        if name in volume.name.casefold() and volume_id in ("", volume.id)
    ]
    shown = [volume_shape(volume, world.catalogue) for volume in paging.cut(matching)]
    return {"data": shown, "total": len(matching)}


async def create_volume(world: World, body: Values) -> Json:
    fields = Fields(body)
    name, cluster_id = fields.text("storageName", shortest=1), fields.text("clusterId", shortest=1)
    size_gb = fields.whole("storageSize", low=0, high=10 * SIZE_GB_MAX)
    volume = await ask(
        world,
        ApiEndpoint.NETWORK_STORAGE_CREATE,
        lambda: world.volumes.create(name, cluster_id, size_gb, world.now()),
    )
    return volume_shape(volume, world.catalogue)


async def update_volume(world: World, body: Values) -> Json:
    fields = Fields(body)
    volume_id, name = fields.text("storageId", shortest=1), fields.text("storageName")
    size_gb = fields.whole("storageSize", low=0, high=10 * SIZE_GB_MAX)
    await ask(
        world,
        ApiEndpoint.NETWORK_STORAGE_UPDATE,
        lambda: world.volumes.change(volume_id, name, size_gb, world.now()),
    )
    return {}


async def delete_volume(world: World, body: Values) -> Json:
    volume_id = Fields(body).text("storageId", shortest=1)
    await ask(
        world,
        ApiEndpoint.NETWORK_STORAGE_DELETE,
        lambda: world.volumes.delete(volume_id, world.now(), world.mounted_volumes()),
    )
    return {}


def volume_shape(volume: NetworkVolume, catalogue: CloudCatalogue) -> Json:
    cluster = catalogue.cluster(volume.cluster_id)
    return {
        "storageId": volume.id,
        "storageName": volume.name,
        "storageSize": volume.size_gb,
        "clusterId": volume.cluster_id,
        "clusterName": cluster.label if cluster else "",
        # For one GB and one day.
        "price": str(int(VOLUME_USD_PER_GB_DAY * PRICE_UNITS_PER_USD)),
    }


VOLUME_ROUTES = (
    Route("GET", "/networkstorages/list", list_volumes),
    Route("POST", "/networkstorage/create", create_volume),
    Route("POST", "/networkstorage/update", update_volume),
    Route("POST", "/networkstorage/delete", delete_volume),
)
