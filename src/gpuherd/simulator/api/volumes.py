"""The endpoints of Novita's v1 API for network volumes."""

from __future__ import annotations

from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json
from gpuherd.simulator.catalogue import PRICE_UNITS_PER_USD, CloudCatalogue
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.money.tariff import VOLUME_USD_PER_GB_DAY
from gpuherd.simulator.money.volumes import SIZE_GB_MAX, NetworkVolume
from gpuherd.simulator.operations import CloudOperations
from gpuherd.simulator.views.listing import PAGE_SIZE, PAGE_SIZE_MAX, Paging


async def list_volumes(operations: CloudOperations, query: Values) -> Json:
    fields = Fields(query)
    # This one call spells its page `pageNo`.
    paging = Paging(
        fields.whole("pageSize", low=0, high=PAGE_SIZE_MAX, default=PAGE_SIZE) or PAGE_SIZE,
        fields.whole("pageNo", low=0, high=10**9, default=0),
    )
    name, volume_id = fields.text("storageName").casefold(), fields.text("storageId")
    matching = [
        volume
        for volume in await operations.volumes()
        if name in volume.name.casefold() and volume_id in ("", volume.id)
    ]
    page = matching[paging.offset : paging.offset + paging.size]
    shown = [volume_shape(volume, operations.world.catalogue) for volume in page]
    return {"data": shown, "total": len(matching)}


async def create_volume(operations: CloudOperations, body: Values) -> Json:
    fields = Fields(body)
    volume = await operations.create_volume(
        fields.text("storageName", shortest=1),
        fields.text("clusterId", shortest=1),
        fields.whole("storageSize", low=0, high=10 * SIZE_GB_MAX),
    )
    return volume_shape(volume, operations.world.catalogue)


async def update_volume(operations: CloudOperations, body: Values) -> Json:
    fields = Fields(body)
    await operations.update_volume(
        fields.text("storageId", shortest=1),
        fields.text("storageName"),
        fields.whole("storageSize", low=0, high=10 * SIZE_GB_MAX),
    )
    return {}


async def delete_volume(operations: CloudOperations, body: Values) -> Json:
    await operations.delete_volume(Fields(body).text("storageId", shortest=1))
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
