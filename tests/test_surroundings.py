"""The suite ends wherever it is started: in the background of a shell, under nohup, in a CI system."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The signal's disposition that a process started by a test inherits: ignored (1) or not.
DISPOSITION = """
import subprocess, sys, pathlib
def test_child(tmp_path):
    said = subprocess.run(
        [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"],
        capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
"""


def inner(
    tmp_path: Path, source: str, *options: str, ignore_sigint: bool
) -> subprocess.CompletedProcess[str]:
    """Run one test with this suite's conftest and settings, as if started by something else."""
    (tmp_path / "conftest.py").write_text((HERE / "conftest.py").read_text())
    (tmp_path / "test_inner.py").write_text(source)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            str(HERE.parent / "pyproject.toml"),
            "--rootdir",
            str(tmp_path),
            "-p",
            "no:cacheprovider",
            *options,
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignore_sigint else None,
    )


@pytest.mark.processes
def test_processes_started_by_tests_can_be_interrupted_although_sigint_was_ignored(tmp_path):
    done = inner(tmp_path, DISPOSITION, ignore_sigint=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.processes
def test_a_test_that_never_ends_is_stopped_and_named(tmp_path):
    source = "import asyncio\nasync def test_waits_for_ever():\n    await asyncio.Event().wait()\n"
    done = inner(tmp_path, source, "-o", "timeout=1", ignore_sigint=True)
    assert done.returncode == 1
    assert "test_waits_for_ever" in done.stdout
    assert "Timeout" in done.stdout


def test_every_test_has_a_time_limit(request):
    assert 0 < float(request.config.getini("timeout")) <= 600
