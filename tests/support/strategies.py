"""Hypothesis strategies for everything that the store remembers: any text, any moment, any price.

They are read from the types of the fields, so that a new field is tried as soon as it exists.
"""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

# PostgreSQL's text has no room for NUL and nobody's for half a surrogate pair; the edges keep both out.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
# UTC has no hour that comes twice, so a fold means nothing.
moments = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(fold=0)
)
counts = st.integers(0, 2**31 - 2)
details = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)

_PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: texts,
    bytes: st.binary(max_size=200),
    int: counts,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    datetime: moments,
    timedelta: st.timedeltas(timedelta(0), timedelta(days=30)),
    # As many GPUs as a count can say, at this price, still fit into the column that sums up what is spent.
    Decimal: st.decimals(0, 4_000, places=5),
    dict[str, str]: st.dictionaries(texts, texts, max_size=3),
    dict[str, Any]: details,
    types.NoneType: st.none(),
}


def every(kind: Any, **fixed: object) -> st.SearchStrategy[Any]:
    """Return a strategy for a dataclass: `fixed` fields have one value, the others any that they can have."""
    hints = get_type_hints(kind)
    drawn = {
        it.name: st.just(fixed[it.name]) if it.name in fixed else _of(hints[it.name]) for it in fields(kind)
    }
    return st.builds(kind, **drawn)


def _of(hint: Any) -> st.SearchStrategy[Any]:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of([_of(part) for part in get_args(hint)])
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts[-1] is Ellipsis:
            return st.lists(_of(parts[0]), max_size=3).map(tuple)
        return st.tuples(*map(_of, parts))
    if is_dataclass(hint):
        return every(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    raise TypeError(f"no strategy for {hint!r}: say here what such a field can hold")
