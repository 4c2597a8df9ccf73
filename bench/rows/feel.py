"""What a person at a terminal waits for: the start of the command line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from bench.environment import BenchEnvironment
from bench.report import Line

TRIES = 7
# A Python that imports what any such command line needs.
BARE = ("-c", "import click, rich.table")
# Nothing listens there: the command says so and ends.
NO_SERVER = {"GPUHERD_URL": "http://127.0.0.1:9", "GPUHERD_API_KEY": "k" * 32}
HELP_MAX, LS_MAX = 1.6, 2.6


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    return await asyncio.to_thread(_measure)


def _measure() -> list[Line]:
    bare_s = _cpu_s(BARE)
    return [
        _line("gpuherd --help", _cpu_s(("-m", "gpuherd", "--help")), bare_s, HELP_MAX),
        _line("gpuherd ls, no server", _cpu_s(("-m", "gpuherd", "ls")), bare_s, LS_MAX),
    ]


def _line(what: str, ours_s: float, bare_s: float, ratio_max: float) -> Line:
    ratio = ours_s / bare_s
    return Line(
        f"CPU of `{what}`",
        f"{ours_s * 1000:.0f} ms",
        f"{bare_s * 1000:.0f} ms",
        ratio,
        f"≤ {ratio_max} ×",
        ratio <= ratio_max,
        f"best of {TRIES}; baseline: a Python that imports click and rich.table",
    )


def _cpu_s(arguments: tuple[str, ...]) -> float:
    """Return the least CPU time that a Python with these arguments took."""
    return min(_once_s(arguments) for _ in range(TRIES))


def _once_s(arguments: tuple[str, ...]) -> float:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **NO_SERVER},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime
