"""The named points at which a process can be told to kill itself."""

from __future__ import annotations

from dataclasses import dataclass

# In the writer's transaction, just before it is committed, and just after.
# `end` is the goal of what has come to its end, `review` what a budget tells; `succeed` makes an heir, and
# `retire` removes whoever it takes over from.
COMMITS = ("accept", "goal", "intent", "bind", "meter", "end", "review", "succeed", "retire")
# Around one call to the outside.
CALLS = ("post", "delete", "stop", "start", "webhook")
MID_BATCH = "mid_batch"
MID_MIGRATION = "mid_migration"
# What a list costs: before the transaction that writes it, and between its spans and their sums by day.
BEFORE_METER = "before_meter"
MID_METER = "mid_meter"

POINTS = (
    *(f"{when}_{what}_commit" for what in COMMITS for when in ("before", "after")),
    *(f"{when}_{what}" for what in CALLS for when in ("before", "after")),
    MID_BATCH,
    MID_MIGRATION,
    BEFORE_METER,
    MID_METER,
)
METER_POINTS = (BEFORE_METER, MID_METER, "before_meter_commit", "after_meter_commit")
# An end: written down, then asked for; by a lease, or by a budget whose review comes first.
LEASE_POINTS = ("before_end_commit", "after_end_commit", "before_stop", "after_stop")
REVIEW_POINTS = ("before_review_commit", "after_review_commit")
END_POINTS = (*LEASE_POINTS, *REVIEW_POINTS)
HEIR_POINTS = tuple(f"{when}_{what}_commit" for what in ("succeed", "retire") for when in ("before", "after"))
# How many statements change the schema on the way from nothing to now; any of them may be the last.
MIGRATION_STEPS = 20

CRASH_AT_VARIABLE = "GPUHERD_CRASH_AT"


@dataclass(frozen=True)
class Kill:
    """One death: at the n-th time that a point is reached, or so many seconds after a start."""

    point: str = ""
    n: int = 1
    after_s: float = 0.0
    # From when the seconds count: from the first request that is taken, or from the very beginning.
    when_ready: bool = False

    @property
    def word(self) -> str:
        """What the process is told; empty if it does not know of its death."""
        return f"{self.point}:{self.n}" if self.point else ""

    def __str__(self) -> str:
        return self.word or f"{self.after_s:.2f}s{' of service' if self.when_ready else ''}"
