"""`gpuherd doctor` and `gpuherd config` on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

PROGRAM = """
import random, sys
from pathlib import Path
from gpuherd.ports.clock_port import SystemClock
from gpuherd.entrypoints.cli.app import build_app
from gpuherd.entrypoints.cli.commands.local.config import Configuration, Setting, config_command
from gpuherd.client.server_address import address_of
from gpuherd.entrypoints.cli.commands.local.doctor import CheckResult, Severity, doctor_command

def nothing(): pass

findings = [
    CheckResult("port", Severity.OK, "it is free"),
    CheckResult("database", Severity.PROBLEM, "it is \\x1b]0;damaged\\x07", "put a [bold]copy[/] back"),
]
settings = [
    Setting("GPUHERD_PORT", "10", "environment", "the port to serve on", False, False),
    Setting("NOVITA_API_KEY", "***", "default", "your key", True, True),
    Setting("LOG_LEVEL", None, "default", "how much is told", True, False),
]
found = Configuration(Path("/x/gpuherd.toml"), False, settings)
build_app(
    connect=lambda: address_of("http://127.0.0.1:1", None), clock=SystemClock(), rng=random.Random(1),
    serve=nothing, simulator=nothing, demo=nothing,
    more={**doctor_command(lambda: findings, nothing), **config_command(lambda: found)},
)(args=sys.argv[1:], prog_name="gpuherd")
"""


def on_terminal(*argv: str) -> tuple[list[str], int]:
    """What stands on a terminal of 80 columns in the end, and the exit code."""
    master, slave = pty.openpty()
    looks = {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *argv],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, **looks},
    )
    os.close(slave)
    raw = b""
    try:
        while chunk := os.read(master, 65536):
            raw += chunk
    except OSError:  # Linux says EIO when the other side is gone
        pass
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;]*m", "", raw.decode())
    assert "\x1b" not in text
    assert "\x07" not in text
    return [line.rstrip() for line in text.splitlines()], process.wait(30)


def test_a_person_sees_what_is_wrong_and_what_to_do() -> None:
    lines, exit_code = on_terminal("doctor")
    assert exit_code == 1
    assert lines == [
        "ok       port      it is free",
        "problem  database  it is \\x1b]0;damaged\\x07",
        "                   do: put a [bold]copy[/] back",
        "1 problem",
    ]


def test_a_person_sees_the_settings_and_where_they_come_from() -> None:
    lines, exit_code = on_terminal("config")
    assert exit_code == 0
    assert lines[0].split() == ["SETTING", "VALUE", "FROM", "MEANING"]
    assert lines[1].split() == ["GPUHERD_PORT", "10", "environment", "the", "port", "to", "serve", "on"]
    assert lines[2].split()[:3] == ["NOVITA_API_KEY", "***", "default"]
    assert lines[3].split()[:3] == ["LOG_LEVEL", "-", "default"]
    assert "/x/gpuherd.toml" in " ".join(lines[4:])
