"""Modules of ours as processes, run from whichever source of the service is to be put to the test."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from proof.chaos.kills.killable_server import ROOT, SOURCE_VARIABLE
from tests.support.processes.fork_server import CAN_FORK, FORK_SERVER
from tests.support.processes.services import Process, _die_with_parent

FROZEN = "T"


class ModuleProcess(Process):
    """`python -m <words>`."""

    def __init__(self, words: list[str], env: Mapping[str, str], log: Path):
        super().__init__(words, env, log)
        # For the next start only.
        self.more_env: dict[str, str] = {}

    async def start(self) -> None:
        source = os.environ.get(SOURCE_VARIABLE)
        path = os.pathsep.join((source or str(ROOT / "src"), str(ROOT)))
        env = {**self._env, **self.more_env, "PYTHONPATH": path}
        self.more_env = {}
        with self.log.open("ab") as out, Path(os.devnull).open() as nothing:
            if source is None and CAN_FORK:
                files = (nothing.fileno(), out.fileno(), out.fileno())
                module, *words = self._words
                self._process = FORK_SERVER.make(module, words, env, files, self.log.parent)
                return
            # Another source is to be loaded than the one that a forged process has loaded already.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *self._words,
                env=env,
                stdout=out,
                stderr=out,
                cwd=self.log.parent,
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self.exit_code is None

    @property
    def is_frozen(self) -> bool:
        """Tell whether it was stopped, by whomever."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        # The name in brackets may hold anything; the state comes right after it.
        return stat.rpartition(")")[2].split()[0] == FROZEN

    async def freeze(self) -> None:
        """Stop it as it is, and wait until it stands still."""
        self.send(signal.SIGSTOP)
        while self.is_alive and not self.is_frozen:
            await asyncio.sleep(0.005)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)
