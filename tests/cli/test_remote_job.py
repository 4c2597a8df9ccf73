"""A command on a machine: once, with its own output and exit code, over lost connections too."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuherd.entrypoints.cli.cli_errors import CommandError
from gpuherd.entrypoints.cli.command_runner import SystemTime
from gpuherd.entrypoints.cli.remote_job import RemoteJob
from gpuherd.entrypoints.cli.ssh_connection import SshConnection, SshLost, SshTarget, connected
from tests.support.ssh.machine import SshMachine

TARGET = SshTarget("root", "127.0.0.1", 2222)
ODD_NAMES = ("a b", "$(touch pwned)", "-rf", "q'uo\"te", "new\nline", "ünï", "`id`;")


def nothing(_: int) -> None: ...


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshMachine:
    made = SshMachine(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def connection(machine: SshMachine) -> Iterator[SshConnection]:
    with connected(TARGET, "inst_1", SystemTime()) as made:
        yield made


def run(connection: SshConnection, *argv: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    job = RemoteJob(connection, "0123")
    out, err = io.BytesIO(), io.BytesIO()
    job.send(None, (), nothing)
    job.start(argv, env or {})
    return job.follow(out, err), out.getvalue().decode(), err.getvalue().decode()


def test_output_errors_and_exit_code_are_those_of_the_command(connection: SshConnection) -> None:
    assert run(connection, "sh", "-c", "echo out; echo err >&2; exit 7") == (7, "out\n", "err\n")


def test_words_and_variables_are_data_to_every_shell_on_the_way(
    connection: SshConnection, machine: SshMachine
) -> None:
    code, out, _ = run(connection, "printf", "%s\\n", *ODD_NAMES, env={"ODD": "$(touch pwned)' \n"})
    assert (code, out) == (0, "".join(f"{it}\n" for it in ODD_NAMES))
    assert not list(machine.home.rglob("pwned"))


def test_a_program_that_is_not_there_is_told_like_a_shell_does(connection: SshConnection) -> None:
    code, _, err = run(connection, "no-such-program")
    assert code == 127
    assert "not found" in err


def test_a_folder_arrives_with_every_name_and_comes_back(
    connection: SshConnection, machine: SshMachine, tmp_path: Path
) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    (here / "deep" / "er").mkdir(parents=True)
    back.mkdir()
    for name in ODD_NAMES:
        (here / "deep" / name).write_text(name)
    (here / "deep" / "er" / "link").symlink_to("../a b")
    (here / ".git").mkdir()
    (here / ".git" / "config").write_text("left at home")
    job = RemoteJob(connection, "0123")
    job.send(here, (".git",), nothing)
    work = machine.home / ".gpuherd" / "0123" / "work"
    assert {it.name for it in (work / "deep").iterdir()} == {*ODD_NAMES, "er"}
    assert not (work / ".git").exists()
    assert job.fetch("deep", back, nothing) == len(ODD_NAMES) + 3
    assert {it.name for it in (back / "deep").iterdir()} == {*ODD_NAMES, "er"}
    assert (back / "deep" / "er" / "link").read_text() == "a b"
    assert not list(machine.home.rglob("pwned"))


def test_what_a_machine_sends_stays_in_the_folder(
    connection: SshConnection, machine: SshMachine, tmp_path: Path
) -> None:
    job = RemoteJob(connection, "0123")
    job.send(None, (), nothing)
    (machine.home / ".gpuherd" / "0123" / "work" / "out").symlink_to("/etc")
    back = tmp_path / "back"
    back.mkdir()
    with pytest.raises(CommandError, match="leads out"):
        job.fetch("out", back, nothing)
    assert not list(back.iterdir())


def test_something_that_is_not_there_cannot_be_brought_back(
    connection: SshConnection, tmp_path: Path
) -> None:
    job = RemoteJob(connection, "0123")
    job.send(None, (), nothing)
    with pytest.raises(CommandError, match="results"):
        job.fetch("results", tmp_path, nothing)


def test_a_start_that_is_said_twice_happens_once(connection: SshConnection, machine: SshMachine) -> None:
    job = RemoteJob(connection, "0123")
    job.send(None, (), nothing)
    for _ in range(2):
        job.start(["sh", "-c", "echo began >> ../../times"], {})
    assert job.follow(io.BytesIO(), io.BytesIO()) == 0
    assert (machine.home / ".gpuherd" / "times").read_text() == "began\n"


def test_after_a_lost_connection_nothing_is_missed_or_repeated(
    connection: SshConnection, machine: SshMachine
) -> None:
    job, out = RemoteJob(connection, "0123"), io.BytesIO()
    job.send(None, (), nothing)
    go_on = machine.home / "go_on"
    job.start(["sh", "-c", f"seq 1 500; while [ ! -e '{go_on}' ]; do sleep 0.02; done; seq 501 1000"], {})

    def drop() -> None:
        while not out.getvalue().endswith(b"500\n"):
            time.sleep(0.01)
        machine.set("drop", on=True)

    dropping = threading.Thread(target=drop)
    dropping.start()
    with pytest.raises(SshLost):
        job.follow(out, io.BytesIO())
    dropping.join()
    machine.set("drop", on=False)
    go_on.touch()
    assert job.follow(out, io.BytesIO()) == 0
    assert out.getvalue().decode().split() == [str(it) for it in range(1, 1001)]


def test_it_can_be_asked_to_end_and_says_so(connection: SshConnection, machine: SshMachine) -> None:
    job = RemoteJob(connection, "0123")
    job.send(None, (), nothing)
    job.start(["sh", "-c", "trap 'echo bye; exit 3' TERM; touch ../up; while :; do sleep 0.02; done"], {})
    while not (machine.home / ".gpuherd" / "0123" / "up").exists():
        time.sleep(0.01)
    job.signal("TERM")
    out = io.BytesIO()
    assert (job.follow(out, io.BytesIO()), out.getvalue()) == (3, b"bye\n")


def test_one_that_was_killed_from_outside_is_noticed(connection: SshConnection, machine: SshMachine) -> None:
    job = RemoteJob(connection, "0123")
    job.send(None, (), nothing)
    job.start(["sleep", "60"], {})
    pid = machine.home / ".gpuherd" / "0123" / "pid"
    while not pid.exists() or not pid.read_text():
        time.sleep(0.01)
    os.killpg(int(pid.read_text()), 9)
    with pytest.raises(CommandError, match="killed from outside"):
        job.follow(io.BytesIO(), io.BytesIO())


class Counter(io.RawIOBase):
    """Forgets what it is given."""

    count = largest = 0

    def write(self, block: bytes) -> int:  # type: ignore[override]
        self.count += len(block)
        self.largest = max(self.largest, len(block))
        return len(block)


def test_a_lot_of_output_is_passed_on_in_small_blocks(connection: SshConnection) -> None:
    job, out = RemoteJob(connection, "0123"), Counter()
    job.send(None, (), nothing)
    job.start(["head", "-c", "20000000", "/dev/zero"], {})
    assert job.follow(out, io.BytesIO()) == 0  # type: ignore[arg-type]
    assert out.count == 20_000_000
    assert out.largest <= 64 * 1024


def test_whoever_reads_no_more_ends_the_following(connection: SshConnection) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    job = RemoteJob(connection, "0123")
    job.send(None, (), nothing)
    job.start(["sh", "-c", "while :; do echo y; sleep 0.02; done"], {})
    with os.fdopen(writer, "wb", buffering=0) as closed, pytest.raises(BrokenPipeError):
        job.follow(closed, io.BytesIO())
    job.signal("KILL")


def test_who_is_refused_is_not_tried_again(machine: SshMachine) -> None:
    machine.set("denied", on=True)
    with (
        pytest.raises(CommandError, match="Permission denied") as refusal,
        connected(TARGET, "inst_1", SystemTime()),
    ):
        pass
    assert refusal.value.report.code == "SSH_REFUSED"
    assert len(machine.calls) == 1


@pytest.mark.parametrize(
    ("environ", "ended"),
    [
        (b"A=1\0HF_TOKEN=two\nlines $x\0B=2\0", (0, "two\nlines $x\n")),
        (b"MY_HF_TOKEN=1\0", (125, "")),
    ],
    ids=["there", "missing"],
)
def test_a_variable_that_only_the_machine_knows_reaches_the_command(
    connection: SshConnection,
    machine: SshMachine,
    monkeypatch: pytest.MonkeyPatch,
    environ: bytes,
    ended: tuple[int, str],
) -> None:
    first, ask = machine.home / "environ", connection.ask
    first.write_bytes(environ)
    monkeypatch.setattr(connection, "ask", lambda script: ask(script.replace("/proc/1/environ", str(first))))
    job, out = RemoteJob(connection, "0123"), io.BytesIO()
    job.send(None, (), nothing)
    job.start(("printenv", "HF_TOKEN"), {}, ["HF_TOKEN"])
    assert (job.follow(out, io.BytesIO()), out.getvalue().decode()) == ended
