"""`python -m bench.month --seed 7`: play a month with every strategy and write `bench/month.md`."""

from __future__ import annotations

import argparse
import gc
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.month.figures import Month, play_everything
from bench.month.report import page, terminal
from proof.chaos.runner import silence_logs

PAGE = Path(__file__).parents[1] / "month.md"
RENTALS, DAYS = 1000, 30.0


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.month", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on (1)")
    parser.add_argument("--rentals", type=int, default=RENTALS)
    parser.add_argument("--days", type=float, default=DAYS)
    parser.add_argument("--write", type=Path, help="where to write the page (a whole month: bench/month.md)")
    options = parser.parse_args()
    silence_logs(for_good=True)
    # Millions of small things that live for a month: nothing to be found among them meanwhile.
    gc.set_threshold(100_000, 20, 100)
    commit, months = _commit(), list[Month]()
    is_whole = (options.rentals, options.days) == (RENTALS, DAYS)
    path = options.write or (PAGE if is_whole else None)
    first_cpu_s = 0.0
    for seed in range(options.seed, options.seed + options.seeds):
        began_s = time.process_time()
        months.append(play_everything(seed, options.rentals, options.days))
        took_s = time.process_time() - began_s
        first_cpu_s = first_cpu_s or took_s
        print(f"seed {seed}, {took_s:.0f} s of CPU time\n{terminal(months[-1])}\n", flush=True)
        # After each of them: whoever has no time for all has the first.
        if path is not None:
            path.write_text(page(months, commit, datetime.now(UTC), first_cpu_s))
            print(f"written to {path}")


if __name__ == "__main__":
    main()
