"""What is asked every few seconds, or for each job, must not read a whole table."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import FileHerd, Herd

GROWING = (
    "instance",
    "job",
    "event",
    "attempt",
    "delivery",
    "operation",
    "claim",
    "audit",
    "meter",
    "ledger_subject",
    "ledger_day",
)
# These indexes hold few rows however many there are in the table.
FEW = ("instance_unsettled", "one_open_span", "meter_unpriced", "meter_doubtful")
VERBS = ("SELECT", "UPDATE", "DELETE", "INSERT", "WITH")
# Its entry for unfinished jobs may stand for most of the table.
COARSE = "INDEX job_by_state "


@contextmanager
def heard() -> Iterator[list[str]]:
    """Collect every statement that goes to a SQLite database."""
    found: dict[str, None] = {}

    def note(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if connection.dialect.name == "sqlite":
            found[statement] = None

    statements: list[str] = []
    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", note)
        statements += found


def reads_too_much(path: Path, statement: str) -> list[str]:
    """Return the steps of its plan that look at more rows than it wants."""
    names = re.findall(r":(\w+)", statement)
    values: Any = dict.fromkeys(names) if names else [None] * statement.count("?")
    with closing(sqlite3.connect(path)) as connection:
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    return [step for step in steps if _is_scan(step) or COARSE in step]


def _is_scan(step: str) -> bool:
    words = step.split()
    return words[0] == "SCAN" and words[1] in GROWING and not any(f"INDEX {it}" in step for it in FEW)


@pytest.fixture
def herd(tmp_path: Path) -> Iterator[Herd]:
    clock = FakeClock(auto=True)
    herd = FileHerd(tmp_path / "herd.db", World(clock, random.Random(5)), clock)
    yield herd
    herd.close()


async def test_health_costs_no_more_with_many_jobs(herd: Herd, tmp_path: Path) -> None:
    for n in range(5):
        await herd.launch(f"job-{n}")
    with heard() as statements:
        assert await herd.book.oldest_due_s() >= 0.0
    (asked,) = [it for it in statements if it.split(None, 1)[0] in VERBS]
    assert "GROUP BY" not in asked
    assert reads_too_much(tmp_path / "herd.db", asked) == []


async def test_no_turn_look_or_sweep_reads_a_whole_table(herd: Herd, tmp_path: Path) -> None:
    with heard() as statements:
        one = await herd.launch(webhook_url="https://example.com/hook")
        await herd.settle(one)
        await herd.run_for(timedelta(seconds=30))
        await herd.sweep()
    # Few jobs run, whatever waits.
    asked = [it for it in statements if it.split(None, 1)[0] in VERBS and "job.processed_at <" not in it]
    assert len(asked) > 30
    guilty = {it: steps for it in asked if (steps := reads_too_much(tmp_path / "herd.db", it))}
    assert guilty == {}
