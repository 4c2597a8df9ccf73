"""`gpuherd logs`, and the log of a boot beside the wait for it."""

from __future__ import annotations

import json

import pytest

from tests.cli.support import Answer, Cli, FakeApi, accepted, details, problem
from tests.cli.terminal import CTRL_C, terminal

RAW = b"step 1\r\n\x1b[31mred\x1b[0m \xff\n"


def test_in_a_pipe_the_bytes_go_out_as_they_are(cli: Cli, api: FakeApi) -> None:
    api.script(details("ready"))
    api.log = Answer(RAW)
    result = cli("logs", "train-1")
    assert (result.exit_code, result.stdout_bytes) == (0, RAW)


def test_a_log_that_was_cut_and_one_that_is_empty_are_told(cli: Cli, api: FakeApi) -> None:
    api.script(details("ready"))
    api.log = Answer(b"x" * 2**20)
    assert "all of it: gpuherd logs train-1 -f --system" in cli("logs", "train-1", "--system").stderr
    assert "MiB" not in cli("logs", "train-1", "-f").stderr
    api.log = Answer(b"")
    assert "empty" in cli("logs", "train-1").stderr


def test_why_there_is_no_log_is_told(cli: Cli, api: FakeApi) -> None:
    api.script(details("exited"))
    api.log = problem(409, "INSTANCE_NOT_RUNNING", detail="train-1 is stopped")
    result = cli("logs", "train-1")
    assert (result.exit_code, json.loads(result.stderr)["error"]["code"]) == (5, "INSTANCE_NOT_RUNNING")
    assert result.stdout == ""


@pytest.mark.processes
def test_on_a_terminal_nothing_is_obeyed(api: FakeApi) -> None:
    api.script(details("ready"))
    api.log = Answer(RAW)
    with terminal(api.url, "logs", "train-1") as screen:
        assert screen.end() == 0
    assert "\\x1b[31mred\\x1b[0m" in screen.text and "\x1b[31m" not in screen.raw


@pytest.mark.processes
def test_the_pull_is_shown_while_it_boots_and_ctrl_c_detaches(api: FakeApi) -> None:
    api.script(accepted(), details("starting"))
    api.log = Answer(b"pulled layer 2 of 8\npulled layer 3 of 8\x1b[2J\n")
    with terminal(api.url, "up", "--gpu", "4090", "--template", "101", "--yes") as screen:
        screen.until("pulled layer 3 of 8\\x1b[2J")
        screen.type(CTRL_C)
        assert screen.end() == 130
    assert "gpuherd wait" in screen.text
