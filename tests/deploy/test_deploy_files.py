"""What we give people to run gpuherd with names settings, commands and paths that exist."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from aiohttp import web

from gpuherd.bootstrap.service_lifecycle import SHUTDOWN_LIMIT_S
from gpuherd.settings import SETTING_NAMES
from tests.cli.support import CLI
from tests.support.processes.services import free_port

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
FILES = sorted(it for it in DEPLOY.iterdir() if it.is_file())
UNITS = [it for it in FILES if it.suffix == ".service"]
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OPERATIONS = ROOT / "docs" / "operations.md"
# Variables that are named, and are no settings of a server.
NO_SETTINGS = {"GPUHERD_TAG"}
OURS = re.compile(r"\b(?:GPUHERD|NOVITA|WEBHOOK)_[A-Z_]*[A-Z]\b")


def parse(words: list[str]) -> None:
    """Let the command line read the words, without doing what they say; a usage error is an exception."""
    command: click.Command = CLI
    context = command.make_context("gpuherd", list(words))
    while isinstance(command, click.Group):
        # Like click itself: what is left behind the group's own options names the command.
        rest = [*context._protected_args, *context.args]
        if not rest:
            assert command.invoke_without_command, f"{words}: a command is missing"
            return
        name, found, left = command.resolve_command(context, rest)
        assert found is not None, words
        command, context = found, found.make_context(name, left, parent=context)


def directives(unit: Path) -> list[tuple[str, str]]:
    lines = [it for it in unit.read_text().splitlines() if "=" in it and not it.startswith("#")]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def services() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, service in COMPOSE["services"].items():
        if service["image"] == "gpuherd":
            yield name, service


def container_json(instruction: str) -> list[str]:
    """Return the last words of an instruction that is written as a list."""
    (found,) = re.findall(rf"^\s*{instruction} (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    words = json.loads(found)
    assert isinstance(words, list)
    return words


def documented_commands() -> Iterator[str]:
    """Yield what the page tells people to type: our commands in its indented blocks, without the program."""
    for line in OPERATIONS.read_text().splitlines():
        if line.startswith("    "):
            plain = re.sub(r"\$\([^)]*\)", "x", line.partition(" #")[0])
            for part in re.split(r"&&|\|\||[|;]", plain):
                # Variables, or a schedule, may come first.
                words = re.sub(r"^\s*(?:(?:\w+=\S+|[\d*]+)\s+)*", "", part).split()
                if words and Path(words[0]).name == "gpuherd":
                    yield " ".join(words[1:])


@pytest.mark.parametrize("path", [*FILES, OPERATIONS], ids=lambda it: it.name)
def test_every_setting_that_is_named_exists(path: Path) -> None:
    assert set(OURS.findall(path.read_text())) - SETTING_NAMES - NO_SETTINGS == set()


def test_all_kinds_of_files_are_there() -> None:
    assert {it.name for it in FILES} >= {
        "Containerfile",
        "compose.yaml",
        "gpuherd.env.example",
        "gpuherd.service",
        "gpuherd-worker@.service",
    }


class TestCommands:
    @pytest.mark.parametrize("unit", UNITS, ids=lambda it: it.name)
    def test_of_a_unit(self, unit: Path) -> None:
        (line,) = [value for name, value in directives(unit) if name == "ExecStart"]
        program, *words = shlex.split(line)
        assert program == "/opt/gpuherd/bin/gpuherd"
        parse(words)

    def test_of_the_image(self) -> None:
        assert container_json("ENTRYPOINT") == ["gpuherd"]
        (words,) = re.findall(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
        parse(json.loads(words))

    @pytest.mark.parametrize(
        ("name", "service"), list(services()), ids=lambda it: it if isinstance(it, str) else ""
    )
    def test_of_the_example_with_several_containers(self, name: str, service: dict[str, Any]) -> None:
        parse(service["command"])

    @pytest.mark.parametrize("line", sorted(set(documented_commands())))
    def test_of_the_page_about_operations(self, line: str) -> None:
        parse(shlex.split(line.replace("…", "x")))

    def test_a_command_that_does_not_exist_would_be_found(self) -> None:
        for words in (["serve", "--rolle", "api"], ["serve", "--role", "observer"], ["db", "move"], ["db"]):
            with pytest.raises(Exception, match=r"(?s).*"):
                parse(words)


class TestUnits:
    @pytest.mark.parametrize("unit", UNITS, ids=lambda it: it.name)
    def test_it_is_locked_down_and_comes_back(self, unit: Path) -> None:
        said = dict(directives(unit))
        wanted = {
            "DynamicUser": "yes",
            "StateDirectory": "gpuherd",
            "StateDirectoryMode": "0700",
            "NoNewPrivileges": "yes",
            "ProtectSystem": "strict",
            "ProtectHome": "yes",
            "CapabilityBoundingSet": "",
            "Restart": "always",
            "StartLimitIntervalSec": "0",
            "KillSignal": "SIGTERM",
            "EnvironmentFile": "/etc/gpuherd/gpuherd.env",
        }
        assert said.items() >= wanted.items()

    @pytest.mark.parametrize("unit", UNITS, ids=lambda it: it.name)
    def test_a_create_call_under_way_may_end(self, unit: Path) -> None:
        assert int(dict(directives(unit))["TimeoutStopSec"]) > SHUTDOWN_LIMIT_S

    def test_all_units_are_locked_down_alike(self) -> None:
        told_apart = {"Description", "ExecStart", "Environment"}
        alike = [{it for it in directives(unit) if it[0] not in told_apart} for unit in UNITS]
        assert len(alike) > 1
        assert all(it == alike[0] for it in alike)

    @pytest.mark.parametrize("unit", UNITS, ids=lambda it: it.name)
    def test_it_may_ask_how_many_files_it_may_open(self, unit: Path) -> None:
        """`getrlimit` is a call of that group, and the server asks at its start."""
        filters = [value for name, value in directives(unit) if name == "SystemCallFilter"]
        assert filters == ["@system-service", "~@privileged"]

    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
    @pytest.mark.parametrize("unit", UNITS, ids=lambda it: it.name)
    def test_systemd_understands_it(self, unit: Path, tmp_path: Path) -> None:
        # It looks for the program too, which is not installed here; and a template needs a name.
        copy = tmp_path / unit.name.replace("@.", "@8091.")
        copy.write_text(unit.read_text().replace("/opt/gpuherd/bin/gpuherd", "/bin/true"))
        done = subprocess.run(
            ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False, timeout=30
        )
        ours = [line for line in done.stderr.splitlines() if copy.name in line]
        assert (ours, done.returncode) == ([], 0), done.stderr


class TestContainer:
    def test_everything_from_outside_comes_by_its_hash(self) -> None:
        installs = [line for line in CONTAINERFILE.splitlines() if "pip install" in line]
        assert installs
        assert all("--require-hashes" in line for line in installs)
        assert "index" not in CONTAINERFILE
        assert "://" not in CONTAINERFILE.replace("http://127.0.0.1", "")

    def test_it_copies_only_what_is_there(self) -> None:
        copied = re.findall(r"^COPY (?!--from)(\S+) ", CONTAINERFILE, re.MULTILINE)
        assert copied
        assert all((ROOT / it).exists() for it in copied)

    def test_it_does_not_run_as_root(self) -> None:
        users = re.findall(r"^USER (\S+)$", CONTAINERFILE, re.MULTILINE)
        assert users == ["10001"]

    def test_the_python_is_ours(self) -> None:
        bases = re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE)
        version = ".".join(map(str, sys.version_info[:2]))
        assert set(bases) == {f"docker.io/library/python:{version}-slim"}
        assert f"python{version}/site-packages" in CONTAINERFILE

    @pytest.mark.parametrize(("status", "exit_code"), [(200, 0), (503, 1), (None, 1)])
    async def test_the_health_check_asks_livez(self, status: int | None, exit_code: int) -> None:
        python, *words = container_json("CMD(?= ..python)")
        assert python == "python"
        port = free_port()

        async def live(request: web.Request) -> web.Response:
            return web.Response(status=status or 200)

        app = web.Application()
        app.router.add_get("/livez", live)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        if status is not None:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        env = {"PATH": os.environ["PATH"], "GPUHERD_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
        asked = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=env, stderr=asyncio.subprocess.DEVNULL
        )
        assert await asked.wait() == exit_code
        await runner.cleanup()


class TestCompose:
    def test_there_are_two_of_each_role_and_one_that_migrates_first(self) -> None:
        ours = dict(services())
        assert ours.keys() == {"migrate", "api", "worker"}
        for role in ("api", "worker"):
            assert ours[role]["command"] == ["serve", "--role", role]
            assert ours[role]["deploy"] == {"replicas": 2}
            assert ours[role]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}

    @pytest.mark.parametrize("name", ["NOVITA_API_KEY", "GPUHERD_ADMIN_KEY", "WEBHOOK_SECRET"])
    def test_replicas_cannot_start_with_different_secrets(self, name: str) -> None:
        for _, service in services():
            assert service["environment"][name].startswith(f"${{{name}:?")

    def test_no_secret_is_written_into_it(self) -> None:
        said = (DEPLOY / "compose.yaml").read_text()
        assert re.findall(r"PASSWORD(?!:\?)(?!: \$\{)(?! too)", said) == []
        assert not re.search(r"://\w+:(?!\$\{)", said)

    @pytest.mark.parametrize(
        ("name", "service"), list(services()), ids=lambda it: it if isinstance(it, str) else ""
    )
    def test_its_root_is_read_only(self, name: str, service: dict[str, Any]) -> None:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert int(service["stop_grace_period"].removesuffix("s")) > SHUTDOWN_LIMIT_S
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()


def test_the_example_of_the_environment_has_nothing_filled_in() -> None:
    lines = (DEPLOY / "gpuherd.env.example").read_text().splitlines()
    assert [it for it in lines if it and not it.startswith("#") and not it.endswith("=")] == []
