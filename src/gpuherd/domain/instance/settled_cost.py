"""What an instance has cost up to a moment: from then on its rate says how it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class SettledCost:
    """An amount, by how much it may be wrong, and what is paid an hour since; all in nano-dollars."""

    amount: int = 0
    doubt: int = 0
    rate: int = 0
    # None of one that no list has shown yet.
    at: datetime | None = None
