"""`gpuherd migrate` brings a database to this version, says from where to where, and disturbs nobody."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from gpuherd.adapters.sql.schema_migration import newest_schema
from gpuherd.bootstrap.key_files import ProcessLock
from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.ops.database_files import Migrated, migrate_database, schema_of
from gpuherd.settings import Settings
from tests.ops.aged_database import change
from tests.support.fake_clock import FakeClock
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401


@pytest.fixture
def embedded(tmp_path: Path) -> Settings:
    return Settings.model_validate({"GPUHERD_DATA_DIR": tmp_path / "data"})


@pytest.fixture
def shared(postgres_url: str, tmp_path: Path) -> Settings:  # noqa: F811
    return Settings.model_validate(
        {"GPUHERD_DATA_DIR": tmp_path / "data", "GPUHERD_DATABASE_URL": postgres_url}
    )


@pytest.fixture(params=["embedded", pytest.param("shared", marks=pytest.mark.postgres)])
def settings(request: pytest.FixtureRequest) -> Settings:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Settings)
    return found


def migrate(settings: Settings, *, check: bool = False) -> Migrated:
    return migrate_database(settings, FakeClock(), check=check)


def test_an_empty_database_gets_everything_and_the_second_time_nothing(settings: Settings) -> None:
    done = migrate(settings)
    assert (done.before, done.after, done.head, done.is_behind) == (
        None,
        newest_schema(),
        newest_schema(),
        False,
    )
    again = migrate(settings)
    assert (again.before, again.after) == (newest_schema(), newest_schema())


def test_a_check_tells_and_changes_nothing(settings: Settings) -> None:
    told = migrate(settings, check=True)
    assert (told.before, told.after, told.is_behind) == (None, None, True)
    assert schema_of(settings) is None
    assert not settings.data_dir.exists()
    migrate(settings)
    assert not migrate(settings, check=True).is_behind


@pytest.mark.parametrize("check", [False, True])
def test_a_database_of_a_much_newer_version_is_refused(embedded: Settings, check: bool) -> None:
    migrate(embedded)
    assert embedded.sqlite_path is not None
    change(embedded.sqlite_path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(CommandError) as caught:
        migrate(embedded, check=check)
    assert caught.value.report.exit_code is ExitCode.CONFIGURATION
    assert "newer" in caught.value.report.title


@pytest.mark.postgres
def test_on_postgres_the_queue_is_there_too(shared: Settings, postgres_url: str) -> None:  # noqa: F811
    migrate(shared)
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute(
            "SELECT to_regclass('procrastinate_jobs'), to_regclass('instance')"
        ).fetchone()
    assert row == ("procrastinate_jobs", "instance")


def test_a_running_server_is_not_disturbed_but_may_be_asked(embedded: Settings) -> None:
    migrate(embedded)
    lock = ProcessLock(embedded.data_dir / "gpuherd.db")
    with pytest.raises(CommandError) as caught:
        migrate(embedded)
    assert (caught.value.report.exit_code, caught.value.report.code) == (ExitCode.CONFLICT, "SERVER_RUNNING")
    assert not migrate(embedded, check=True).is_behind
    lock.release()
    migrate(embedded)


def test_a_damaged_database_is_left_alone(embedded: Settings) -> None:
    path = embedded.sqlite_path
    assert path is not None
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    for check in (False, True):
        with pytest.raises(CommandError) as caught:
            migrate(embedded, check=check)
        assert caught.value.report.exit_code is ExitCode.CONFIGURATION
    assert path.read_bytes() == b"no database at all" * 100


def test_a_database_that_cannot_be_reached_is_named_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://h:geheim@127.0.0.1:1/gpu"
    away = Settings.model_validate({"GPUHERD_DATA_DIR": tmp_path, "GPUHERD_DATABASE_URL": url})
    with pytest.raises(CommandError) as caught:
        migrate(away)
    report = caught.value.report
    assert report.exit_code is ExitCode.CONFIGURATION
    assert "127.0.0.1" in report.title
    assert "geheim" not in report.title + report.suggestion
