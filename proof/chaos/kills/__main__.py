"""Kill real processes many times; print what came of it, and the seed of each run that broke a promise."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from proof.chaos.kills.campaign import run_plans
from proof.chaos.kills.killable_server import ROOT, SOURCE_VARIABLE
from proof.chaos.kills.plan import Plan, draw_plan
from proof.chaos.kills.points import END_POINTS, HEIR_POINTS, METER_POINTS, POINTS
from proof.chaos.output import tell


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="how many (50)")
    parser.add_argument("--seed", type=int, help="the first seed; the same seed draws the same run")
    parser.add_argument(
        "--point", choices=["random", "meter", "ends", "heirs", *POINTS], help="only this kind of death"
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side (2)")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="begin no run after so many seconds")
    parser.add_argument(
        "--in-place", action="store_true", help="run the source as it lies here: quicker, but leave it alone"
    )
    chosen = parser.parse_args(argv)
    first = random.SystemRandom().randrange(1, 10**6) if chosen.seed is None else chosen.seed
    plans = draw_plans(first, chosen.runs, chosen.point)
    directory = Path(tempfile.mkdtemp(prefix="gpuherd-kills-"))
    if SOURCE_VARIABLE not in os.environ and not chosen.in_place:
        # It takes a while, and somebody may go on working on the service meanwhile.
        os.environ[SOURCE_VARIABLE] = str(shutil.copytree(ROOT / "src", directory / "src"))
    tell(f"  seeds {first} to {first + chosen.runs - 1}, {chosen.jobs} side by side, in {directory}")
    # aiohttp complains of connections whose other end was killed, which is what we are here for.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    begun = time.monotonic()
    report = asyncio.run(run_plans(plans, directory, chosen.jobs, chosen.limit_s))
    tell(report.table(time.monotonic() - begun))
    for plan in dict.fromkeys(plan for plan, _ in report.violations):
        tell(f"  python -m proof.chaos.kills --runs 1 --seed {plan.seed} --point {plan.point or 'random'}")
    if report.unreached:
        tell(f"never reached: {', '.join(report.unreached)}")
    failed = bool(report.violations or report.unreached)
    if not failed:
        # Of a run that went wrong, databases and logs are what people need next.
        shutil.rmtree(directory, ignore_errors=True)
    return int(failed)


def draw_plans(first: int, runs: int, point: str | None) -> list[Plan]:
    """Half of the deaths come at random moments, the other half at each point in turn."""
    every = [it for name in POINTS for it in ("", name)]
    chosen = {None: every, "random": [""], "meter": METER_POINTS, "ends": END_POINTS, "heirs": HEIR_POINTS}
    points = itertools.cycle(chosen.get(point, [point or ""]))
    return [draw_plan(seed, it) for seed, it in zip(range(first, first + runs), points, strict=False)]


if __name__ == "__main__":
    sys.exit(main())
