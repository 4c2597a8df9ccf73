"""The table: what was measured, against what, and whether it is what we promised."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

CAUTION = (
    "\n**The machine was busy with other work**: a target that is missed here by the clock says little, and "
    "ratios are rough too. Measure again on a quiet machine.\n"
)
HEADS = ("what", "ours", "baseline", "ratio", "target", "met")


@dataclass(frozen=True)
class Line:
    """One promise. `note` explains what the numbers cannot."""

    what: str
    ours: str
    baseline: str
    ratio: float | None
    target: str
    met: bool | None
    note: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        met = "" if self.met is None else ("yes" if self.met else "NO")
        return (self.what, self.ours, self.baseline, ratio, self.target, met)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def machine() -> str:
    """Return where this was measured, and how busy it was with other things."""
    return (
        f"{os.cpu_count()} cores ({_processor()}), {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"load average {os.getloadavg()[0]:.1f}"
    )


def busy() -> bool:
    """Tell whether others already want more than this machine has."""
    return os.getloadavg()[0] > (os.cpu_count() or 1)


def terminal_table(lines: Sequence[Line]) -> str:
    rows = [HEADS, *(line.cells for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def markdown(lines: Sequence[Line], began: str, now: datetime, took_s: float, *, is_busy: bool) -> str:
    """Return the page `bench/results.md`; `began` is what `machine()` said before anything ran."""
    rows = [HEADS, ("---",) * len(HEADS), *(line.cells for line in lines)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(f"- **{line.what}**: {line.note}" for line in lines if line.note)
    return (
        "# Benchmark results\n\n"
        f"Made by `make bench` on {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC in {took_s:.0f} s.\n"
        f"Machine: {began} (before the run).\n{CAUTION if is_busy else ''}\n"
        "Server, load generator and simulated cloud are processes of their own and share these cores, on\n"
        "loopback, so wall-clock figures depend on what else runs here; the ratio to the baseline, measured\n"
        "in turns with ours, and the CPU time per request are steadier. Medians of the rounds.\n\n"
        f"{table}\n\n{notes}\n"
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()
