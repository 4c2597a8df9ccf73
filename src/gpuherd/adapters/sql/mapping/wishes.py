"""Wishes to documents and back."""

from __future__ import annotations

from collections.abc import Callable
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

# By the type of a field: how it is kept, and how it is read again. All others are kept as they are.
_KEPT_AS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
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
_WISH_TYPES = {name: hint for name, hint in get_type_hints(Wish).items() if name != "product_name"}
_PLAIN_FIELDS = tuple(
    name for name, hint in _WISH_TYPES.items() if hint in (str, int, bool, int | None, str | None)
)
_KEPT_FIELDS = tuple((name, *_KEPT_AS[hint]) for name, hint in _WISH_TYPES.items() if hint in _KEPT_AS)
# The version before reads these without asking whether they are there.
_ALWAYS_KEPT = (
    *("template_id", "gpu_num", "disk_gb", "regions", "billing_mode"),
    *("hourly_usd_max", "optimize", "capacity_wait_s"),
)
# All others take room only where somebody has asked for them, which few do.
_KEPT = tuple(it for it in fields(Wish) if it.name in _WISH_TYPES)
_KEPT_UNLESS = tuple(MISSING if it.name in _ALWAYS_KEPT else it.default for it in _KEPT)
_values = attrgetter(*(it.name for it in _KEPT))
# None: as it is.
_NAMES_AND_WAYS = tuple((it.name, _KEPT_AS.get(_WISH_TYPES[it.name], (None,))[0]) for it in _KEPT)
assert len(_PLAIN_FIELDS) + len(_KEPT_FIELDS) == len(_WISH_TYPES), "a wish has a field of another type"


def wish_doc(wish: Wish) -> Doc:
    """Return how a wish is kept: what is said in it, but the product's name, which has a column."""
    values = _values(wish)
    said = compress(zip(_NAMES_AND_WAYS, values, strict=True), map(ne, values, _KEPT_UNLESS))
    return {name: value if keep is None else keep(value) for (name, keep), value in said}


def wish_of(doc: Doc, product_name: str) -> Wish:
    """Return the wish that was kept; what an older version did not know has its default."""
    values = {name: doc[name] for name in _PLAIN_FIELDS if name in doc}
    for name, _, read in _KEPT_FIELDS:
        if name in doc:
            values[name] = read(doc[name])
    return Wish(product_name=product_name, **values)
