"""`gpuherd cp` and `gpuherd exec`, with a stand-in for ssh that runs things here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuherd.entrypoints.cli.ssh_commands import There, parse_place
from tests.cli.support import FakeApi, details
from tests.cli.terminal import DRIVER
from tests.support.ssh.machine import SshMachine

READY = details("ready", connectionDetails={"ssh": "ssh root@proxy.example -p 2222"})
ODD = "$(touch pwned) 'x"


@pytest.fixture
def machine(tmp_path: Path) -> SshMachine:
    return SshMachine(tmp_path)


def run(api: FakeApi, machine: SshMachine, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    api.script(READY)
    return subprocess.run(
        [sys.executable, str(DRIVER), api.url, *argv],
        env={**os.environ, **machine.environment},
        cwd=folder,
        input="typed",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("train:data/x", There("train", "data/x")),
        ("train:", There("train", ".")),
        ("./a:b", Path("./a:b")),
        ("/tmp/a:b", Path("/tmp/a:b")),
        (":a", Path(":a")),
        ("plain", Path("plain")),
    ],
)
def test_one_colon_tells_a_place_there_from_a_file_here(word: str, place: object) -> None:
    assert parse_place(word) == place


def test_files_go_there_and_come_back_under_any_name(
    api: FakeApi, machine: SshMachine, tmp_path: Path
) -> None:
    (tmp_path / ODD).write_text("content")
    assert run(api, machine, tmp_path, "cp", f"./{ODD}", "train-1:in/").returncode == 0
    assert (machine.home / "in" / ODD).read_text() == "content"
    assert run(api, machine, tmp_path, "cp", f"./{ODD}", f"train-1:in/{ODD}2").returncode == 0
    done = run(api, machine, tmp_path, "cp", f"train-1:in/{ODD}2", "back")
    assert (done.returncode, (tmp_path / "back").read_text()) == (0, "content"), done.stderr
    (tmp_path / "all").mkdir()
    assert run(api, machine, tmp_path, "cp", "train-1:in", "all").returncode == 0
    assert {it.name for it in (tmp_path / "all" / "in").iterdir()} == {ODD, f"{ODD}2"}
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize(
    ("places", "code"),
    [
        (["a"], "BAD_PLACES"),
        (["a", "b"], "BAD_PLACES"),
        (["x:a", "y:b"], "BAD_PLACES"),
        (["x:a", "y:b", "."], "BAD_PLACES"),
        (["missing", "x:a"], "NO_SUCH_FILE"),
        (["train-1:missing", "."], "REMOTE_FAILED"),
    ],
)
def test_what_cannot_be_copied_is_told(
    api: FakeApi, machine: SshMachine, tmp_path: Path, places: list[str], code: str
) -> None:
    done = run(api, machine, tmp_path, "cp", *places)
    assert json.loads(done.stderr.splitlines()[-1])["error"]["code"] == code
    assert done.returncode != 0


def test_a_program_gets_its_words_and_input_and_gives_its_exit_code(
    api: FakeApi, machine: SshMachine, tmp_path: Path
) -> None:
    script = 'printf "%s|" "$@"; cat; exit 9'
    done = run(api, machine, tmp_path, "exec", "train-1", "--", "sh", "-c", script, "sh", ODD, "a  b")
    assert (done.returncode, done.stdout) == (9, f"{ODD}|a  b|typed")
    assert not list(tmp_path.rglob("pwned"))
