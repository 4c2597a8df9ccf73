"""Reads the hashed locks: what is installed, in which version, with which files, and because of whom."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})(\s|$)")
_VIA = re.compile(r"#\s+(via\s+)?(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)( \(.*\))?$")


class UnreadableLock(Exception):
    """A line that is neither a pin, nor a hash, nor a comment."""


@dataclass(frozen=True)
class Locked:
    """One package of a lock. There is a digest for each file that the installer would accept."""

    name: str
    version: str
    digests: tuple[str, ...]
    wanted_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def normal(name: str) -> str:
    """Return a package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> list[Locked]:
    """Return the packages, by name."""
    blocks: list[list[str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if _PIN.match(line):
            blocks.append([line])
        elif blocks and (line.startswith((" ", "\t")) or not line.strip()):
            blocks[-1].append(line)
        elif line.strip() and not line.startswith("#"):
            raise UnreadableLock(f"line {number} is no pin: {line[:80]}")
    return sorted(map(_package, blocks), key=lambda it: it.name)


def _package(lines: list[str]) -> Locked:
    pin = _PIN.match(lines[0])
    assert pin is not None, "blocks begin with one"
    comments = [line.strip() for line in lines if line.strip().startswith("#")]
    because = [found["name"] for line in comments if (found := _VIA.match(line)) and found["name"] != "via"]
    digests = {found["digest"] for line in lines if (found := _HASH.search(line))}
    return Locked(
        normal(pin["name"]),
        pin["version"],
        tuple(sorted(digests)),
        tuple(sorted({normal(it) for it in because})),
    )
