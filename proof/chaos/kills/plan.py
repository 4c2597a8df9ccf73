"""What one run does, drawn from its seed: whose lives, which deaths, which troubles of the cloud."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proof.chaos.kills.points import (
    HEIR_POINTS,
    LEASE_POINTS,
    METER_POINTS,
    MID_BATCH,
    MID_MIGRATION,
    MIGRATION_STEPS,
    POINTS,
    REVIEW_POINTS,
    Kill,
)

CREATE_FAULTS = ("lost_reply_after_commit", "error_after_commit", "garbage", "lost_reply_before_commit")

# So often the ledger is surely written in a run.
METER_TIMES_MAX = 4


class UserScript(StrEnum):
    """What a user does with one instance."""

    KEEP = "keep"
    STOP = "stop"
    RESTART = "restart"
    DELETE = "delete"
    # Before anybody can know whether there is a machine.
    DELETE_AT_ONCE = "delete_at_once"
    # Nobody asks for an end: a lease stops or deletes it, or a budget that is used up.
    LEASE = "lease"
    LEASE_DELETE = "lease_delete"
    BUDGET = "budget"
    # The cloud takes its machine back, and another instance takes over.
    REPLACED = "replaced"


BY_HAND = tuple(UserScript)[:5]
BY_LEASE = (UserScript.LEASE, UserScript.LEASE_DELETE)
BY_ITSELF = (*BY_LEASE, UserScript.BUDGET)


@dataclass(frozen=True)
class Plan:
    """One run."""

    seed: int
    # Where the first death is; empty for any moment.
    point: str
    scripts: tuple[UserScript, ...]
    kills: tuple[Kill, ...]
    faults: tuple[dict[str, Any], ...] = field(default=(), hash=False)

    @property
    def label(self) -> str:
        """Under which line of the table it counts."""
        return self.point or "random moments"

    def name(self, n: int) -> str:
        return f"k{self.seed}-{n}"


def draw_plan(seed: int, point: str = "") -> Plan:
    """Draw a run. With a point, the first death is there."""
    rng = random.Random(f"{seed}/{point}")
    first = Kill(point, _times(point, rng)) if point else _any_moment(rng)
    kills = [first]
    if not point:
        kills += [_any_kill(rng) for _ in range(rng.randint(0, 2))]
    scripts = [*_needed_for(point), *rng.choices(BY_HAND, k=2)]
    rng.shuffle(scripts)
    faults: tuple[dict[str, Any], ...] = ()
    if rng.random() < 0.4:
        kind = rng.choice(CREATE_FAULTS)
        faults = ({"kind": kind, "count": 1, "nameContains": f"k{seed}-", "endpoints": ["create"]},)
    return Plan(seed, point, tuple(scripts), tuple(kills), faults)


def _any_kill(rng: random.Random) -> Kill:
    if rng.random() < 0.5:
        return _any_moment(rng)
    return Kill(rng.choice([it for it in POINTS if it != MID_MIGRATION]), rng.randint(1, 2))


def _any_moment(rng: random.Random) -> Kill:
    if rng.random() < 0.2:
        return Kill(after_s=rng.uniform(0.3, 2.0))
    # Most of what can go wrong happens in the first second.
    return Kill(after_s=rng.choice((0.3, 1.0, 3.0)) * rng.random(), when_ready=True)


def _times(point: str, rng: random.Random) -> int:
    if point == MID_MIGRATION:
        return rng.randint(1, MIGRATION_STEPS)
    # The first list opens the spans of what is there; those after it open, doubt and close.
    if point in METER_POINTS:
        return rng.randint(1, METER_TIMES_MAX)
    if point in LEASE_POINTS:
        # Three come to their end by themselves; a stop is asked for by a user, and by a lease.
        return rng.randint(1, 3) if "_end_" in point else rng.randint(1, 2)
    return 1


def _needed_for(point: str) -> list[UserScript]:
    """Return lives that come past a point."""
    if point == MID_BATCH:
        # Many at once, so that some share a commit.
        return [UserScript.KEEP] * 6
    if point in REVIEW_POINTS:
        return [UserScript.BUDGET]
    if point in HEIR_POINTS:
        return [UserScript.REPLACED]
    if "_end_" in point:
        return [*BY_ITSELF]
    if point.endswith("_stop"):
        return [UserScript.RESTART, UserScript.LEASE]
    if "goal" in point or "_st" in point:
        return [UserScript.RESTART]
    if point in METER_POINTS:
        return [UserScript.RESTART, UserScript.DELETE]
    if point.endswith("_delete"):
        return [UserScript.DELETE]
    return [UserScript.KEEP]
