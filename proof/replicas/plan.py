"""What one run does, drawn from its seed: how many replicas, whose lives, what strikes whom and when."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proof.chaos.kills.plan import BY_HAND, BY_LEASE, METER_TIMES_MAX, UserScript
from proof.chaos.kills.points import HEIR_POINTS, LEASE_POINTS, METER_POINTS
from proof.replicas.postgres_cluster import Mode

# In order of how often they are drawn; the rest of what the cloud can do to us is another suite's affair.
CREATE_FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "lost_reply_after_commit"},
    {"kind": "error_after_commit", "status": 502},
    {"kind": "lost_reply_before_commit"},
    # Well within the settling time, or a second machine would be nobody's fault.
    {"kind": "late_commit", "seconds": 0.5},
    # Longer than we wait for an answer.
    {"kind": "hang", "seconds": 2.5},
    {"kind": "refuse", "status": 503},
    {"kind": "garbage"},
)
# Calls that last, so that somebody is in the middle of one when he is struck.
SLOW_CREATES = {"kind": "hang", "endpoints": ["create"], "probability": 0.5, "seconds": 0.6}
# Where a replica may stop: on either side of each promise, and with rows locked in the middle of one.
FREEZE_POINTS = (
    "after_intent_commit",
    "before_post",
    "after_post",
    "before_intent_commit",
    "before_bind_commit",
    "after_bind_commit",
    "before_delete",
    "before_stop",
    "before_start",
    "before_webhook",
    "after_goal_commit",
    "before_watch_commit",
    "before_accept_commit",
)


class Nemesis(StrEnum):
    """What happens to the replicas."""

    KILL = "kill"
    STOP = "stop"
    # Whoever looks at the cloud is killed while it writes down what that costs.
    METER = "meter"
    # Whoever has a lease end is stopped past its own term in the middle of that.
    LEASE = "lease"
    # Whoever makes an heir, or hands over to it, is killed or stopped past its term in the middle of that.
    HEIRS = "heirs"
    RESTART = "restart"
    # The database is killed, and a standby that lags behind takes its place.
    FAILOVER = "failover"


class StrikeTarget(StrEnum):
    """Who is struck."""

    ANY = "any"
    # Whoever looks at the cloud for all.
    WATCH = "watch"
    DATABASE = "database"


@dataclass(frozen=True)
class Strike:
    """One blow: so long after the one before it, to whom, and how long he is down."""

    after_s: float
    target: StrikeTarget
    down_s: float
    # Where the replica stops by itself, as `point:n`; empty for any moment.
    at: str = ""
    # It does not wake up again, but is started anew.
    is_fatal: bool = False
    mode: Mode = "fast"
    # For how long the standby was behind, and whether it is reached before it was promoted.
    lag_s: float = 0.0
    reached_early: bool = False

    def __str__(self) -> str:
        where = f"at {self.at}" if self.at else f"+{self.after_s:.1f}s"
        return f"{self.target} {'killed ' if self.is_fatal else ''}{where} for {self.down_s:.1f}s"


@dataclass(frozen=True)
class Plan:
    """One run."""

    seed: int
    nemesis: Nemesis
    replicas: int
    scripts: tuple[UserScript, ...]
    strikes: tuple[Strike, ...]
    faults: tuple[dict[str, Any], ...] = field(default=(), hash=False)
    # So many replicas are never struck, and can go on with what the others leave.
    spared: int = 0

    @property
    def prefix(self) -> str:
        """What the names of all its machines begin with, and nobody else's."""
        return f"{self.nemesis}{self.seed}-"

    @property
    def command(self) -> str:
        """What to type to see it again."""
        return (
            f"python -m proof.replicas {self.nemesis} --runs 1 --seed {self.seed} --replicas {self.replicas}"
        )

    def begins_after_s(self, n: int) -> float:
        """When a user comes: all at once, but where the load must go on for a while."""
        return 4.0 * n / len(self.scripts) if self.nemesis is Nemesis.FAILOVER else 0.0

    def name(self, n: int) -> str:
        return f"{self.prefix}{n}"


def draw_plan(nemesis: Nemesis, seed: int, replicas: int | None = None) -> Plan:
    """Draw a run, the number of replicas too unless it is given."""
    rng = random.Random(f"{nemesis}/{seed}")
    drawn = 2 if nemesis is Nemesis.FAILOVER else rng.choice((2, 3, 3))
    draw = {
        Nemesis.KILL: _kills,
        Nemesis.STOP: _stops,
        Nemesis.METER: _meter_kills,
        Nemesis.LEASE: _lease_stops,
        Nemesis.HEIRS: _heir_strikes,
        Nemesis.RESTART: _restarts,
        Nemesis.FAILOVER: _failovers,
    }
    strikes = draw[nemesis](rng, seed)
    scripts = (
        # What was asked for in the lost second is lost; whoever wants a machine, or none, can ask again.
        rng.choices((UserScript.KEEP, UserScript.KEEP, UserScript.DELETE), k=rng.randint(8, 12))
        if nemesis is Nemesis.FAILOVER
        else [
            UserScript.KEEP,
            UserScript.DELETE,
            UserScript.RESTART,
            *rng.choices(BY_HAND, k=rng.randint(3, 5)),
        ]
    )
    if nemesis is Nemesis.LEASE:
        scripts = [*BY_LEASE, *rng.choices(BY_LEASE, k=2), UserScript.KEEP, UserScript.DELETE]
    if nemesis is Nemesis.HEIRS:
        scripts = [*[UserScript.REPLACED] * 3, *rng.choices(BY_HAND, k=2)]
    rng.shuffle(scripts)
    faults = _faults(rng, f"{nemesis}{seed}-")
    spared = rng.choice((0, 1, 1)) if nemesis is Nemesis.KILL else 0
    return Plan(seed, nemesis, replicas or drawn, tuple(scripts), strikes, faults, spared)


def _kills(rng: random.Random, _: int) -> tuple[Strike, ...]:
    target = (StrikeTarget.ANY, StrikeTarget.ANY, StrikeTarget.WATCH)
    return tuple(
        # Close to each other now and then, so that nobody is left for a while.
        Strike(
            rng.choice((0.2, 1.0, 2.5)) * rng.random(),
            rng.choice(target),
            rng.choice((0.0, 0.5, 4.0)),
            is_fatal=True,
        )
        for _ in range(rng.randint(2, 4))
    )


def _stops(rng: random.Random, seed: int) -> tuple[Strike, ...]:
    """Half of them at a point, each point in turn; longer than any lease lasts."""
    down_s = rng.uniform(12.0, 20.0)
    if seed % 2:
        point = FREEZE_POINTS[seed // 2 % len(FREEZE_POINTS)]
        return (Strike(0.0, StrikeTarget.ANY, down_s, at=f"{point}:{rng.randint(1, 2)}"),)
    return (
        Strike(
            2.0 * rng.random(),
            rng.choice((StrikeTarget.ANY, StrikeTarget.WATCH, StrikeTarget.WATCH)),
            down_s,
        ),
    )


def _meter_kills(rng: random.Random, seed: int) -> tuple[Strike, ...]:
    """At each of its points in turn; at times whoever takes over dies too, at any moment."""
    at = f"{METER_POINTS[seed % len(METER_POINTS)]}:{rng.randint(1, METER_TIMES_MAX)}"
    first = Strike(0.0, StrikeTarget.ANY, rng.choice((0.0, 0.5, 4.0)), at=at, is_fatal=True)
    second = Strike(3.0 * rng.random(), StrikeTarget.WATCH, rng.choice((0.0, 0.5)), is_fatal=True)
    return (first, second) if rng.random() < 0.3 else (first,)


def _lease_stops(rng: random.Random, seed: int) -> tuple[Strike, ...]:
    """At each point of an end in turn; longer than any lease of a row lasts."""
    at = f"{LEASE_POINTS[seed % len(LEASE_POINTS)]}:{rng.randint(1, 2)}"
    return (Strike(0.0, StrikeTarget.ANY, rng.uniform(12.0, 20.0), at=at),)


def _heir_strikes(rng: random.Random, seed: int) -> tuple[Strike, ...]:
    """At each point of a handover in turn, killed or stopped; at times whoever holds the watch dies too."""
    point, is_fatal = HEIR_POINTS[seed // 2 % len(HEIR_POINTS)], seed % 2 == 0
    down_s = rng.choice((0.0, 0.5, 4.0)) if is_fatal else rng.uniform(12.0, 20.0)
    first = Strike(0.0, StrikeTarget.ANY, down_s, at=f"{point}:{rng.randint(1, 2)}", is_fatal=is_fatal)
    second = Strike(2.0 * rng.random(), StrikeTarget.WATCH, rng.choice((0.0, 0.5)), is_fatal=True)
    return (first, second) if rng.random() < 0.3 else (first,)


def _restarts(rng: random.Random, _: int) -> tuple[Strike, ...]:
    modes: tuple[Mode, ...] = ("fast", "immediate")
    return tuple(
        Strike(
            0.5 if n == 0 else rng.uniform(3.0, 8.0),
            StrikeTarget.DATABASE,
            rng.choice((0.0, 0.0, 1.0, 2.5)) * rng.random(),
            mode=rng.choice(modes),
        )
        for n in range(rng.randint(2, 3))
    )


def _failovers(rng: random.Random, _: int) -> tuple[Strike, ...]:
    return (
        Strike(
            rng.uniform(0.2, 3.5),
            StrikeTarget.DATABASE,
            rng.choice((0.0, 0.5, 2.5)) * rng.random(),
            lag_s=rng.choice((0.3, 1.0, 1.5)) * rng.uniform(0.3, 1.0),
            reached_early=rng.random() < 0.3,
        ),
    )


def _faults(rng: random.Random, prefix: str) -> tuple[dict[str, Any], ...]:
    """Two kinds of trouble with creates in most runs, and some calls that take their time."""
    kinds = rng.sample(CREATE_FAULTS, rng.choice((0, 1, 2, 2)))
    troubles = [{**it, "endpoints": ["create"], "count": rng.randint(1, 2)} for it in kinds]
    return tuple({**it, "nameContains": prefix} for it in (*troubles, SLOW_CREATES))
