"""Network volumes: storage with a life of its own, in one region."""

from __future__ import annotations

from gpuherd.client.effects import Effects
from gpuherd.client.methods import Resource, api_method
from gpuherd.client.models.account import Volume, VolumeRemoved
from gpuherd.client.paging import Items, items_of
from gpuherd.client.transport.wire import get, path_segment


class VolumeMethods(Resource):
    """`herd.volumes`."""

    @api_method
    def list(self) -> Effects[Items[Volume]]:
        """Return the account's volumes by name."""
        return items_of((yield from self._caller.call(get("/api/volumes"))), "volumes", Volume.of)

    @api_method
    def create(self, name: str, region: str, size_gb: int) -> Effects[Volume]:
        """Make a volume; it costs money until it is deleted. `Conflict` (VOLUME_EXISTS) if its name is taken.

        A lost answer is looked after by its name, so it is one volume however bad the network.
        """
        body = {"name": name, "region": region, "sizeGb": size_gb}
        return Volume.of((yield from self._caller.change("POST", "/api/volumes", body)))

    @api_method
    def delete(self, volume: str | Volume) -> Effects[VolumeRemoved]:
        """Delete a volume with all its data; `Conflict` (VOLUME_IN_USE) while a machine has it."""
        path = f"/api/volumes/{path_segment(volume if isinstance(volume, str) else volume.id)}"
        return VolumeRemoved.of((yield from self._caller.change("DELETE", path)))
