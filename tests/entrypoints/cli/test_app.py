"""The command line as a whole."""

from __future__ import annotations

import random
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from gpuherd import __version__
from gpuherd.client.server_address import Address
from gpuherd.entrypoints.cli.app import build_app
from gpuherd.entrypoints.cli.runtime.exit_codes import MEANINGS, ExitCode
from tests.entrypoints.cli.support import Cli, InstantClock, nothing


def test_help_documents_every_exit_code(cli: Cli) -> None:
    words = " ".join(cli("--help").stdout.split())
    assert set(MEANINGS) == set(ExitCode)
    for code, meaning in MEANINGS.items():
        assert f"{code.value} {meaning}" in words


@pytest.mark.parametrize(
    "command",
    [
        *("serve", "simulator", "demo", "up", "ls", "show", "wait", "jobs"),
        *("start", "stop", "rm", "offers", "templates", "regions"),
    ],
)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    assert cli(command, "--help").exit_code == 0
    assert command in cli("--help").stdout


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version").stdout == f"gpuherd {__version__}\n"


def test_commands_that_were_handed_in_get_their_own_options_and_no_connection() -> None:
    served: list[int] = []

    def serve(port: Annotated[int, typer.Option()] = 8080) -> None:
        """Serve."""
        served.append(port)

    def connect() -> Address:
        raise AssertionError("serving needs no server")

    app = build_app(
        connect=connect,
        clock=InstantClock(),
        rng=random.Random(1),
        serve=serve,
        simulator=nothing,
        demo=nothing,
    )
    assert CliRunner().invoke(app, ["serve", "--port", "9"]).exit_code == 0
    assert served == [9]
