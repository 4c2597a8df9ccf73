"""A wish as the world sees it: the one place that knows how the contract calls its fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from itertools import compress
from operator import attrgetter, ne
from typing import Any

from gpuherd.contract.codec.model import encode
from gpuherd.contract.codec.values import camel, usd
from gpuherd.contract.instance import CapacityWait, MountedVolume
from gpuherd.domain.instance.instance import Wish
from gpuherd.domain.instance.offer_ranking import AUTO
from gpuherd.domain.workload.envs import shown_envs
from gpuherd.domain.workload.volumes import VolumeMount

# Where the contract has another word for a field.
CONTRACT_NAMES = {
    "disk_gb": "rootfs_size",
    "hourly_usd_max": "max_hourly_price",
    "capacity_wait_s": "wait_for_capacity",
    "fallback_after_s": "fallback_after_seconds",
}
_FIELDS = tuple(it.name for it in fields(Wish))
_NAMES = tuple(CONTRACT_NAMES.get(it, it) for it in _FIELDS)
# All at once: a create asks for them twice.
_values = attrgetter(*_FIELDS)
# A create writes these down with its job in any case, and of the others what was asked for.
_ALWAYS_TOLD = (
    *("product_name", "template_id", "gpu_num", "disk_gb"),
    *("regions", "billing_mode", "hourly_usd_max"),
)
_TOLD_UNLESS = tuple(MISSING if it.name in _ALWAYS_TOLD else it.default for it in fields(Wish))


def describe_wish(wish: Wish) -> dict[str, Any]:
    """Return all fields of a wish under the names that they have in the contract."""
    shown = dict(zip(_NAMES, _values(wish), strict=True))
    seconds = wish.capacity_wait_s
    # Plain words: to write an enum as JSON takes as long as twenty of them.
    shown["billing_mode"] = _billing_word(wish)
    shown["optimize"] = wish.optimize.value
    # Never a value: not in a reply, and not in what is stored for a job.
    shown["envs"] = shown_envs(wish.envs)
    shown["volumes"] = _mounted_volumes(wish.volumes)
    shown["wait_for_capacity"] = CapacityWait(seconds=seconds) if seconds else None
    return shown


def wish_json(wish: Wish) -> dict[str, Any]:
    """Return what a wish says as JSON has it, for what shows it in no model of the contract."""
    values = _values(wish)
    said = compress(zip(_KEYS, _AS_JSON, values, strict=True), map(ne, values, _TOLD_UNLESS))
    told = {key: value if as_json is None else as_json(value) for key, as_json, value in said}
    told["billingMode"] = _billing_word(wish)
    return told


def _billing_word(wish: Wish) -> str:
    return wish.billing_mode.value if wish.fallback_after_s is None else AUTO


def _mounted_volumes(volumes: Sequence[VolumeMount]) -> tuple[MountedVolume, ...]:
    return tuple([MountedVolume(id=it.volume_id, mount_path=it.mount_path) for it in volumes])


_KEYS = tuple(map(camel, _NAMES))
_BY_FIELD: dict[str, Callable[[Any], Any]] = {
    "regions": list,
    "product_names": list,
    "ports": list,
    "hourly_usd_max": usd,
    "optimize": str,
    "envs": shown_envs,
    "volumes": lambda it: [encode(each) for each in _mounted_volumes(it)],
    "capacity_wait_s": lambda it: encode(CapacityWait(seconds=it)),
}
# None: JSON has it as it is.
_AS_JSON = tuple(map(_BY_FIELD.get, _FIELDS))
