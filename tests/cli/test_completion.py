"""Tab completes the names of instances, says nothing of its troubles, and gives a shell only plain words."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.entrypoints.cli.command_runner import CommandContext, shell_safe_words
from gpuherd.settings_loading import parse_server_address
from tests.cli.support import CLI, KEY, Answer, FakeApi, InstantClock, details, problem
from tests.cli.terminal import DRIVER

SHELLS = ("bash", "zsh", "fish")
ID = "inst_01k9aaaa00000000000000000a"


def complete(api: FakeApi, words: str, shell: str = "bash") -> str:
    """What a shell gets that completes the last word."""
    how = {
        "COMP_WORDS": words.rpartition(" ")[0] if shell == "fish" else words,
        "COMP_CWORD": words.rpartition(" ")[2] if shell == "fish" else str(len(words.split(" ")) - 1),
        "_GPUHERD_COMPLETE": f"{shell}_complete",
    }
    around = CommandContext(lambda: parse_server_address(api.url, KEY), InstantClock(), random.Random(7))
    done = CliRunner().invoke(CLI, [], env=how, prog_name="gpuherd", catch_exceptions=False, obj=around)
    assert done.stderr == ""
    # bash gets the kind of each word before it.
    return "\n".join(line.removeprefix("plain,") for line in done.stdout.splitlines())


def herd(*names: str) -> dict[str, Any]:
    rows = [details("ready", name=name, id=f"{ID[:-1]}{n}") for n, name in enumerate(names)]
    return {"instances": rows, "total": len(rows)}


@pytest.mark.parametrize("shell", SHELLS)
def test_names_are_offered_to_every_shell(api: FakeApi, shell: str) -> None:
    api.script(herd("train-1", "train-2", "other"))
    said = complete(api, "gpuherd show tr", shell)
    assert "train-1" in said
    assert "train-2" in said
    assert "other" not in said


@pytest.mark.parametrize(
    "words", ["gpuherd stop ", "gpuherd jobs --instance ", "gpuherd ssh ", "gpuherd events "]
)
def test_every_argument_that_names_an_instance_completes(api: FakeApi, words: str) -> None:
    api.script(herd("train-1"))
    assert complete(api, words).split() == ["train-1"]


def test_commands_complete_without_a_server(api: FakeApi) -> None:
    api.stop()
    assert complete(api, "gpuherd templ").split() == ["templates"]


@pytest.mark.parametrize(
    "answer", [problem(401, "UNAUTHORIZED"), Answer(b"<html>"), Answer({"instances": [1, {"name": 2}]})]
)
def test_an_odd_server_is_met_with_silence(api: FakeApi, answer: Answer) -> None:
    api.script(answer)
    assert complete(api, "gpuherd show ").strip() == ""


def test_an_absent_server_is_met_with_silence(api: FakeApi) -> None:
    api.stop()
    assert complete(api, "gpuherd show ").strip() == ""


def test_a_name_that_does_not_do_is_offered_as_its_id(api: FakeApi) -> None:
    api.script(herd("two words", "twice", "twice", "plain"))
    assert complete(api, "gpuherd show ").split() == [*(f"{ID[:-1]}{n}" for n in range(3)), "plain"]


def test_whoever_begins_an_id_gets_ids(api: FakeApi) -> None:
    api.script(herd("plain"))
    assert complete(api, "gpuherd show inst_01").split() == [f"{ID[:-1]}0"]


def test_what_is_deleted_is_not_offered(api: FakeApi) -> None:
    api.script({"instances": [details("deleted")]})
    assert complete(api, "gpuherd show ").strip() == ""


def test_templates_and_regions_complete_too(api: FakeApi) -> None:
    api.script({"templates": [{"id": "101", "name": "PyTorch"}, {"id": "106", "problem": "no image"}]})
    assert complete(api, "gpuherd up --template ").split() == ["101"]
    api.script({"regions": [{"code": "CN-HK-01"}, {"code": "AS-SGP-02"}]})
    assert complete(api, "gpuherd up --region CN").split() == ["CN-HK-01"]


@given(word=st.text(), other=st.text(), about=st.text(), beginning=st.text(max_size=3))
def test_a_shell_never_gets_more_than_plain_words(word: str, other: str, about: str, beginning: str) -> None:
    found = [
        *shell_safe_words([((word, other), about)], beginning),
        *shell_safe_words([(("plain",), about)], ""),
    ]
    for said, told in found:
        assert said.replace("-", "").replace("_", "").replace(".", "").isalnum()
        assert said.isascii()
        assert not said.startswith("-")
        assert not set(told) & set("\"'`$\\:;|&<>()\n")


def test_a_strangers_name_is_not_obeyed_by_zsh(api: FakeApi, tmp_path: Path) -> None:
    # A script of zsh may evaluate the line.
    api.script(herd(f'\\";touch {tmp_path}/pwned;\\"'))
    said = complete(api, "gpuherd show ", "zsh")
    assert "touch" not in said
    assert "inst_01k9aaaa" in said


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_the_script_for_the_shell_can_be_shown_and_installed(
    api: FakeApi, tmp_path: Path, option: str
) -> None:
    line = f"{sys.executable} {DRIVER} {api.url} {option}; true"
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    scripts = list(tmp_path.rglob("gpuherd.sh"))
    script = scripts[0].read_text() if option == "--install-completion" else done.stdout
    assert "complete -o nosort -F _gpuherd_completion gpuherd" in script
