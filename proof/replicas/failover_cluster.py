"""A PostgreSQL with a standby that lags behind, and an address that moves to it when the first one is killed.

Both listen on a socket in a directory of their own, and the address is a link to one of the two directories.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from proof.replicas.postgres_cluster import Mode, PostgresCluster

_ONE_AT_A_TIME = threading.Lock()

# A standby that falls behind must not be told that what it needs is gone.
SETTINGS = ("wal_keep_size = '256MB'",)
USER = "postgres"
CAUGHT_UP_LIMIT_S = 30.0


class StoppedServer(PostgresCluster):
    """The files of a server that was ended in peace, to be copied: to make them anew takes seconds."""

    def start(self) -> None:
        super().start()
        for setting in SETTINGS:
            self._command(f"ALTER SYSTEM SET {setting}")
        self.stop_server("fast")

    def stop_server(self, mode: Mode) -> None:
        if (self.data / "postmaster.pid").exists():
            super().stop_server(mode)

    @property
    def data(self) -> Path:
        return Path(self._server.pgdata)

    @property
    def programs(self) -> Path:
        return Path(self._server.bin_path)

    @property
    def user(self) -> str | None:
        """As whom its programs are run, if not as ourselves."""
        name: str | None = self._server.system_user
        return name


@functools.cache
def _files() -> StoppedServer:
    files = StoppedServer()
    files.start()
    return files


class FailoverCluster(PostgresCluster):
    """Two servers, of which one is in use."""

    def start(self) -> None:
        """Make the primary, a copy of it that follows it, and the address."""
        with _ONE_AT_A_TIME:
            self._files = _files()
        self._directory.chmod(0o777)
        self._primary, self._standby = self._directory / "primary", self._directory / "standby"
        for name in ("p", "s"):
            (self._directory / name).mkdir()
            # The servers run as another user than the one who made this.
            (self._directory / name).chmod(0o777)
        self._address = self._directory / "at"
        self._address.symlink_to("p")
        for data in (self._primary, self._standby):
            self._run("cp", "-a", self._files.data, data)
        follows = f"primary_conninfo = 'host={self._directory / 'p'} user={USER}'"
        with (self._standby / "postgresql.auto.conf").open("a") as settings:
            settings.write(follows + "\n")
        self._run("touch", self._standby / "standby.signal")
        atexit.register(self.remove)
        self._start(self._primary, "p")
        self._start(self._standby, "s")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@/{database}?host={self._address}"

    def stop_replication(self) -> None:
        """Let the standby fall behind from now on."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            senders = connection.execute("SELECT pid FROM pg_stat_replication").fetchall()
        assert senders, "the standby does not follow"
        for (pid,) in senders:
            os.kill(pid, signal.SIGSTOP)

    def kill_primary(self) -> None:
        """Kill it with all its processes, none of which may commit anything any more."""
        postmaster = int((self._primary / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)
        for pid in [*_children(postmaster), postmaster]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def promote_standby(self) -> None:
        """Let the standby be the primary from now on."""
        self._run("pg_ctl", "-w", "-D", self._standby, "promote")

    def move_address(self) -> None:
        """Lead everybody who connects from now on to the standby."""
        fresh = self._directory / "next"
        fresh.symlink_to("s")
        fresh.replace(self._address)

    def wait_until_followed(self) -> None:
        """Wait until the standby has all that the primary has, and has it on its disk.

        PostgreSQL promotes a standby with broken sequences of unlogged tables if
        they are younger than its last checkpoint. Those of a service that has run for minutes are older.
        """
        self._wait_until_replayed()
        for sockets in ("p", "s"):
            with psycopg.connect(f"host={self._directory / sockets} user={USER}", autocommit=True) as server:
                server.execute("CHECKPOINT")
            self._wait_until_replayed()

    def _wait_until_replayed(self) -> None:
        behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"
        end_s = time.monotonic() + CAUGHT_UP_LIMIT_S
        with psycopg.connect(self.url(), autocommit=True) as connection:
            while connection.execute(behind).fetchone() != (1,):
                assert time.monotonic() < end_s, "the standby does not follow"
                time.sleep(0.02)

    def remove(self) -> None:
        """Stop both for good; again is harmless."""
        atexit.unregister(self.remove)
        for name in ("primary", "standby"):
            if (self._directory / name / "postmaster.pid").exists():
                with contextlib.suppress(subprocess.CalledProcessError):
                    self._run("pg_ctl", "-w", "-D", self._directory / name, "-m", "immediate", "stop")
        super().remove()

    def _start(self, data: Path, sockets: str) -> None:
        options = f"-h '' -k {self._directory / sockets}"
        log = self._directory / sockets / "log"
        self._run("pg_ctl", "-w", "-D", data, "-l", log, "-o", options, "start")

    def _run(self, program: str, *words: str | Path) -> None:
        subprocess.run(
            [self._files.programs / program if program.startswith("pg_") else program, *words],
            user=self._files.user,
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )


def _children(pid: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                yield int(path.parent.name)
