"""Take one guard out of a copy of the service, and run the tests that must notice."""

from __future__ import annotations

import ast
import builtins
import os
import re
import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

from proof.chaos.mutants.guard import Guard, Marked, NotApplicableError, find_statement

ROOT = Path(__file__).parents[3]
SRC = ROOT / "src"
# A test that waits for ever for what the guard brings about fails after this time: it has noticed.
TEST_LIMIT_S = 60
# All tests of a guard together. A machine with other work needs longer, and proves nothing by it.
LIMIT_S = 600
# The exit code of pytest when some tests failed. A file that cannot be loaded has another.
TESTS_FAILED = 1
# No exit code of pytest.
TESTS_ENDED_BY_LIMIT = 124
_MARKER = re.compile(r"[ ]*# guard: (.+)")
# The edited code does not run, so the test says nothing about the guard.
_BROKEN = r"(?:NameError|UnboundLocalError|SyntaxError|IndentationError|ImportError|ModuleNotFoundError)"
_CRASHED = r"(?:AttributeError|TypeError)"


class Verdict(StrEnum):
    """What the tests said without the guard."""

    CAUGHT = "caught"
    # All tests passed: nothing needs this line, or no test knows why.
    MISSED = "MISSED"
    # No marker has this name, two have it, or the statement below is not what the operator expects.
    STALE = "STALE"
    # The edited code, or the test, does not run at all.
    BROKEN = "BROKEN"
    # The edited line raised AttributeError or TypeError. A person judges it, and may set `crashes=True`.
    CRASHED = "CRASHED"


class StaleGuardError(Exception):
    """A guard does not fit the source."""


class BrokenGuardError(Exception):
    """The source does not run after the operator has changed it."""


def find_markers() -> dict[str, list[tuple[Path, int]]]:
    """Return where each marker of the source stands: its file and its line."""
    markers: dict[str, list[tuple[Path, int]]] = {}
    for path in sorted((SRC / "gpuherd").rglob("*.py")):
        for line, text in enumerate(path.read_text().splitlines(), start=1):
            if found := _MARKER.fullmatch(text):
                markers.setdefault(found[1], []).append((path, line))
    return markers


def source_without(guard: Guard, markers: dict[str, list[tuple[Path, int]]]) -> tuple[Path, str]:
    """Return the file of a guard, and its source without the guard.

    Raise StaleGuardError if the guard does not fit the source, BrokenGuardError if the result cannot run.
    """
    places = markers.get(guard.name, [])
    if len(places) != 1:
        raise StaleGuardError(f"the marker `# guard: {guard.name}` stands {len(places)} times in src")
    path, line = places[0]
    source = path.read_text()
    try:
        edited = guard.operator(Marked(source, find_statement(source, line)))
    except NotApplicableError as error:
        raise StaleGuardError(f"{path.relative_to(ROOT)}:{line}: {error}") from error
    if edited == source:
        raise StaleGuardError(f"{path.relative_to(ROOT)}:{line}: the operator changes nothing")
    try:
        unknown = _unknown_names(edited) - _unknown_names(source)
    except SyntaxError as error:
        raise BrokenGuardError(f"the edited file does not compile: {error}") from error
    if unknown:
        raise BrokenGuardError(f"the edited code reads names that do not exist: {', '.join(sorted(unknown))}")
    return path, edited


def _unknown_names(source: str) -> set[str]:
    """Return the names that a module reads and nothing in it defines."""
    read: set[str] = set()
    defined = {*dir(builtins), "__file__"}
    for node in ast.walk(compile(source, "edited", "exec", flags=ast.PyCF_ONLY_AST)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                defined.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.alias(name=name, asname=asname):
                defined.add(asname or name.partition(".")[0])
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                defined.add(name)
    return read - defined


def run_without(
    guard: Guard, markers: dict[str, list[tuple[Path, int]]], scratch: Path
) -> tuple[Verdict, str]:
    """Run the tests of a guard on a copy of the service without it. Return the verdict and the output."""
    try:
        path, edited = source_without(guard, markers)
    except StaleGuardError as error:
        return Verdict.STALE, str(error)
    except BrokenGuardError as error:
        return Verdict.BROKEN, str(error)
    src = scratch / "src"
    shutil.rmtree(src, ignore_errors=True)
    shutil.copytree(SRC, src, ignore=shutil.ignore_patterns("__pycache__"))
    copy = src / path.relative_to(SRC)
    copy.write_text(edited)
    code, output = _run_tests(guard, src)
    return verdict_of(guard, code, output, copy), output


def verdict_of(guard: Guard, code: int, output: str, edited: Path) -> Verdict:
    if code == 0:
        return Verdict.MISSED
    # `--tb=line` reports each failure as one line: file, line, exception.
    if code != TESTS_FAILED or re.search(rf"^\S+:\d+: {_BROKEN}", output, re.MULTILINE):
        return Verdict.BROKEN
    crashed = re.search(rf"^{re.escape(str(edited))}:\d+: {_CRASHED}", output, re.MULTILINE)
    return Verdict.CRASHED if crashed and not guard.crashes else Verdict.CAUGHT


def _run_tests(guard: Guard, src: Path) -> tuple[int, str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "--tb=line",
        f"--timeout={TEST_LIMIT_S}",
    ]
    command += ["-m", "postgres" if guard.is_of_postgres else "not postgres"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", *guard.tests]
    env = {**os.environ, "PYTHONPATH": str(src), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return TESTS_ENDED_BY_LIMIT, f"the tests took longer than {LIMIT_S} s"
    return done.returncode, done.stdout + done.stderr
