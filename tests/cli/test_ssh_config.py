"""`gpuherd ssh-config`: a file that names what can be logged in to, whole and for one pair of eyes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuherd.entrypoints.cli.ssh_commands import CONFIG_HEAD, HOST_LINE, host_blocks, write_private
from tests.cli.support import Answer, Cli, FakeApi, SeenRequest, details

KNOWN = Path("/home/me/.ssh/known")


def instance(name: str, ssh: str = "ssh root@proxy.example -p 2222", **more: object) -> dict[str, Any]:
    about = {"id": f"inst_{name}", "name": name, "connectionDetails": {"ssh": ssh}}
    return {**details("ready"), **about, **more}


def test_an_instance_is_found_by_name_and_id() -> None:
    text = host_blocks([instance("train")], KNOWN)
    assert f"{HOST_LINE}train inst_train\n    HostName proxy.example\n    Port 2222\n    User root\n" in text
    assert "HostKeyAlias inst_train" in text


def test_a_name_of_two_is_nobodys() -> None:
    text = host_blocks([instance("train"), instance("train", id="inst_b")], KNOWN)
    assert f"{HOST_LINE}inst_train\n" in text
    assert f"{HOST_LINE}inst_b\n" in text


@pytest.mark.parametrize("name", ["*", "a b", "x\nProxyCommand id", "!train", "-x", "a?"])
def test_a_name_that_is_a_pattern_or_a_line_is_left_out(name: str) -> None:
    text = host_blocks([instance(name, id="inst_a")], KNOWN)
    assert f"{HOST_LINE}inst_a\n" in text
    assert "ProxyCommand" not in text


@pytest.mark.parametrize(
    "one",
    [
        instance("odd", "ssh root@x -oProxyCommand=id"),
        instance("none", ""),
        instance("gone", status="exited", usable=False),
    ],
)
def test_nobody_is_sent_to_what_is_no_plain_address_or_does_not_run(one: dict[str, Any]) -> None:
    assert host_blocks([one], KNOWN) == CONFIG_HEAD


def test_ssh_itself_understands_the_file(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    write_private(path, host_blocks([instance("train")], tmp_path / "known hosts"))
    try:
        done = subprocess.run(
            ["ssh", "-G", "-F", str(path), "train"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no ssh here")
    said = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    assert (said["hostname"], said["port"], said["user"]) == ("proxy.example", "2222", "root"), done.stderr


def test_the_file_is_put_in_place_as_a_whole_and_only_if_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "conf"
    assert write_private(path, "one")
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat().st_ino
    assert not write_private(path, "one")
    assert path.stat().st_ino == before
    assert write_private(path, "two")
    assert [it.name for it in path.parent.iterdir()] == ["conf"]


def test_the_command_writes_it_and_says_how_to_include_it(api: FakeApi, cli: Cli, tmp_path: Path) -> None:
    def answer(seen: SeenRequest) -> Answer:
        if seen.path.startswith("/api/events"):
            return Answer({"events": [], "lastEventId": "7"})
        return Answer({"instances": [instance("train")], "nextCursor": None})

    api.script(answer)
    path = tmp_path / "conf"
    done = cli("ssh-config", "--file", str(path))
    assert done.exit_code == 0, done.output
    assert "train" in path.read_text()
    assert f'Include "{path}"' in done.stderr.replace("\n", "")
