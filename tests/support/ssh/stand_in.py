"""Takes the place of `ssh` in the PATH: runs the command here, with a folder of its own as home.

It reads the options that we use, and refuses others. `SSH_HOME` is its home. While the file `down` is
in it nothing answers, with `denied` nobody is let in, and with `drop` every call ends like a lost connection.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LOST = 255
REFUSED = "ssh: connect to host port: Connection refused"


def main(argv: list[str]) -> int:
    home = Path(os.environ["SSH_HOME"])
    with (home / "calls").open("a") as calls:
        calls.write(repr(argv) + "\n")
    options, words = _read(argv)
    if (home / "down").exists():
        sys.stderr.write(REFUSED + "\n")
        return LOST
    if (home / "denied").exists():
        sys.stderr.write("root@127.0.0.1: Permission denied (publickey,password).\n")
        return LOST
    if "-O" in options or "-N" in options:
        return 0
    command = " ".join(words)
    environment = {**os.environ, "HOME": str(home)}
    process = subprocess.Popen(["sh", "-c", command], cwd=home, env=environment)
    while process.poll() is None:
        if (home / "drop").exists():
            process.kill()
            process.wait()
            return LOST
        time.sleep(0.01)
    code = process.returncode
    return 128 - code if code < 0 else code


def _read(argv: list[str]) -> tuple[set[str], list[str]]:
    options, rest = set(), list(argv)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option.startswith("-o"):
            continue
        if option in ("-p", "-O"):
            rest.pop(0)
        elif option not in ("-f", "-N", "-T", "-t"):
            raise SystemExit(f"the stand-in knows no {option}")
        options.add(option)
    destination = rest.pop(0)
    assert "@" in destination
    return options, rest


if __name__ == "__main__":
    # Out of our terminal's reach, like a command on another machine.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(main(sys.argv[1:]))
