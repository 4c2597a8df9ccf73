"""Where the simulation writes what it has to say."""

from __future__ import annotations

import sys


def tell(line: str) -> None:
    """Write one line for people."""
    sys.stdout.write(f"{line}\n")
