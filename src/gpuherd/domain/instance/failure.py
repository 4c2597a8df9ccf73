"""A failure, as it is remembered and shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Failure:
    """Why something went wrong, for programs (code, details) and people (message)."""

    code: str
    message: str
    at: datetime
    details: dict[str, Any] = field(default_factory=dict)
