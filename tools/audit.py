"""Checks what we install: `python -m tools.audit`. Exits with 1 if anything is wrong with it.

Without a network it still checks the locks themselves; known vulnerabilities are pip-audit's business, which
is asked if it is there.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.lock import Locked, UnreadableLock, normal, read_lock

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
# Lines like `name==1.2.3  why nobody should have it`; the file need not be there.
KNOWN_BAD = "tools/known-bad.txt"
INDEX = ("pypi.org", 443)
INDEX_TIMEOUT_S = 3.0
AUDIT_TIMEOUT_S = 300.0


def lock_problems(packages: Sequence[Locked]) -> list[str]:
    """Return what is wrong with a lock by itself."""
    names = [it.name for it in packages]
    twice = sorted({it for it in names if names.count(it) > 1})
    return [
        *(f"{it.name} {it.version} has no hash" for it in packages if not it.digests),
        *(f"{it} is locked twice" for it in twice),
    ]


def missing(wanted: Iterable[str], packages: Sequence[Locked]) -> list[str]:
    """Return what the project asks for and the lock does not have."""
    locked = {it.name for it in packages}
    names = [normal(re.split(r"[\[<>=!~; ]", it, maxsplit=1)[0]) for it in wanted]
    return [f"{name} is not locked" for name in names if name not in locked]


def differences(ours: Sequence[Locked], tested: Sequence[Locked]) -> list[str]:
    """Return what is tested in another version than it is installed in."""
    versions = {it.name: it.version for it in tested}
    return [
        f"{it.name} is {it.version} for users and {versions.get(it.name, 'absent')} for tests"
        for it in ours
        if versions.get(it.name) != it.version
    ]


def known_bad(packages: Sequence[Locked], lines: Iterable[str]) -> list[str]:
    """Return which packages are on the list of those that nobody should have."""
    listed = {}
    for line in lines:
        pin, _, why = line.partition(" ")
        name, _, version = pin.partition("==")
        if version and not line.startswith("#"):
            listed[normal(name), version] = why.strip()
    return [
        f"{it.name} {it.version} is known to be bad: {listed[it.name, it.version]}"
        for it in packages
        if (it.name, it.version) in listed
    ]


def check(folder: Path) -> list[str]:
    """Return everything that is wrong with the locks of a repository."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    try:
        ours, tested = (read_lock((folder / it).read_text()) for it in LOCKS)
    except UnreadableLock as error:
        return [str(error)]
    bad = folder / KNOWN_BAD
    lines = bad.read_text().splitlines() if bad.exists() else []
    everything = {it.purl: it for it in (*tested, *ours)}.values()
    return [
        *lock_problems(ours),
        *lock_problems(tested),
        *missing(project["dependencies"], ours),
        *differences(ours, tested),
        *known_bad(tuple(everything), lines),
    ]


def online() -> bool:
    """Tell whether the package index can be reached."""
    try:
        socket.create_connection(INDEX, INDEX_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def ask_pip_audit(lock: Path) -> int:
    """Return pip-audit's verdict, or 0 after saying why it could not be asked."""
    beside = Path(sys.executable).with_name("pip-audit")
    program = str(beside) if beside.exists() else shutil.which("pip-audit")
    if program is None:
        sys.stdout.write("known vulnerabilities were not looked up: pip-audit is not installed\n")
        return 0
    if not online():
        sys.stdout.write(f"known vulnerabilities were not looked up: {INDEX[0]} cannot be reached\n")
        return 0
    command = [program, "--strict", "--require-hashes", "--disable-pip", "--requirement", str(lock)]
    return subprocess.run(command, check=False, timeout=AUDIT_TIMEOUT_S).returncode  # noqa: S603


def main() -> int:
    """Say what is wrong, if anything is."""
    problems = check(ROOT)
    for it in problems:
        sys.stdout.write(f"{it}\n")
    if not problems:
        sys.stdout.write("the locks are complete, hashed and in agreement\n")
    return 1 if ask_pip_audit(ROOT / LOCKS[0]) or problems else 0


if __name__ == "__main__":
    sys.exit(main())
