"""`python -m bench`: measure, print the table and write it to `bench/results.md`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import structlog

from bench.environment import TINY, BenchEnvironment, Scale
from bench.report import CAUTION, Line, busy, machine, markdown, terminal_table
from bench.rows import ROWS

FAILED = "failed"
RESULTS = Path(__file__).parent / "results.md"


async def run(names: list[str], scale: Scale) -> list[Line]:
    """Measure some rows, one after the other, and tell how it goes."""
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="gpuherd-bench-") as directory:
        bench_env = BenchEnvironment(Path(directory), scale)
        for name in names:
            began_s = time.perf_counter()
            print(f"{name} …", end=" ", flush=True)
            found = await _measured(name, bench_env)
            print(f"{time.perf_counter() - began_s:.0f} s", flush=True)
            for line in found:
                why = f"({line.note})" if line.ours == FAILED else ""
                print("   ", "  ".join(filter(None, (*line.cells, why))), flush=True)
            lines += found
    return lines


async def _measured(name: str, bench_env: BenchEnvironment) -> list[Line]:
    try:
        return await ROWS[name](bench_env)
    except Exception as error:
        # The others were measured all the same; the table says what happened to this one.
        return [Line(name, FAILED, "", None, "", False, f"{type(error).__name__}: {error}"[:300])]


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in ROWS]:
        raise argparse.ArgumentTypeError(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", type=_names, default=list(ROWS), help=f"some of: {','.join(ROWS)}")
    parser.add_argument("--tiny", action="store_true", help="small counts: does it work at all?")
    parser.add_argument("--write", type=Path, help="where to write the page (a full run: bench/results.md)")
    options = parser.parse_args()
    # The table is what is to be read here; seeding uses adapters that have much to say.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    began, is_busy, began_s = machine(), busy(), time.perf_counter()
    lines = asyncio.run(run(options.only, TINY if options.tiny else Scale()))
    print(f"\n{began}\n{CAUTION if is_busy else ''}\n{terminal_table(lines)}")
    # Part of a run, or a tiny one, must not pass for the whole.
    is_whole = options.only == list(ROWS) and not options.tiny
    if path := options.write or (RESULTS if is_whole else None):
        took_s = time.perf_counter() - began_s
        path.write_text(markdown(lines, began, datetime.now(UTC), took_s, is_busy=is_busy))
        print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
