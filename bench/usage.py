"""What a process has used, read from /proc, so that no library is needed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads so far, user and system."""
    # The name in brackets may hold spaces; everything after it is numbers.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def family_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children, those that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    total_s = sum(map(int, fields[11:15])) / _TICKS_PER_S
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        # One that has just ended is counted by its parent, the next time.
        with contextlib.suppress(OSError):
            total_s += cpu_s(int(child))
    return total_s


def rss_mb(pid: int) -> float:
    """Return the memory that is resident now, in MB (10^6 bytes)."""
    return _status_kb(pid, "VmRSS") * 1024 / 1e6


def peak_rss_mb(pid: int) -> float:
    """Return the most memory that was ever resident, in MB."""
    return _status_kb(pid, "VmHWM") * 1024 / 1e6


def _status_kb(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)
