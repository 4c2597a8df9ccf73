"""What an agent is shown: few fields, plain texts, bounded lists, and no secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuherd.client import Instance
from gpuherd.entrypoints.mcp.plain import ROWS_MAX, plain, plain_data

Json = dict[str, Any]

# Not the webhook, nor the pages of the machine: their addresses may hold a token.
INSTANCE_FIELDS = (
    *("id", "name", "status", "statusReason", "usable", "productName", "gpuNum", "region", "billingMode"),
    *(
        "hourlyPrice",
        "maxHourlyPrice",
        "templateId",
        "imageUrl",
        "volumes",
        "labels",
        "portMappings",
        "lease",
    ),
    *("autoStop", "cost", "waits", "lastError", "lossExpectedAt", "replaces", "replacedBy"),
    *("createdAt", "readyAt", "stoppedAt", "estimatedReadyTime"),
)
LISTED_FIELDS = (
    *("id", "name", "status", "usable", "productName", "gpuNum", "region", "hourlyPrice", "lease"),
    "createdAt",
)


def instance_data(it: Instance) -> Json:
    """Return one instance, with the command that logs in where there is one; that holds no password."""
    return {**chosen(it.raw, INSTANCE_FIELDS), "ssh": None if it.ssh is None else plain(it.ssh)}


def chosen(raw: Mapping[str, Any], names: Iterable[str]) -> Json:
    """Return these fields, as far as the server told them."""
    found: Json = plain_data({name: raw[name] for name in names if name in raw})
    return found


def rows(name: str, found: Sequence[Any], more: bool = False) -> Json:
    """Return a list that is not longer than anybody reads, and whether it was."""
    return {name: plain_data(list(found[:ROWS_MAX])), "cut": more or len(found) > ROWS_MAX}
