"""`gpuherd ssh` and `gpuherd open`, with stand-ins for ssh and for the browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Cli, FakeApi, details
from tests.cli.terminal import DRIVER

READY = details(
    "ready",
    connectionDetails={"ssh": "ssh root@proxy.example -p 2222"},
    portMappings=[{"port": 8888, "endpoint": "http://page.example/lab", "type": "http"}],
)


def stand_in(folder: Path, name: str, exit_code: int) -> Path:
    """A program that writes down its arguments."""
    program = folder / name
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{folder}/{name}.said"\nexit {exit_code}\n')
    program.chmod(0o700)
    return program


def run(api: FakeApi, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DRIVER), api.url, *argv],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )


def test_ssh_takes_over_with_its_own_exit_code(api: FakeApi, tmp_path: Path) -> None:
    api.script(READY)
    stand_in(tmp_path, "ssh", 17)
    done = run(api, "ssh", "train-1", "--", "echo", "a b; id", "-L", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 17
    said = (tmp_path / "ssh.said").read_text().splitlines()
    assert said == ["-p", "2222", "root@proxy.example", "echo", "a b; id", "-L"]


def test_without_an_ssh_the_command_is_told(api: FakeApi, tmp_path: Path) -> None:
    api.script(READY)
    done = run(api, "ssh", "train-1", PATH=str(tmp_path))
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"]) == (1, "NO_SSH")
    assert error["suggestion"].endswith("ssh -p 2222 root@proxy.example")


def test_ssh_can_be_shown_only(cli: Cli, api: FakeApi) -> None:
    api.script(READY)
    assert cli("ssh", "train-1", "--print", "--", "a b").stdout == "ssh -p 2222 root@proxy.example 'a b'\n"
    assert json.loads(cli("ssh", "train-1", "--json").stdout) == {
        "user": "root",
        "host": "proxy.example",
        "port": 2222,
        "command": ["ssh", "-p", "2222", "root@proxy.example"],
    }


def test_nothing_is_run_for_what_is_not_ready(cli: Cli, api: FakeApi) -> None:
    api.script(details("creating"))
    for verb in ("ssh", "open"):
        result = cli(verb, "train-1")
        assert result.exit_code == 5
        assert json.loads(result.stderr)["error"]["suggestion"] == "gpuherd wait train-1"


def test_the_browser_gets_the_address(api: FakeApi, tmp_path: Path) -> None:
    api.script(READY)
    done = run(api, "open", "train-1", BROWSER=str(stand_in(tmp_path, "browser", 0)))
    assert done.returncode == 0
    assert (tmp_path / "browser.said").read_text() == "http://page.example/lab\n"


def test_without_a_browser_the_address_is_told(api: FakeApi, tmp_path: Path) -> None:
    api.script(READY)
    done = run(api, "open", "train-1", BROWSER=str(stand_in(tmp_path, "browser", 1)), PATH=str(tmp_path))
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"], error["suggestion"]) == (
        1,
        "NO_BROWSER",
        "http://page.example/lab",
    )


@pytest.mark.parametrize(("option", "said"), [("--print", "http://page.example/lab\n"), ("--json", None)])
def test_the_address_can_be_shown_only(cli: Cli, api: FakeApi, option: str, said: str | None) -> None:
    api.script(READY)
    shown = cli("open", "train-1", "--port", "8888", option).stdout
    assert shown == said if said else json.loads(shown) == {"url": "http://page.example/lab"}
