"""`gpuherd`: parse the command line, and build what the command needs."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.client.client_connection import SystemClock
from gpuherd.client.client_errors import BadConfiguration
from gpuherd.client.server_address import Address
from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.cli.app import build_app
from gpuherd.entrypoints.cli.commands.local.config import Configuration, config_command
from gpuherd.entrypoints.cli.commands.local.database import (
    BackupMade,
    DatabaseBound,
    DatabaseCopied,
    Migrated,
    Restored,
    backup_commands,
    build_db,
    migrate_command,
)
from gpuherd.entrypoints.cli.commands.local.doctor import CheckResult, doctor_command
from gpuherd.entrypoints.cli.commands.local.first_contact import FirstContact
from gpuherd.ops.connection import server_address
from gpuherd.settings import Settings, SettingsInvalid, load_settings

EX_CONFIG = 78

Speed = Annotated[
    float, typer.Option(min=0.01, help="Divide boot and reclaim times of the simulator by this.")
]


class Role(StrEnum):
    """What a process may be there for."""

    all = "all"
    api = "api"
    worker = "worker"


def serve(
    simulator: Annotated[
        bool, typer.Option("--simulator", help="Use a simulated Novita: no key, no cost.")
    ] = False,
    simulator_speed: Speed = 1.0,
    role: Annotated[
        Role, typer.Option(help="What this process does; api and worker need PostgreSQL.")
    ] = Role.all,
) -> None:
    """Run the service: API, workers and observer in one process, or one of several replicas."""
    settings = _settings(needs_cloud=not simulator)
    if simulator:
        settings = settings.for_simulator()
    from gpuherd.bootstrap.serve import run_serve  # noqa: PLC0415  the client commands must start fast

    _run_or_exit(lambda: run_serve(settings, simulator=simulator, speed=simulator_speed, role=role.value))


def simulator(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8090,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    speed: Speed = 1.0,
    scenario: Annotated[
        str, typer.Option(help="A story with troubles in it; a wrong name lists them.")
    ] = "calm",
    seed: Annotated[int | None, typer.Option(help="Repeat the same chances.")] = None,
) -> None:
    """Run a stand-alone double of Novita's API that costs nothing."""
    import asyncio  # noqa: PLC0415  the client commands must start fast

    from gpuherd.ops.simulator import simulate  # noqa: PLC0415  as above

    _run_or_exit(lambda: asyncio.run(simulate(host, port, speed, scenario, seed)))


def demo() -> None:
    """Rent a simulated GPU, watch it become ready, and see its signed webhook arrive."""
    from gpuherd.ops.demo import run_demo  # noqa: PLC0415  the client commands must start fast

    _run_or_exit(run_demo)


def mcp(
    http: Annotated[
        int | None,
        typer.Option(
            "--http", min=1, max=65535, help="Serve over HTTP on this port; each call brings a key."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen, with --http.")] = "127.0.0.1",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only tools that look: nothing can be rented or ended.")
    ] = False,
) -> None:
    """Serve agents over the Model Context Protocol, on the standard streams or over HTTP."""
    if importlib.util.find_spec("mcp") is None:
        _say("gpuherd mcp needs an extra that is not installed: pip install 'gpuherd[mcp]'")
        raise SystemExit(EX_CONFIG)
    from gpuherd.entrypoints.mcp.mcp_server import run_http, run_stdio  # noqa: PLC0415  an extra

    settings = _settings()
    terms: Any = {"read_only": read_only, "ask_above_usd": settings.mcp_ask_above_usd}
    address = server_address(settings)
    if http is None:
        _run_or_exit(lambda: run_stdio(address, **terms))
    else:
        _run_or_exit(lambda: run_http(address, host, http, **terms))


def make_backup(target: Path, *, force: bool) -> BackupMade:
    """Copy the database of this machine."""
    from gpuherd.ops import backup  # noqa: PLC0415  the client commands must start fast

    return backup.make_backup(_settings(), target, force=force)


def restore_backup(source: Path, *, force: bool) -> Restored:
    """Put a copy in the place of the database of this machine."""
    from gpuherd.ops import backup  # noqa: PLC0415  the client commands must start fast

    return backup.restore_backup(_settings(), source, SystemClock().now(), force=force)


def migrate_database(*, check: bool) -> Migrated:
    """Bring the configured database to this version."""
    from gpuherd.adapters.logging_setup import configure_logs  # noqa: PLC0415  the client commands must start fast
    from gpuherd.ops import migrate  # noqa: PLC0415  as above

    # What is worth a line in a server's log is in the answer here.
    configure_logs("error", ())
    return migrate.migrate_database(_settings(), SystemClock(), check=check)


def copy_database(
    source: str | None, target: str | None, progress: Callable[[str, int, int], None]
) -> DatabaseCopied:
    """Copy a SQLite database of this machine into a PostgreSQL database."""
    from gpuherd.ops import copy_database as copying  # noqa: PLC0415  the client commands must start fast

    return copying.copy_database(_settings(), source, target, SystemClock(), progress)


def rebind_database() -> DatabaseBound:
    """Let the configured database belong to the cloud of its next start."""
    from gpuherd.ops import bind_database  # noqa: PLC0415  the client commands must start fast

    return bind_database.rebind_database(_settings(), SystemClock())


def reclaim_database() -> DatabaseBound:
    """Let a database of this machine be served again that was copied away."""
    from gpuherd.ops import bind_database  # noqa: PLC0415  the client commands must start fast

    return bind_database.reclaim_database(_settings())


def connect() -> Address:
    """Return how the CLI reaches its server: as configured, else the one of this user on this machine."""
    return server_address(_settings())


def examine_all() -> Sequence[CheckResult]:
    """Check everything that gpuherd needs here."""
    from gpuherd.ops.doctor.examine import examine  # noqa: PLC0415  the client commands must start fast

    return examine(SystemClock())


def first_contact() -> FirstContact:
    """Return the checks of what gpuherd assumes about Novita."""
    from gpuherd.ops.doctor.live.contact import LiveContact  # noqa: PLC0415  the client commands must start fast

    return LiveContact(_settings(), SystemClock())


def read_configuration() -> Configuration:
    """Return the settings in force, once they are known to be usable."""
    from gpuherd.ops.config import configuration  # noqa: PLC0415  as above

    _settings()
    return configuration()


def _settings(*, needs_cloud: bool = False) -> Settings:
    try:
        return load_settings(needs_cloud=needs_cloud)
    except SettingsInvalid as invalid:
        _say("gpuherd cannot start, its settings have problems:", *(f"  - {it}" for it in invalid.problems))
        raise SystemExit(EX_CONFIG) from None


def _run_or_exit(work: object) -> None:
    assert callable(work)
    try:
        work()
    except (CannotStart, BadConfiguration) as problem:
        _say(f"gpuherd cannot start: {problem}")
        raise SystemExit(EX_CONFIG) from None
    except GpuherdError as error:
        _say(f"gpuherd cannot go on: {error.message}")
        raise SystemExit(EX_CONFIG if error.code == "DATABASE_UNUSABLE" else 1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _say(*lines: str) -> None:
    sys.stderr.write("\n".join(lines) + "\n")


def application() -> typer.Typer:
    """Return the whole of `gpuherd`, ready to be called."""
    app = build_app(
        connect=connect,
        clock=SystemClock(),
        rng=random.SystemRandom(),
        serve=serve,
        simulator=simulator,
        demo=demo,
        more={
            **backup_commands(make_backup, restore_backup),
            **migrate_command(migrate_database),
            **doctor_command(examine_all, first_contact),
            **config_command(read_configuration),
            "mcp": mcp,
        },
    )
    app.add_typer(build_db(copy_database, SystemClock(), rebind_database, reclaim_database), name="db")
    return app


def main() -> None:
    """The console script."""
    application()()


if __name__ == "__main__":
    main()
