"""Secrets that never print themselves, and the named secrets of users."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

HIDDEN = "***"


class Secret:
    """A string that only `reveal()` returns."""

    __slots__ = ("_value",)
    __hash__ = None  # type: ignore[assignment]  # a hash is a fingerprint of the value

    def __init__(self, value: str):
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """Return the value. Call it where the value is used, and do not store the result."""
        value: str = object.__getattribute__(self, "_value")
        return value

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self.reveal())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # Environment variables that are not UTF-8 arrive with lone surrogates.
        mine, theirs = (secret.reveal().encode("utf-8", "surrogatepass") for secret in (self, other))
        return hmac.compare_digest(mine, theirs)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret does not change")

    # Copies share the object, so that dataclasses.replace, asdict and deepcopy keep it hidden.
    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    # Every pickle protocol calls this.
    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret is not written down")


# The value becomes an environment variable, so it has the same maximum length.
VALUE_CHARS_MAX = 4095


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
NAME_RULE = "must be 1 to 63 letters, digits, _ . or -, and begin with a letter or a digit"


# The owner of secrets that an admin shares with every key. No key has this id.
SHARED_OWNER = "*"


@dataclass(frozen=True)
class NamedSecret:
    """The stored record of a secret. Its owner (a key) may use it; every key may use a shared one."""

    owner: str
    name: str
    sealed: str = field(repr=False)
    created_at: datetime
    changed_at: datetime

    @property
    def shared(self) -> bool:
        return self.owner == SHARED_OWNER

    @property
    def about(self) -> str:
        """The owner and name to which the value is bound.

        Copied to another owner or name, it cannot be opened.
        """
        return f"secret/{self.owner}/{self.name}"
