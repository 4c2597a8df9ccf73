"""Take every guard away, one at a time; answer 1 if nobody notices, or if a guard is not where it was."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from proof.chaos.mutants.guards import GUARDS
from proof.chaos.mutants.runner import Verdict, run_mutant
from proof.chaos.mutants.safeguard import Safeguard
from proof.chaos.output import tell


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="those whose name contains this")
    parser.add_argument("--from", dest="first", type=int, default=1, help="begin with this number (1)")
    parser.add_argument("--to", dest="last", type=int, default=len(GUARDS), help="end with this number")
    parser.add_argument("--verbose", action="store_true", help="show what the tests said")
    chosen = parser.parse_args(argv)
    numbered = list(enumerate(GUARDS, start=1))[chosen.first - 1 : chosen.last]
    guards = [(n, it) for n, it in numbered if chosen.only is None or chosen.only in it.name]
    if not guards:
        tell("there is no such guard; these are all:\n" + "\n".join(f"  {it.name}" for it in GUARDS))
        return 2
    return report(guards, verbose=chosen.verbose)


def report(guards: Sequence[tuple[int, Safeguard]], *, verbose: bool) -> int:
    verdicts: Counter[Verdict] = Counter()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpuherd-mutants-") as scratch:
        for n, guard in guards:
            since = time.monotonic()
            verdict, said = run_mutant(guard, Path(scratch))
            verdicts[verdict] += 1
            tell(f"  {n:>3}  {verdict:<9} {time.monotonic() - since:>5.1f} s  {guard.name}")
            if verbose or verdict is Verdict.BROKEN:
                tell(said)
    took_s = time.monotonic() - begun
    tell(
        f"  {verdicts[Verdict.CAUGHT]} of {len(guards)} guards are missed when they are gone ({took_s:.0f} s)"
    )
    return int(verdicts[Verdict.CAUGHT] != len(guards))


if __name__ == "__main__":
    sys.exit(main())
