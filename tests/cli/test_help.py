"""The help of every command, and the one table that it comes from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from gpuherd import __version__
from gpuherd.entrypoints.cli.cli_app import COMMANDS
from gpuherd.entrypoints.cli.cli_errors import MEANINGS, ExitCode
from tests.cli.support import CLI, Cli

# They answer in the words of a machine, or with files.
WITHOUT_JSON = {"serve", "simulator", "demo", "mcp", "run", "exec", "cp", "ssh-config", "logs", "db"}
CONTEXT = click.Context(CLI)


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(CONTEXT):
        command = group.get_command(CONTEXT, name)
        assert command is not None, name
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


def test_help_documents_every_exit_code(cli: Cli) -> None:
    words = " ".join(cli("--help").stdout.split())
    assert set(MEANINGS) == set(ExitCode)
    for code, meaning in MEANINGS.items():
        assert f"{code.value} {meaning}" in words


def test_the_table_names_commands_that_exist() -> None:
    rows = [row for section in COMMANDS.values() for row in section.items()]
    for name, (_, _, help) in rows:
        command = CLI.get_command(CONTEXT, name)
        assert command is not None and command.help, name
        assert help.endswith("."), name
    assert len(rows) == len({name for name, _ in rows})


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version").stdout == f"gpuherd {__version__}\n"


def test_every_command_that_answers_can_do_so_in_json() -> None:
    for name, command in commands(CLI):
        words = {word for parameter in command.params for word in parameter.opts}
        assert ("--json" in words) == (name not in WITHOUT_JSON), name


@pytest.mark.parametrize("words", [["--help"], ["ls"]])
def test_what_only_asks_loads_no_client_and_no_server(words: list[str]) -> None:
    code = f"""
import sys
sys.argv = ["gpuherd", *{words!r}]
from gpuherd.__main__ import main
try:
    main()
except SystemExit:
    print("LOADED", *sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"GPUHERD_URL": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stdout.partition("LOADED ")[2].split())
    assert "gpuherd.entrypoints.cli.cli_app" in loaded
    assert not {"gpuherd.client", "gpuherd.settings", "pydantic", "asyncio", "aiohttp"} & loaded
