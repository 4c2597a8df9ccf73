"""The command line as a process of its own, on whatever terminal it was given: `driver.py URL ARGS…`."""

from __future__ import annotations

import fcntl
import sys
import termios

from gpuherd.__main__ import mcp, serve
from gpuherd.entrypoints.cli.cli_app import build_cli
from gpuherd.settings_loading import parse_server_address


def main() -> None:
    if sys.stdin.isatty():
        # So that ^C typed on the other side becomes a signal here, as in a real shell.
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    url, *argv = sys.argv[1:]
    cli = build_cli(serve, mcp, find_server=lambda: parse_server_address(url, "key-of-sixteen-or-more"))
    cli(args=argv, prog_name="gpuherd")


if __name__ == "__main__":
    main()
