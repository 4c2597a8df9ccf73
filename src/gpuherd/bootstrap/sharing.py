"""Limits for the whole installation: on PostgreSQL, replicas draw from one budget and share one breaker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from gpuherd.adapters.sql.budgets import SqlBreakerBoard, SqlBudgets
from gpuherd.adapters.sql.database import Database
from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.clock import Clock
from gpuherd.entrypoints.worker.loops import Loop
from gpuherd.resilience.drawn_turns import DrawnTurns
from gpuherd.usecases.share_breaker import ShareBreaker

log = structlog.get_logger()

# So long another replica may still make calls that one has found to be in vain.
BREAKER_S = 1.0
# So late the metrics of one who makes no calls show that all were told to slow down.
RATE_S = 5.0


def share_limits(
    link: CloudLink,
    database: Database,
    clock: Clock,
    workers: Callable[[], int],
    may_probe: Callable[[], bool],
) -> list[Loop]:
    """Make the link's limits those of all replicas; return the loops that this needs. Alone, it needs none.

    `workers` says how many replicas make calls now, `may_probe` whether this one may find out how a cloud is
    that was found sick.
    """
    if database.is_sqlite:
        return []
    return [*_share_rates(link, database, clock), *_share_breaker(link, database, clock, workers, may_probe)]


def _share_rates(link: CloudLink, database: Database, clock: Clock) -> list[Loop]:
    budgets, loops = SqlBudgets(database), []
    for name, limit in link.limits.items():
        turns = DrawnTurns(
            clock,
            limit,
            partial(budgets.draw, name, limit),
            partial(budgets.throttle, name, limit),
            partial(budgets.look, name, limit),
            partial(_complain, name),
        )
        link.limiters[name].draw_from(turns)
        loops.append(Loop(f"rate-{name}", RATE_S, turns.look, clock))
    return loops


def _complain(name: str, error: Exception) -> None:
    log.warning("budget.lost", budget=name, error=type(error).__name__)


def _share_breaker(
    link: CloudLink,
    database: Database,
    clock: Clock,
    workers: Callable[[], int],
    may_probe: Callable[[], bool],
) -> list[Loop]:
    if link.breaker is None:
        return []
    share = ShareBreaker(link.breaker, SqlBreakerBoard(database))
    link.breaker.share(workers, may_probe, share.changed)
    return [Loop("breaker", BREAKER_S, share, clock)]
