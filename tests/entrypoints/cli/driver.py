"""The command line as a process of its own, on whatever terminal it was given: `driver.py URL ARGS…`."""

from __future__ import annotations

import fcntl
import random
import sys
import termios

from gpuherd.client.client_connection import SystemClock
from gpuherd.client.server_address import address_of
from gpuherd.entrypoints.cli.app import build_app


def nothing() -> None:
    """Stand in for a command that bootstrap provides."""


def main() -> None:
    if sys.stdin.isatty():
        # So that ^C typed on the other side becomes a signal here, as in a real shell.
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    url, *argv = sys.argv[1:]
    app = build_app(
        connect=lambda: address_of(url, "key-of-sixteen-or-more"),
        clock=SystemClock(),
        rng=random.SystemRandom(),
        serve=nothing,
        simulator=nothing,
        demo=nothing,
    )
    app(args=argv, prog_name="gpuherd")


if __name__ == "__main__":
    main()
