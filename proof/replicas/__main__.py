"""Strike replicas many times; print what came of it, and the seed of each run that broke a promise."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from proof.chaos.kills.killable_server import ROOT, SOURCE_VARIABLE
from proof.chaos.output import tell
from proof.replicas.campaign import run_plans
from proof.replicas.plan import Nemesis, draw_plan


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.replicas", description=__doc__)
    parser.add_argument("story", choices=list(Nemesis), type=Nemesis, help="what happens to them")
    parser.add_argument("--runs", type=int, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, help="the first seed; the same seed draws the same run")
    parser.add_argument("--replicas", type=int, help="how many in each run (2 or 3, as drawn)")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side (2)")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="begin no run after so many seconds")
    parser.add_argument(
        "--in-place", action="store_true", help="run the source as it lies here: quicker, but leave it alone"
    )
    chosen = parser.parse_args(argv)
    first = random.SystemRandom().randrange(1, 10**6) if chosen.seed is None else chosen.seed
    seeds = range(first, first + chosen.runs)
    plans = [draw_plan(chosen.story, seed, chosen.replicas) for seed in seeds]
    directory = Path(tempfile.mkdtemp(prefix=f"gpuherd-{chosen.story}-"))
    if SOURCE_VARIABLE not in os.environ and not chosen.in_place:
        # It takes a while, and somebody may go on working on the service meanwhile.
        os.environ[SOURCE_VARIABLE] = str(shutil.copytree(ROOT / "src", directory / "src"))
    tell(f"  seeds {first} to {first + chosen.runs - 1}, {chosen.jobs} side by side, in {directory}")
    # aiohttp complains of connections whose other end was killed, which is what we are here for.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    # So that the database server is ended too, which would outlive us.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    begun_s = time.monotonic()
    report = asyncio.run(run_plans(plans, directory, chosen.jobs, chosen.limit_s))
    tell(report.table(time.monotonic() - begun_s))
    for plan in dict.fromkeys(plan for plan, _ in report.violations):
        tell(f"  {plan.command}")
    return int(bool(report.violations))


if __name__ == "__main__":
    sys.exit(main())
