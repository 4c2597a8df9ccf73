"""Reads single fields out of a JSON body or a query and refuses them in the cloud's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuherd.simulator.errors import invalid

ID_LONGEST = 1 << 20
_WHOLE = re.compile(r"-?[0-9]{1,18}")


class Fields:
    """A JSON object or a query whose values are checked one by one; names never asked for are ignored."""

    def __init__(self, values: Mapping[str, object], inside: str = "") -> None:
        self._values = values
        self._inside = inside

    def text(self, name: str, *, shortest: int = 0, longest: int = 255) -> str:
        value = self._values.get(name)
        if value is None:
            value = ""
        if not isinstance(value, str):
            raise invalid(self._inside + name, "must be a string")
        if len(value) < shortest:
            raise invalid(self._inside + name, "must not be empty")
        if len(value) > longest:
            raise invalid(self._inside + name, f"must not be longer than {longest} characters")
        return value

    def known_id(self, name: str) -> str:
        """Read the id of something that may exist; one of any length is only unknown."""
        return self.text(name, shortest=1, longest=ID_LONGEST)

    def one_of(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.text(name) or default
        if value not in choices:
            raise invalid(self._inside + name, f"must be one of {', '.join(choices)}")
        return value

    def whole(self, name: str, *, low: int, high: int, default: int | None = None) -> int:
        value = self._values.get(name)
        if value is None or value == "":
            if default is None:
                raise invalid(self._inside + name, "is required")
            return default
        # Protobuf's JSON accepts a number or the same number as a string.
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid(self._inside + name, "must be a whole number")
        if not low <= value <= high:
            raise invalid(self._inside + name, f"must be between {low} and {high}")
        return value

    def number(self, name: str, *, low: float, high: float) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise invalid(self._inside + name, "must be a number")
        if not low <= value <= high:
            raise invalid(self._inside + name, f"must be between {low:g} and {high:g}")
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid(self._inside + name, "must be true or false")
        return value

    def item(self, name: str) -> Fields:
        value = self._values.get(name)
        if not isinstance(value, Mapping):
            raise invalid(self._inside + name, "must be an object")
        return Fields(value, f"{self._inside}{name}.")

    def items(self, name: str, *, most: int) -> list[Fields]:
        by_index = self._by_index(name, most)
        return [by_index.item(str(index)) for index in range(len(by_index.names()))]

    def numbers(self, name: str, *, most: int, low: int, high: int) -> list[int]:
        by_index = self._by_index(name, most)
        return [by_index.whole(str(index), low=low, high=high) for index in range(len(by_index.names()))]

    def texts(self, name: str, *, most: int) -> list[str]:
        by_index = self._by_index(name, most)
        return [by_index.text(str(index), shortest=1) for index in range(len(by_index.names()))]

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def names(self) -> frozenset[str]:
        return frozenset(self._values)

    def _by_index(self, name: str, most: int) -> Fields:
        """Read a list as an object whose names are the places, so that an error can say which."""
        value = self._values.get(name)
        if value is None:
            value = ()
        if not isinstance(value, list | tuple):
            raise invalid(self._inside + name, "must be a list")
        if len(value) > most:
            raise invalid(self._inside + name, f"must not have more than {most} entries")
        return Fields({str(place): each for place, each in enumerate(value)}, f"{self._inside}{name}.")
