"""How replacements end."""

from __future__ import annotations

from enum import StrEnum


class ReplacementOutcome(StrEnum):
    """What became of an heir, or of the wish for one."""

    # Handed over while the old machine ran, or after it was lost.
    WARM = "warm"
    COLD = "cold"
    # The heir was never of use; or nobody needed it in the end.
    FAILED = "failed"
    CANCELLED = "cancelled"
    # A limit or a budget allows none; there were too many.
    REFUSED = "refused"
    GAVE_UP = "gave_up"
