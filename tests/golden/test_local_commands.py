"""What every command says about itself, and the commands that need no server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.golden.command_line import CommandLine, commands
from tests.golden.recording import Recording


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose name has the same length everywhere: lines are broken by it."""
    made = Path(tempfile.mkdtemp(prefix="golden-", dir="/tmp"))
    monkeypatch.chdir(made)
    # A command may set up the log of its process, which here is everybody's.
    monkeypatch.setattr(structlog, "configure", lambda **_: None)
    yield made
    shutil.rmtree(made)


async def test_cli_help(cli: CommandLine, recording: Recording) -> None:
    for command in commands():
        await cli.help(*command)
    recording.compare()


async def test_cli_usage(cli: CommandLine, recording: Recording) -> None:
    await cli("--version")
    await cli("odd")
    await cli("ls", "--odd")
    await cli("ls", "--limit", "0")
    await cli("ls", "--json", "--quiet")
    await cli("ls", "--label", "a=1", "--label", "b=2")
    await cli("show")
    await cli("show", " ")
    await cli("up")
    await cli("up", "--gpu", "4090", terminal=True)
    await cli("up", "--gpu", "4090", "--template", "101", "--timeout", "soon")
    await cli("up", "--gpu", "4090", "--template", "101", "--max-price", "much")
    await cli("up", "--gpu", "4090", "--template", "101", "--label", "odd")
    await cli("webhooks", "replay")
    await cli("webhooks", "listen", "--secret", "whsec_short")
    await cli("orphans", "adopt")
    await cli("keys", "create", "--scope", "king")
    await cli("keys", "create", "--scope", "read", "--expires", "soon")
    recording.compare()


async def test_cli_local(cli: CommandLine, recording: Recording, directory: Path) -> None:
    env = {"GPUHERD_DATA_DIR": str(directory / "data"), "HOME": str(directory)}
    secret = {**env, "NOVITA_API_KEY": "a-secret-of-twenty-chars", "GPUHERD_URL": "http://127.0.0.1:8080"}
    await cli("config", env=secret)
    await cli("config", terminal=True, env=secret)
    await cli("config", env={**env, "GPUHERD_PORT": "many"})
    await cli("migrate", "--check", env=env)
    await cli("migrate", env=env)
    await cli("migrate", terminal=True, env=env)
    await cli("backup", "copy.db", "--quiet", env=env)
    await cli("backup", "copy.db", env=env)
    await cli("backup", "copy.db", terminal=True, env=env)
    await cli("backup", "copy.db", "--force", env=env)
    await cli("backup", "copy.db", "--force", terminal=True, env=env)
    await cli("restore", "copy.db", env=env)
    for kept in (directory / "data").glob("*.replaced-*"):
        # Its name has the second in it, and the next one may come in the same.
        kept.unlink()
    await cli("restore", "copy.db", terminal=True, env=env)
    await cli("restore", "nothing.db", env=env)
    await cli("restore", "nothing.db", terminal=True, env=env)
    await cli("db", "copy", env=env)
    recording.compare()
