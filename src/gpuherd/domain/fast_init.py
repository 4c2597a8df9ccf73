"""A constructor for frozen dataclasses, several times faster.

The generated one calls `object.__setattr__` for each field. An instance has some sixty of them, and is made
anew for every create and for every row that is read.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def fast_init(cls: type[T]) -> type[T]:
    """Let this frozen dataclass write its fields directly; what it takes and what it means stay the same."""
    if hasattr(cls, "__post_init__") or hasattr(cls, "__slots__"):
        raise TypeError(f"{cls.__name__} needs the constructor that the standard library makes")
    positional, lines = ["self"], ["    values = self.__dict__"]
    keywords: list[str] = []
    names: dict[str, Any] = {"MISSING": MISSING}
    for it in fields(cls):  # type: ignore[arg-type]
        if not it.init:
            raise TypeError(f"{cls.__name__}.{it.name} is not set by the constructor")
        parameter = value = it.name
        if it.default_factory is not MISSING:
            names[f"make_{it.name}"] = it.default_factory
            parameter, value = (
                f"{it.name}=MISSING",
                f"make_{it.name}() if {it.name} is MISSING else {it.name}",
            )
        elif it.default is not MISSING:
            names[f"default_{it.name}"] = it.default
            parameter = f"{it.name}=default_{it.name}"
        (keywords if it.kw_only else positional).append(parameter)
        # One by one: a dict that is filled at once does not share its keys with those of its like.
        lines.append(f"    values[{it.name!r}] = {value}")
    signature = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    # Made of the names of our own fields, as the standard library does it.
    exec(f"def __init__({signature}):\n" + "\n".join(lines), names)  # noqa: S102
    names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = names["__init__"]  # type: ignore[method-assign]
    return cls
