"""A forged process is a process like any other: its own words, surroundings, signals and end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.fork_server import CAN_FORK, ForkedProcess, ForkServer

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not CAN_FORK, reason="processes are forked on Linux only"),
]

TOLD = """
import os, sys
print(sys.argv[1:], sorted(os.environ), os.getcwd(), os.getsid(0) == os.getpid(), sys.stdin.read())
print("wrong", file=sys.stderr)
sys.exit(7)
"""
ENDLESS = """
import time
print("here", flush=True)
time.sleep(600)
"""
BROKEN = "raise ValueError('broken')"


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    it = ForkServer()
    yield it
    it.end()


class ProgramFolder:
    """Where a program lies, and where its output goes."""

    def __init__(self, folder: Path, fork_server: ForkServer):
        self._folder, self._fork_server = folder, fork_server

    def start(self, program: str, *words: str, **env: str) -> ForkedProcess:
        path = self._folder / "program.py"
        path.write_text(program)
        with Path(os.devnull).open() as nothing, self.output.open("wb") as out:
            files = (nothing.fileno(), out.fileno(), out.fileno())
            return self._fork_server.make(str(path), list(words), env, files, self._folder)

    @property
    def output(self) -> Path:
        return self._folder / "output"

    def until_said(self, words: str) -> None:
        while words not in self.output.read_text():
            os.sched_yield()


@pytest.fixture
def place(tmp_path: Path, fork_server: ForkServer) -> ProgramFolder:
    return ProgramFolder(tmp_path, fork_server)


def test_it_has_its_words_its_surroundings_and_its_exit_code(place: ProgramFolder, tmp_path: Path) -> None:
    process = place.start(TOLD, "one", "two", ONLY="this")
    assert process.wait(30) == process.poll() == process.returncode == 7
    said = place.output.read_text().splitlines()
    assert sorted(said) == sorted([f"['one', 'two'] ['ONLY'] {tmp_path} True ", "wrong"])


def test_an_error_ends_it_as_it_ends_any_program(place: ProgramFolder) -> None:
    assert place.start(BROKEN).wait(30) == 1
    assert place.output.read_text().endswith("ValueError: broken\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_and_is_told(place: ProgramFolder, number: signal.Signals) -> None:
    process = place.start(ENDLESS)
    place.until_said("here")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(number)
    assert await process.ended() == -number
    # It is gone, and nobody else is hit in its place.
    process.kill()


def test_one_does_not_wait_for_another(place: ProgramFolder, tmp_path: Path, fork_server: ForkServer) -> None:
    first = place.start(ENDLESS)
    other = tmp_path / "other"
    other.mkdir()
    assert ProgramFolder(other, fork_server).start(TOLD).wait(30) == 7
    assert first.poll() is None
    first.kill()
    assert first.wait(30) == -signal.SIGKILL


def test_with_the_parent_the_children_end(tmp_path: Path) -> None:
    fork_server = ForkServer()
    place = ProgramFolder(tmp_path, fork_server)
    child = place.start(ENDLESS)
    place.until_said("here")
    end = os.pidfd_open(child.pid)
    fork_server.end()
    assert child.wait(30) == -signal.SIGKILL
    assert select.select([end], [], [], 30)[0], "it lives on"
    os.close(end)
