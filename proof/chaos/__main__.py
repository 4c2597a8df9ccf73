"""Run many seeds, kill one life at every point, or replay a single seed; print what came of it."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from proof.chaos.crash_points import FAULTS, double_crashes, failures, single_crashes
from proof.chaos.output import tell
from proof.chaos.replay import replay
from proof.chaos.report import Report, run_predecessor, run_seeds
from proof.chaos.runner import silence_logs
from proof.chaos.schedules import PROFILES

CHUNK = 100
COVERAGE_FROM = 1000
SHOWN = 20

T = TypeVar("T")
R = TypeVar("R")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run many seeds")
    run.add_argument("--seeds", type=int, default=2000, help="how many (2000)")
    run.add_argument("--first", type=int, default=0, help="the first seed (0)")
    run.add_argument("--profile", choices=[*PROFILES, "predecessor"], default="default")
    run.add_argument("--jobs", type=int, default=1, help="processes at once (1)")
    points = commands.add_parser("points", help="kill one life at every point of it, with every fault")
    points.add_argument("--pairs", action="store_true", help="kill it twice instead, at every pair of points")
    points.add_argument("--stride", type=int, default=1, help="only every n-th point (1)")
    points.add_argument("--offset", type=int, default=0, help="beginning with this one (0)")
    points.add_argument("--jobs", type=int, default=1, help="processes at once (1)")
    again = commands.add_parser("replay", help="run one seed and print its trace")
    again.add_argument("seed", type=int)
    again.add_argument("--profile", choices=list(PROFILES), default="default")
    chosen = parser.parse_args(argv)
    _prepare_process()
    match chosen.command:
        case "run":
            return run_many(range(chosen.first, chosen.first + chosen.seeds), chosen.profile, chosen.jobs)
        case "points":
            return kill_everywhere(chosen.pairs, slice(chosen.offset, None, chosen.stride), chosen.jobs)
        case _:
            return replay(chosen.seed, chosen.profile)


def _prepare_process() -> None:
    """Make ready for many short plays: no log, and no search for garbage among what stays anyway."""
    silence_logs(for_good=True)
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def run_many(seeds: range, profile: str, jobs: int) -> int:
    """Answer 1 if a promise was broken, or if something that should happen never did."""
    report = Report(profile)
    chunks = [(seeds[start : start + CHUNK], profile) for start in range(0, len(seeds), CHUNK)]
    for part in _spread(_run_chunk, chunks, jobs):
        report.add(part)
    tell("\n".join(report.lines()))
    for seed, violation in report.violations[:SHOWN]:
        tell(f"SEED={seed} {violation}")
        if profile != "predecessor":
            tell(f"  python -m proof.chaos replay {seed} --profile {profile}")
    if profile == "predecessor":
        # It must be caught, or the checker is blind.
        return int(not report.violations)
    if report.unreached:
        tell(f"never reached: {', '.join(report.unreached)}")
    # Among a few seeds something rare may well be missing.
    is_blind = bool(report.unreached) and len(seeds) >= COVERAGE_FROM
    return int(bool(report.violations) or is_blind)


def _run_chunk(chunk: tuple[range, str]) -> Report:
    seeds, profile = chunk
    return run_predecessor(seeds) if profile == "predecessor" else run_seeds(seeds, profile)


def kill_everywhere(pairs: bool, share: slice, jobs: int) -> int:
    """Answer 1 if there is a point at which a death breaks a promise."""
    singles = {fault: single_crashes(fault) for fault in (["none"] if pairs else FAULTS)}
    cases = [case for each in singles.values() for case in each[share]]
    if pairs:
        firsts = [crashes_at[0] for _, crashes_at in cases]
        cases = [case for each in _spread(double_crashes, firsts, jobs) for case in each[share]]
    chunks = [cases[start : start + CHUNK] for start in range(0, len(cases), CHUNK)]
    found = [line for part in _spread(failures, chunks, jobs) for line in part]
    what = "pairs of points" if pairs else f"points under {len(FAULTS)} faults"
    tell(f"  killed at {len(cases):,} {what}, broken promises: {len(found)}")
    tell("\n".join(found[:SHOWN]))
    return int(bool(found))


def _spread(work: Callable[[T], R], parts: Sequence[T], jobs: int) -> Sequence[R]:
    """Do the parts in so many processes and return the results in order."""
    if jobs == 1:
        return [work(part) for part in parts]
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork"), initializer=_prepare_process) as pool:
        return list(pool.map(work, parts))


if __name__ == "__main__":
    sys.exit(main())
