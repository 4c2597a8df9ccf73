"""Real processes die at every named point and at random moments; nothing is lost, doubled or left undone."""

from __future__ import annotations

import copy
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from proof.chaos.kills.campaign import DECOYS, run_plan, run_plans, shared_cloud
from proof.chaos.kills.checker import SECRETS, check
from proof.chaos.kills.plan import Plan, UserScript, draw_plan
from proof.chaos.kills.points import POINTS, Kill

pytestmark = [pytest.mark.processes, pytest.mark.long]

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
# Besides the tours; `python -m proof.chaos.kills` makes as many as there is time for.
RUNS = 1

# A point that is armed first is always reached.
TOURS_MAX = 4
# Each is one run with several deaths, one after the other: every named point is in one of them.
TOURS: dict[str, tuple[tuple[str, ...], tuple[UserScript, ...]]] = {
    "accepting": (
        ("mid_migration", "before_accept_commit", "after_accept_commit", "mid_batch"),
        (UserScript.KEEP,) * 8,
    ),
    "renting": (
        ("before_intent_commit", "after_intent_commit", "before_post", "after_post"),
        (UserScript.KEEP,) * 5,
    ),
    "binding and telling": (
        ("before_bind_commit", "after_bind_commit", "before_webhook", "after_webhook"),
        (UserScript.KEEP,) * 4,
    ),
    "stopping and starting": (
        (
            "before_goal_commit",
            "after_goal_commit",
            "before_stop",
            "after_stop",
            "before_start",
            "after_start",
        ),
        (UserScript.RESTART,) * 4,
    ),
    "deleting": (
        ("before_delete", "after_delete"),
        (UserScript.DELETE, UserScript.DELETE_AT_ONCE, UserScript.DELETE),
    ),
    "ending": (
        ("before_end_commit", "after_end_commit"),
        (UserScript.LEASE, UserScript.LEASE, UserScript.LEASE_DELETE, UserScript.LEASE_DELETE),
    ),
    "taking over": (
        ("before_succeed_commit", "after_succeed_commit", "before_retire_commit", "after_retire_commit"),
        (UserScript.REPLACED,) * 4,
    ),
    "reviewing": (
        ("before_review_commit", "after_review_commit"),
        (UserScript.BUDGET, UserScript.BUDGET),
    ),
    "metering": (
        ("before_meter", "mid_meter", "before_meter_commit", "after_meter_commit"),
        (UserScript.RESTART, UserScript.RESTART, UserScript.DELETE),
    ),
}


def test_the_tours_come_past_every_point() -> None:
    assert sorted(point for points, _ in TOURS.values() for point in points) == sorted(POINTS)


@pytest.mark.parametrize("name", TOURS)
async def test_a_death_at_each_named_point_breaks_nothing(name: str, tmp_path: Path) -> None:
    points, scripts = TOURS[name]
    async with shared_cloud(tmp_path) as novita:
        for tour in range(TOURS_MAX):
            plan = Plan(1, points[0], scripts, tuple(Kill(point, 1) for point in points))
            run, broken = await run_plan(plan, novita, tmp_path / f"run-{tour}")
            assert broken == [], run.said[-2000:].decode(errors="replace")
            # All users may have come past a point in the life before it was armed: then it has a tour anew.
            points = tuple(it for it, died in zip(points, run.reached, strict=True) if not died)
            if not points:
                break
    assert points == ()


async def test_the_checker_sees_what_is_broken(tmp_path: Path) -> None:
    plan = Plan(1, "", (UserScript.KEEP,), ())
    async with shared_cloud(tmp_path) as novita:
        run, broken = await run_plan(plan, novita, tmp_path / "run")
    assert broken == []
    (ours,) = [it for it in run.machines if it["name"].startswith(plan.name(0)) and it["name"] not in DECOYS]
    event_id, headers, body = run.hooks.got[-1]
    cases = {
        "orphan": lambda it: it.machines.append({**ours, "id": "another"}),
        "duplicate": lambda it: it.machines.append({**ours, "id": "another", "alive": False}),
        "lost": lambda it: it.machines.remove(ours),
        "webhook": lambda it: it.hooks.got.append((event_id, headers, body + b" ")),
        "unended": lambda it: it.problems.append("a request never came to its end"),
        "ledger": lambda it: it.machines.append({**ours, "id": "another"}),
        "secret": lambda it: setattr(it, "said", it.said + SECRETS[0].encode()),
    }
    for kind, spoil in cases.items():
        spoilt = replace(run, machines=[*run.machines], hooks=copy.deepcopy(run.hooks), problems=[])
        spoil(spoilt)
        assert kind in {it.partition(":")[0] for it in check(spoilt)}, kind


async def test_deaths_at_random_moments_break_nothing(tmp_path: Path) -> None:
    plans = [draw_plan(seed) for seed in range(SEED, SEED + RUNS)]
    report = await run_plans(plans, tmp_path, at_once=2)
    assert report.violations == [], f"python -m proof.chaos.kills --runs {RUNS} --seed {SEED} --point random"
