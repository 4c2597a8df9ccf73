"""`--quiet` and `--json` mean the same everywhere: one word, or nothing at all, or everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gpuherd.client.server_address import address_of
from gpuherd.entrypoints.cli.app import build_app
from gpuherd.entrypoints.cli.commands.local.database import BackupMade, backup_commands
from gpuherd.entrypoints.cli.commands.local.doctor import CheckResult, Severity, doctor_command
from tests.entrypoints.cli.support import Cli, FakeApi, InstantClock, app_for, nothing

SERVERS = {"serve", "simulator", "demo"}
# Their output is that of a machine, in its own words, or files.
REMOTE = {"run", "exec", "cp", "ssh-config", "logs"}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("webhooks", "add", "https://example.com"), "whsec_x\n"),
        (("webhooks", "rotate", "ep_1"), "whsec_x\n"),
        (("webhooks", "rm", "ep_1"), "ep_1\n"),
        (("webhooks", "enable", "ep_1"), "ep_1\n"),
        (("keys", "revoke", "adaadaad"), "adaadaad\n"),
        (("budgets", "rm", "nlp"), "ep_1\n"),
    ],
)
def test_quiet_gives_the_one_word_that_a_script_needs(
    cli: Cli, api: FakeApi, argv: tuple[str, ...], said: str
) -> None:
    api.script({"id": "ep_1", "secret": "whsec_x"})
    result = cli(*argv, "-q")
    assert (result.stdout, result.stderr, result.exit_code) == (said, "", 0)


@pytest.mark.parametrize(
    ("argv", "answer", "exit_code"),
    [
        (("webhooks", "test", "https://example.com"), {"id": "msg_1", "accepted": True}, 0),
        (("webhooks", "test", "https://example.com"), {"id": "msg_1", "accepted": False}, 1),
        (("audit", "verify"), {"entries": []}, 0),
        (("audit", "verify"), {"entries": [{"n": 2}]}, 1),
    ],
)
def test_quiet_leaves_it_to_the_exit_code(
    cli: Cli, api: FakeApi, argv: tuple[str, ...], answer: dict[str, Any], exit_code: int
) -> None:
    api.script(answer)
    result = cli(*argv, "-q")
    assert (result.stdout, result.stderr, result.exit_code) == ("", "", exit_code)


def test_a_quiet_doctor_and_a_quiet_backup_say_nothing() -> None:
    def make(target: Path, *, force: bool) -> BackupMade:
        return BackupMade(target, 1, "0001", "x")

    def put_back(source: Path, *, force: bool) -> Any:
        raise AssertionError("nobody asked for it")

    def no_contact() -> Any:
        raise AssertionError("nobody asked for it")

    app = build_app(
        connect=lambda: address_of("http://127.0.0.1:1", None),
        clock=InstantClock(),
        rng=random.Random(1),
        serve=nothing,
        simulator=nothing,
        demo=nothing,
        more={
            **doctor_command(lambda: [CheckResult("port", Severity.PROBLEM, "taken", "free it")], no_contact),
            **backup_commands(make, put_back),
        },
    )
    for argv, exit_code in ((["doctor", "-q"], 1), (["backup", "/x", "-q"], 0)):
        result = CliRunner().invoke(app, argv)
        assert (result.output, result.exit_code) == ("", exit_code)


def commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield " ".join((*path, name)), command
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)


def test_every_command_that_answers_can_do_so_in_json() -> None:
    app = app_for(lambda: address_of("http://127.0.0.1:1", None), InstantClock())
    for name, command in commands(typer.main.get_command(app)):
        words = {word for parameter in command.params for word in parameter.opts}
        assert ("--json" in words) == (name not in SERVERS | REMOTE), name
