"""A wish as the world sees it: the one place that knows how the contract calls its fields."""

from __future__ import annotations

from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any

from gpuherd.contract.codec.model import Model, encode
from gpuherd.contract.codec.values import camel, decimal_text
from gpuherd.contract.instance import CapacityWait, MountedVolume
from gpuherd.domain.instance.instance import Wish
from gpuherd.domain.instance.offer_ranking import AUTO
from gpuherd.domain.workload.envs import shown_envs

# Where the contract has another word for a field.
CONTRACT_NAMES = {
    "disk_gb": "rootfs_size",
    "hourly_usd_max": "max_hourly_price",
    "capacity_wait_s": "wait_for_capacity",
    "fallback_after_s": "fallback_after_seconds",
}
_NAMES = tuple((it.name, CONTRACT_NAMES.get(it.name, it.name)) for it in fields(Wish))
# A create writes these down with its job in any case, and of the others what was asked for.
_ALWAYS_TOLD = (
    *("product_name", "template_id", "gpu_num", "disk_gb"),
    *("regions", "billing_mode", "hourly_usd_max"),
)
_TOLD_UNLESS = tuple(
    (it.name, MISSING if it.name in _ALWAYS_TOLD else it.default, name, camel(name))
    for it, (_, name) in zip(fields(Wish), _NAMES, strict=True)
)
# What JSON has as it is.
_PLAIN = frozenset({str, int, bool, type(None)})


def describe_wish(wish: Wish) -> dict[str, Any]:
    """Return all fields of a wish under the names that they have in the contract."""
    values = vars(wish)
    shown = {name: values[field] for field, name in _NAMES}
    seconds = wish.capacity_wait_s
    # Plain words: to write an enum as JSON takes as long as twenty of them.
    shown["billing_mode"] = wish.billing_mode.value if wish.fallback_after_s is None else AUTO
    shown["optimize"] = wish.optimize.value
    # Never a value: not in a reply, and not in what is stored for a job.
    shown["envs"] = shown_envs(wish.envs)
    shown["volumes"] = tuple(
        [MountedVolume(id=it.volume_id, mount_path=it.mount_path) for it in wish.volumes]
    )
    shown["wait_for_capacity"] = CapacityWait(seconds=seconds) if seconds else None
    return shown


def wish_json(wish: Wish) -> dict[str, Any]:
    """Return what a wish says as JSON has it, for what shows it in no model of the contract."""
    shown, values = describe_wish(wish), vars(wish)
    return {
        key: value if type(value := shown[name]) in _PLAIN else _json(value)
        for field, default, name, key in _TOLD_UNLESS
        if values[field] != default
    }


def _json(value: Any) -> Any:
    match value:
        case Decimal():
            return decimal_text(value)
        case tuple():
            return [encode(it) if isinstance(it, Model) else it for it in value]
        case Model():
            return encode(value)
        case _:
            return value
