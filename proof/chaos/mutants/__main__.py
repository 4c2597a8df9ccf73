"""Take every guard away, one at a time. Exit with 1 if a guard is not missed, or does not fit the source."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from proof.chaos.mutants.guard import Guard
from proof.chaos.mutants.guards import GUARDS
from proof.chaos.mutants.runner import ROOT, Verdict, find_markers, run_without
from proof.chaos.output import tell


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.mutants", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", help="guards whose name contains this")
    parser.add_argument(
        "--changed",
        metavar="REV",
        nargs="?",
        const="main",
        help="guards whose marker stands in a file that differs from this revision (main)",
    )
    parser.add_argument("--from", dest="first", type=int, default=1, help="begin with this number (1)")
    parser.add_argument("--to", dest="last", type=int, default=len(GUARDS), help="end with this number")
    parser.add_argument("--verbose", action="store_true", help="show the output of the tests")
    chosen = parser.parse_args(argv)
    guards = list(enumerate(GUARDS, start=1))[chosen.first - 1 : chosen.last]
    if chosen.only is not None:
        guards = [(n, it) for n, it in guards if chosen.only in it.name]
    if chosen.changed is not None:
        files = changed_files(chosen.changed)
        places = find_markers()
        guards = [(n, it) for n, it in guards if any(path in files for path, _ in places.get(it.name, []))]
        if not guards:
            tell(f"No guard stands in a file that differs from {chosen.changed}.")
            return 0
    if not guards:
        tell("No guard was chosen. These are all:\n" + "\n".join(f"  {it.name}" for it in GUARDS))
        return 2
    return report(guards, verbose=chosen.verbose)


def changed_files(revision: str) -> set[Path]:
    """Return the files of the source that differ from a revision, new ones too."""
    commands = (["diff", "--name-only", revision, "--"], ["ls-files", "--others", "--exclude-standard"])
    names = [
        subprocess.run(
            ["git", *command, "src"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\n")
        for command in commands
    ]
    return {ROOT / name for lines in names for name in lines if name}


def report(guards: Sequence[tuple[int, Guard]], *, verbose: bool) -> int:
    verdicts: Counter[Verdict] = Counter()
    begun = time.monotonic()
    markers = find_markers()
    with tempfile.TemporaryDirectory(prefix="gpuherd-mutants-") as scratch:
        for n, guard in guards:
            since = time.monotonic()
            verdict, output = run_without(guard, markers, Path(scratch))
            verdicts[verdict] += 1
            tell(f"  {n:>3}  {verdict:<9} {time.monotonic() - since:>5.1f} s  {guard.name}")
            if verbose or verdict not in (Verdict.CAUGHT, Verdict.MISSED):
                tell(output)
    took_s = time.monotonic() - begun
    tell(
        f"  {verdicts[Verdict.CAUGHT]} of {len(guards)} guards are missed when they are gone ({took_s:.0f} s)"
    )
    return int(verdicts[Verdict.CAUGHT] != len(guards))


if __name__ == "__main__":
    sys.exit(main())
