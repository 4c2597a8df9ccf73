"""Network volumes that a machine mounts: which, and where in its file system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOUNTS_MAX = 30
PATH_CHARS_MAX = 4095


@dataclass(frozen=True)
class VolumeMount:
    """One volume of the account at one place."""

    volume_id: str
    mount_path: str


def path_problem(path: str) -> str | None:
    """Return why nothing can be mounted there."""
    if not path.startswith("/") or not path.strip("/"):
        return "must be an absolute path below /, like /data"
    if len(path) > PATH_CHARS_MAX or not path.isprintable():
        return f"must be at most {PATH_CHARS_MAX} visible characters"
    if {"..", "."} & set(path.split("/")):
        return "must not have . or .. in it"
    return None


def mounts_problem(mounts: Sequence[VolumeMount]) -> str | None:
    """Return why these cannot be mounted together."""
    if len(mounts) > MOUNTS_MAX:
        return f"must not be more than {MOUNTS_MAX}"
    if len({it.volume_id for it in mounts}) < len(mounts):
        return "must not name a volume twice"
    if len({it.mount_path.rstrip("/") for it in mounts}) < len(mounts):
        return "must not mount two volumes at one path"
    return None
