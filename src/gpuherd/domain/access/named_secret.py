"""A named secret: a value that variables of instances refer to, kept sealed for its owner."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

# The value goes into a variable, so it is no longer than one.
VALUE_CHARS_MAX = 4095
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
NAME_RULE = "must be 1 to 63 letters, digits, _ . or -, and begin with a letter or a digit"
# The owner of what an admin lets every key use; no key has such an id.
SHARED_OWNER = "*"


@dataclass(frozen=True)
class NamedSecret:
    """What is remembered of a secret. Its owner, a key, may use it; a shared one, every key."""

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
        """What the value is bound to: copied to another owner or name it is worth nothing."""
        return f"secret/{self.owner}/{self.name}"
