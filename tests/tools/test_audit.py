"""The audit finds what it is there to find, and says so when it could not look."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import audit
from tools.audit import ask_pip_audit, check

HASH = "--hash=sha256:" + "a" * 64
PROJECT = '[project]\nname = "gpuherd"\ndependencies = ["Thing[x]>=1,<2", "other_one==3"]\n'
GOOD = f"thing==1.0 \\\n    {HASH}\nother-one==3 \\\n    {HASH}\n"


def repository(folder: Path, lock: str = GOOD, dev: str = GOOD, bad: str | None = None) -> Path:
    (folder / "tools").mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "requirements.lock").write_text(lock)
    (folder / "requirements-dev.lock").write_text(dev)
    if bad is not None:
        (folder / "tools" / "known-bad.txt").write_text(bad)
    return folder


def test_good_locks_have_no_problems(tmp_path: Path) -> None:
    assert check(repository(tmp_path)) == []


def test_a_package_without_a_hash_is_found(tmp_path: Path) -> None:
    lock = GOOD.replace(f" \\\n    {HASH}", "", 1)
    assert check(repository(tmp_path, lock)) == ["thing 1.0 has no hash"]


def test_a_hash_of_a_weaker_kind_is_none(tmp_path: Path) -> None:
    lock = GOOD.replace(HASH, "--hash=md5:" + "a" * 32, 1)
    assert check(repository(tmp_path, lock)) == ["thing 1.0 has no hash"]


def test_a_dependency_that_is_not_locked_is_found(tmp_path: Path) -> None:
    lock = GOOD.partition("other-one")[0]
    assert check(repository(tmp_path, lock)) == ["other-one is not locked"]


def test_a_version_that_is_not_the_tested_one_is_found(tmp_path: Path) -> None:
    dev = GOOD.replace("thing==1.0", "thing==1.1")
    assert check(repository(tmp_path, dev=dev)) == ["thing is 1.0 for users and 1.1 for tests"]


def test_a_package_that_is_locked_twice_is_found(tmp_path: Path) -> None:
    assert "thing is locked twice" in check(repository(tmp_path, GOOD + f"Thing==1.0 \\\n    {HASH}\n"))


def test_a_line_that_is_no_pin_is_found(tmp_path: Path) -> None:
    assert check(repository(tmp_path, GOOD + "thing>=2\n")) == ["line 5 is no pin: thing>=2"]


def test_what_is_listed_as_bad_is_found_in_that_version_only(tmp_path: Path) -> None:
    bad = "# known\nThing==1.0  steals keys\nother-one==2 yanked\n"
    assert check(repository(tmp_path, bad=bad)) == ["thing 1.0 is known to be bad: steals keys"]


def test_our_own_locks_are_good() -> None:
    assert check(audit.ROOT) == []


def test_without_pip_audit_it_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_pip_audit(tmp_path / "x.lock") == 0
    assert capsys.readouterr().out.splitlines() == [
        "known vulnerabilities were not looked up: pip-audit is not installed"
    ]


@pytest.mark.parametrize(("network", "verdict"), [(False, 0), (True, 1)])
def test_pip_audit_is_asked_if_it_is_there_and_the_index_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: bool, verdict: int
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(audit, "online", lambda: network)
    assert ask_pip_audit(tmp_path / "x.lock") == verdict
    assert (tmp_path / "asked").exists() == network
