"""`gpuherd db rebind`: a person says that a database belongs to the cloud of its next start."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.stores.installation_store import has_live_replicas, unbind_cloud
from gpuherd.bootstrap.rules_from_settings import redact_password
from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.ops.exclusive_access import exclusive_access
from gpuherd.ops.migrate import schema_of
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import Settings
from gpuherd.usecases.service.leader_election import HEARTBEAT_TIMEOUT


@dataclass(frozen=True)
class DatabaseBound:
    """What a database belonged to, and what holds now."""

    where: str
    before: str | None
    now: str


def rebind_database(settings: Settings, clock: Clock) -> DatabaseBound:
    """Let the database belong to the cloud of its next start, whose account is then confirmed anew."""
    where = _existing(settings)
    with exclusive_access(settings.sqlite_path), closing(Database(settings.database)) as database:
        if has_live_replicas(database, clock.now() - HEARTBEAT_TIMEOUT):
            raise CommandError(
                ExitCode.CONFLICT, "SERVER_RUNNING", f"{where} is in use", suggestion="stop all servers first"
            )
        before = unbind_cloud(database)
    if before is None:
        return DatabaseBound(where, None, "it belongs to no cloud yet; the next start takes its own")
    if before.simulated:
        raise CommandError(
            ExitCode.CONFLICT,
            "SIMULATED_DATABASE",
            f"{where} belongs to the simulator; what it holds is on no account",
            suggestion="use another database for the real cloud",
        )
    return DatabaseBound(where, before.words, "the next start takes the cloud of its settings")


def _existing(settings: Settings) -> str:
    where = redact_password(str(settings.sqlite_path or settings.database_url))
    if schema_of(settings) is None:
        raise CommandError(
            ExitCode.NOT_FOUND,
            "NO_DATABASE",
            f"there is no database at {where}",
            suggestion="check GPUHERD_DATA_DIR and GPUHERD_DATABASE_URL",
        )
    return where
