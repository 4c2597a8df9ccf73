"""Wishes to documents and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from decimal import Decimal
from itertools import compress
from operator import attrgetter, ne
from typing import Any, get_type_hints

from gpuherd.adapters.sql.engine.columns import Doc
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.instance import Optimize, Wish
from gpuherd.domain.workload.envs import EnvVar
from gpuherd.domain.workload.volumes import VolumeMount

# How a value is kept, and how it is read again; None: as it is.
_Ways = tuple[Callable[[Any], Any], Callable[[Any], Any]] | tuple[None, None]
# By the type of a field.
_KEPT_AS: dict[Any, _Ways] = {
    **dict.fromkeys((str, int, bool, int | None, str | None), (None, None)),
    tuple[str, ...]: (list, tuple),
    tuple[str, ...] | None: (
        lambda it: None if it is None else list(it),
        lambda it: None if it is None else tuple(it),
    ),
    # The values are sealed before they come here.
    tuple[EnvVar, ...]: (
        lambda it: [[each.name, each.sealed, each.secret] for each in it],
        lambda it: tuple([EnvVar(*each) for each in it]),
    ),
    tuple[VolumeMount, ...]: (
        lambda it: [[each.volume_id, each.mount_path] for each in it],
        lambda it: tuple([VolumeMount(*each) for each in it]),
    ),
    BillingMode: (str, BillingMode),
    Optimize: (str, Optimize),
    Decimal | None: (
        lambda it: None if it is None else str(it),
        lambda it: None if it is None else Decimal(it),
    ),
}
# The version before reads these without asking whether they are there.
_ALWAYS_KEPT = (
    *("template_id", "gpu_num", "disk_gb", "regions", "billing_mode"),
    *("hourly_usd_max", "optimize", "capacity_wait_s"),
)


def _kept_fields() -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield of each field its name, the value that takes no room, and how others are kept and read again.

    The product's name is not among them: it has a column. A field of a type that is not above has no way.
    """
    types = get_type_hints(Wish)
    for it in fields(Wish):
        if it.name != "product_name":
            # All others take room only where somebody has asked for them, which few do.
            default = MISSING if it.name in _ALWAYS_KEPT else it.default
            yield it.name, default, *_KEPT_AS[types[it.name]]


_KEPT = tuple(_kept_fields())
_NAMES, _DEFAULTS, _KEEP, _ = zip(*_KEPT, strict=True)
_KNOWN = frozenset(_NAMES)
_READ = tuple((name, read) for name, _, _, read in _KEPT if read is not None)
_values = attrgetter(*_NAMES)


def wish_doc(wish: Wish) -> Doc:
    """Return how a wish is kept: what is said in it, but the product's name, which has a column."""
    values = _values(wish)
    said = compress(zip(_NAMES, _KEEP, values, strict=True), map(ne, values, _DEFAULTS))
    return {name: value if keep is None else keep(value) for name, keep, value in said}


def wish_of(doc: Doc, product_name: str) -> Wish:
    """Return the wish that was kept; what an older version did not know has its default."""
    values = {name: value for name, value in doc.items() if name in _KNOWN}
    for name, read in _READ:
        if name in values:
            values[name] = read(values[name])
    return Wish(product_name=product_name, **values)
