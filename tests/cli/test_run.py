"""`gpuherd run` against a real server on a simulated cloud, with a stand-in for ssh that runs things here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuherd.client.server_address import address_of
from gpuherd.client.sync_client import Gpuherd
from tests.cli.support import KEY
from tests.cli.terminal import CTRL_C, Terminal
from tests.cli.test_terminal_server import server
from tests.support.ssh.machine import SshMachine

__all__ = ["server"]
pytestmark = pytest.mark.processes

WISH = ("run", "--gpu", "4090", "--template", "101")
LIMIT_S = 60


@pytest.fixture
def machine(tmp_path: Path) -> SshMachine:
    return SshMachine(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def herd(server: str) -> Iterator[Gpuherd]:
    with Gpuherd(address_of(server, KEY)) as client:
        yield client


def begin(server: str, machine: SshMachine, folder: Path, *argv: str) -> subprocess.Popen[str]:
    env = {**os.environ, **machine.environment, "GPUHERD_URL": server, "GPUHERD_API_KEY": KEY}
    return subprocess.Popen(
        [sys.executable, "-m", "gpuherd", *WISH, *argv],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def alive(herd: Gpuherd, name: str) -> list[str]:
    return [it.status for it in herd.instances.list(name=name) if it.goal != "deleted"]


def until(what: object, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_folder_goes_there_the_results_come_back_and_the_machine_is_given_back(
    server: str, machine: SshMachine, folder: Path, herd: Gpuherd, monkeypatch: pytest.MonkeyPatch
) -> None:
    herd.secrets.set("hf", "canary")
    # As a login that has the variables of the container.
    monkeypatch.setenv("HF_TOKEN", "of the container")
    (folder / "train.py").write_text(
        "import os, pathlib, sys\n"
        "pathlib.Path('out').mkdir()\n"
        "pathlib.Path('out/model').write_text(os.environ['EPOCHS'] + os.environ['HF_TOKEN'])\n"
        "print('trained'); print('warned', file=sys.stderr); raise SystemExit(3)\n"
    )
    words = ("--name", "job-a", "--out", "out", "--env", "EPOCHS=7", "--secret", "HF_TOKEN=hf")
    process = begin(server, machine, folder, *words, "--", sys.executable, "train.py")
    out, err = process.communicate(timeout=LIMIT_S)
    # The exit code passes through, and the results of a failed run are brought back too.
    assert (process.returncode, out) == (3, "trained\n"), err
    assert "warned\n" in err
    assert "given back" in err
    assert (folder / "out" / "model").read_text() == "7of the container"
    assert alive(herd, "job-a") == []
    (instance,) = herd.instances.list(name="job-a")
    assert instance.envs == {"HF_TOKEN": {"secret": "hf"}}
    assert instance.lease is not None and instance.auto_stop is not None


def test_a_machine_that_lets_nobody_in_is_given_back(
    server: str, machine: SshMachine, folder: Path, herd: Gpuherd
) -> None:
    machine.set("denied", on=True)
    process = begin(server, machine, folder, "--name", "job-b", "--", "true")
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "SSH_REFUSED" in err
    assert alive(herd, "job-b") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_is_interrupted_gives_the_machine_back(
    server: str, machine: SshMachine, folder: Path, herd: Gpuherd, number: signal.Signals
) -> None:
    name = f"job-{number.name.lower()}"
    process = begin(server, machine, folder, "--name", name, "--", "sh", "-c", "touch ../../up; sleep 60")
    until((machine.home / ".gpuherd" / "up").exists)
    process.send_signal(number)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert alive(herd, name) == []


def test_a_lost_connection_is_found_again(
    server: str, machine: SshMachine, folder: Path, herd: Gpuherd
) -> None:
    words = "echo one; touch ../../up; while [ ! -e ../../go_on ]; do sleep 0.05; done; echo two"
    process = begin(server, machine, folder, "--name", "job-c", "--", "sh", "-c", words)
    until((machine.home / ".gpuherd" / "up").exists)
    calls = len(machine.calls)
    machine.set("drop", on=True)
    until(lambda: len(machine.calls) > calls)
    machine.set("drop", on=False)
    (machine.home / ".gpuherd" / "go_on").touch()
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "one\ntwo\n"), err


def test_on_a_terminal_ctrl_c_asks_and_a_second_one_gives_back(
    server: str, machine: SshMachine, folder: Path, herd: Gpuherd
) -> None:
    words = ("--yes", "--name", "job-d", "--folder", str(folder), "--", "sh", "-c", "echo begun; sleep 60")
    screen = Terminal(server, *WISH, *words, env=machine.environment)
    try:
        screen.until("begun")
        screen.type(CTRL_C)
        screen.until("End it and give the machine back?")
        screen.answer("n\n")
        assert alive(herd, "job-d")
        screen.type(CTRL_C)
        screen.answer(CTRL_C)
        assert screen.end() == 130
    finally:
        screen.close()
    assert alive(herd, "job-d") == []


@pytest.mark.long
def test_a_command_that_was_killed_leaves_nothing_behind(
    server: str, machine: SshMachine, folder: Path, herd: Gpuherd
) -> None:
    words = ("--name", "job-e", "--silence", "10s", "--", "sh", "-c", "touch ../../up; sleep 60")
    process = begin(server, machine, folder, *words)
    until((machine.home / ".gpuherd" / "up").exists)
    process.kill()
    process.communicate()
    assert alive(herd, "job-e")
    until(lambda: alive(herd, "job-e") == [])


def test_a_name_that_is_no_variable_never_reaches_a_shell(
    server: str, machine: SshMachine, folder: Path
) -> None:
    process = begin(server, machine, folder, "--env", "A;touch pwned;B=1", "--", "true")
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert "no name of a variable" in err
    assert machine.calls == []


def test_errors_before_the_rental_are_told_like_those_of_up(
    server: str, machine: SshMachine, folder: Path
) -> None:
    process = begin(server, machine, folder, "--max-price", "0.0001", "--", "true")
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 6, err
    assert out == ""


def test_json_of_nothing_is_on_stdout(server: str, machine: SshMachine, folder: Path) -> None:
    process = begin(server, machine, folder, "--", "echo", json.dumps({"a": 1}))
    out, err = process.communicate(timeout=LIMIT_S)
    assert json.loads(out) == {"a": 1}, err
