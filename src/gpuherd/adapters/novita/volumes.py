"""Novita's network volumes: made and removed, each by one call."""

from __future__ import annotations

import json
import math
from typing import Any

from gpuherd.adapters.novita import failures
from gpuherd.adapters.novita.failures import ResourceKind
from gpuherd.adapters.novita.reply import NovitaReply
from gpuherd.adapters.novita.transport import NovitaTransport
from gpuherd.adapters.novita.wire import ID_CHARS
from gpuherd.domain.cloud.volume import VolumeOrder


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
        raise failures.failure_of_change(reply, ResourceKind.VOLUME) or failures.outcome_unknown(reply)

    async def delete_volume(self, volume_id: str) -> None:
        reply = await self._transport.change("/networkstorage/delete", {"storageId": volume_id})
        error = failures.failure_of_change(reply, ResourceKind.VOLUME)
        if error is not None:
            raise error


def _id_in(reply: NovitaReply) -> str:
    """Return the id: the documents show it as a bare string, clients have seen it in an object."""
    value: Any = (reply.body or {}).get("storageId")
    if reply.body is None:
        try:
            value = json.loads(reply.head)
        except ValueError:
            return ""
    usable = isinstance(value, str) and 0 < len(value) <= ID_CHARS and value.isprintable()
    return value if usable else ""
