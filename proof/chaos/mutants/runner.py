"""Takes a guard out of a copy of the service and runs the tests that must notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

from proof.chaos.mutants.safeguard import Safeguard

ROOT = Path(__file__).parents[3]
LIMIT_S = 120.0
# pytest's word for "some tests failed"; a file that cannot be loaded has another.
TESTS_FAILED = 1


class Verdict(StrEnum):
    """What became of a guard that was taken away."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    # The text is not there any more, or is there twice.
    STALE = "STALE"
    # The tests could not even be run.
    BROKEN = "BROKEN"


def path_of(guard: Safeguard, src: Path = ROOT / "src") -> Path:
    return src / "gpuherd" / guard.file


def applies(guard: Safeguard) -> bool:
    """Tell whether the text of a guard is in its file, once."""
    path = path_of(guard)
    return path.exists() and path.read_text().count(guard.text) == 1


def run_mutant(guard: Safeguard, scratch: Path) -> tuple[Verdict, str]:
    """Run the tests of a guard on a copy of the service without it; return the verdict and what was said."""
    if not applies(guard):
        return Verdict.STALE, ""
    src = scratch / "src"
    shutil.rmtree(src, ignore_errors=True)
    shutil.copytree(ROOT / "src", src, ignore=shutil.ignore_patterns("__pycache__"))
    path = path_of(guard, src)
    path.write_text(path.read_text().replace(guard.text, guard.without))
    compile(path.read_text(), str(path), "exec")
    code, said = _run_tests(guard, src)
    if code == TESTS_FAILED:
        return Verdict.CAUGHT, said
    return (Verdict.SURVIVED if code == 0 else Verdict.BROKEN), said


def _run_tests(guard: Safeguard, src: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line"]
    command += ["-m", "postgres" if guard.is_of_postgres else "not postgres"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", *guard.tests]
    env = {**os.environ, "PYTHONPATH": str(src), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        # A test that waits for ever for what a guard used to bring about has noticed, too.
        return TESTS_FAILED, "the tests did not end"
    return done.returncode, done.stdout + done.stderr
