"""A secret, typed unseen or from a pipe; never an argument, which all processes may read."""

from __future__ import annotations

import sys
from getpass import getpass

from gpuherd.domain.secret import Secret


def read_secret(prompt: str) -> Secret:
    """Return what was typed or piped."""
    if sys.stdin.isatty():
        # It asks only after the terminal has stopped to show what is typed, however fast that is.
        while not (typed := getpass(f"{prompt}: ")):
            pass
        return Secret(typed)
    # The line break that echo and most files end with is no part of it.
    return Secret(sys.stdin.read().removesuffix("\n"))
