"""The stand-in for ssh, put into a PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "stand_in.py"


class SshMachine:
    """A home folder that commands run in, and the environment in which `ssh` leads there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "machine"
        self.home.mkdir()
        self._bin = folder / "bin"
        self._bin.mkdir()
        ssh = self._bin / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {PROGRAM} "$@"\n')
        ssh.chmod(0o700)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self._bin}:{os.environ['PATH']}", "SSH_HOME": str(self.home)}

    @property
    def calls(self) -> list[str]:
        path = self.home / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def set(self, what: str, *, on: bool) -> None:
        """Turn a trouble on or off: `down`, `denied`, `drop`."""
        path = self.home / what
        path.touch() if on else path.unlink(missing_ok=True)
