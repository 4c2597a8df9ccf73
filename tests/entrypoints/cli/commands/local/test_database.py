"""`gpuherd migrate` and `gpuherd db copy` tell people and programs what was done; so does the exit code."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from gpuherd.entrypoints.cli.commands.local import database
from gpuherd.entrypoints.cli.commands.local.database import (
    CopiedTable,
    CopyProgress,
    DatabaseBound,
    DatabaseCopied,
    Migrated,
    build_db,
    migrate_command,
)
from gpuherd.entrypoints.cli.render.output import Mode, Output
from gpuherd.entrypoints.cli.runtime.errors import CommandError
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from tests.support.fake_clock import FakeClock

COPIED = DatabaseCopied(
    source=Path("/data/gpuherd.db"),
    target="postgresql://herd:***@db/gpu",
    schema="0006",
    tables=[CopiedTable("instance", 3, "00ff"), CopiedTable("event", 40, "0a0b")],
    left_out={"replica": "those processes have ended"},
    jobs_queued=2,
    gpus=3,
    micro_usd_an_hour=1_050_000,
)


def an_output(mode: Mode = Mode.PEOPLE, *, terminal: bool = True) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    consoles = [Console(file=it, force_terminal=terminal, color_system=None, width=100) for it in (out, err)]
    return Output(mode, *consoles), out, err


def run_migrate(done: Migrated | CommandError, *options: str) -> Result:
    asked: list[bool] = []

    def migrate_database(*, check: bool) -> Migrated:
        asked.append(check)
        if isinstance(done, CommandError):
            raise done
        return done

    app = typer.Typer()
    for name, command in migrate_command(migrate_database).items():
        app.command(name)(command)
    result = CliRunner().invoke(app, [*options])
    assert asked == [("--check" in options)]
    return result


@pytest.mark.parametrize(
    ("before", "after", "exit_code"),
    [(None, "0006", 0), ("0004", "0006", 0), ("0006", "0006", 0), ("0004", "0004", 1), (None, None, 1)],
)
def test_the_exit_code_says_whether_this_version_can_serve(
    before: str | None, after: str | None, exit_code: int
) -> None:
    result = run_migrate(Migrated("/data/gpuherd.db", before, after, "0006"), "--check")
    told = json.loads(result.stdout)
    assert result.exit_code == exit_code
    assert told == {
        "database": "/data/gpuherd.db",
        "from": before,
        "to": after,
        "head": "0006",
        "upToDate": exit_code == 0,
    }


def test_quiet_leaves_it_to_the_exit_code() -> None:
    result = run_migrate(Migrated("/data", "0004", "0004", "0006"), "--check", "--quiet")
    assert (result.exit_code, result.output) == (1, "")


def test_a_refusal_has_its_own_exit_code() -> None:
    result = run_migrate(CommandError(ExitCode.CONFLICT, "SERVER_RUNNING", "in use"))
    assert result.exit_code == 5
    assert json.loads(result.stderr)["error"]["code"] == "SERVER_RUNNING"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, "0006", "schema empty is now 0006"),
        ("0004", "0006", "schema 0004 is now 0006"),
        ("0006", "0006", "schema 0006, up to date"),
        ("0004", "0004", "schema 0004, this version works with 0006"),
        ("0007", "0007", "schema 0007, which a newer gpuherd has made; this version knows 0006"),
    ],
)
def test_people_are_told_from_where_to_where(before: str | None, after: str | None, said: str) -> None:
    output, out, err = an_output()
    database._tell_migrated(output, Migrated("/da\x1bta", before, after, "0006"), check=True)
    assert out.getvalue().strip() == f"/da\\x1bta: {said}"
    assert ("gpuherd migrate" in err.getvalue()) == ("works with" in said)


def run_copy(*options: str) -> Result:
    def never() -> DatabaseBound:
        raise AssertionError("not asked for")

    def copy_database(
        source: str | None, target: str | None, progress: Callable[[str, int, int], None]
    ) -> DatabaseCopied:
        assert (source, target) == ("sqlite:////data/gpuherd.db", "postgresql://db/gpu")
        progress("instance", 3, 3)
        return COPIED

    app = typer.Typer()
    app.add_typer(build_db(copy_database, FakeClock(), never, never), name="db")
    ends = ["--from", "sqlite:////data/gpuherd.db", "--to", "postgresql://db/gpu"]
    return CliRunner().invoke(app, ["db", "copy", *ends, *options], catch_exceptions=False)


def test_a_program_gets_every_table_and_what_comes_next() -> None:
    result = run_copy("--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert told["tables"][1] == {"table": "event", "rows": 40, "sum": "0a0b", "ok": True}
    assert (told["jobsQueued"], told["gpus"], told["hourlyUsd"]) == (2, 3, "1.05")
    assert told["leftOut"] == {"replica": "those processes have ended"}
    assert any("must never be served again" in step for step in told["next"])


def test_people_get_a_table_and_what_comes_next() -> None:
    output, out, err = an_output()
    database._tell_copied(output, COPIED)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines == [["TABLE", "ROWS", "SUM"], ["instance", "3", "00ff", "ok"], ["event", "40", "0a0b", "ok"]]
    assert "3 GPUs for 1.05 USD an hour" in err.getvalue()
    assert "mkdir /data/moved && mv /data/gpuherd.db* /data/moved" in " ".join(err.getvalue().split())


class TestProgress:
    async def test_what_is_quick_is_not_talked_about_and_the_rest_once_a_second(self) -> None:
        output, _, err = an_output()
        clock = FakeClock()
        progress = CopyProgress(output, clock)
        for done in range(1, 31):
            await clock.advance(0.1)
            progress("event", done, 30)
        assert err.getvalue().split("\n") == [
            "event: 10 of 30 rows",
            "event: 20 of 30 rows",
            "event: 30 of 30 rows",
            "",
        ]

    async def test_where_nobody_looks_nothing_is_said(self) -> None:
        output, _, err = an_output(terminal=False)
        clock = FakeClock()
        progress = CopyProgress(output, clock)
        await clock.advance(60)
        progress("event", 1, 2)
        assert err.getvalue() == ""
