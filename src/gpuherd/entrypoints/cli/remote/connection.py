"""One login to a machine that all later calls share, over OpenSSH's control socket.

A password or a touch of a hardware key is asked for once, and a call costs no new handshake. Each call's
command is made of plain characters that we chose; whatever a user or a stranger wrote goes over standard
input, quoted, so that no login shell reads it as anything but data.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from gpuherd.client.client_connection import Clock
from gpuherd.entrypoints.cli.remote.target import SshTarget
from gpuherd.entrypoints.cli.runtime.errors import CommandError
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode

# What ssh itself answers with when the connection, and not the command, failed.
LOST = 255
# A machine that can be used may still be starting its sshd.
LOGIN_LIMIT_S = 120.0
LOGIN_INTERVAL_S = 2.0
LAST_WORDS = 4000
# What runs a script there that comes over standard input.
RUN_SCRIPT = "exec sh -s"

_OPTIONS = {
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "4",
    "ConnectTimeout": "10",
    # A machine that was made a minute ago has a key that nobody has seen; a changed one is still refused.
    "StrictHostKeyChecking": "accept-new",
    "LogLevel": "ERROR",
}
# Trying again does not help against these.
_REFUSALS = ("permission denied", "too many authentication failures", "host key verification failed")


class SshLost(Exception):
    """The connection ended before the command did."""


class RemoteCall:
    """One command that runs there. What it complains about goes to a file: a full pipe would halt it."""

    def __init__(self, process: subprocess.Popen[bytes], complaints: IO[bytes]) -> None:
        self._process = process
        self._complaints = complaints

    def __enter__(self) -> RemoteCall:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()
        self.close()

    @property
    def answers(self) -> io.BufferedReader:
        assert isinstance(self._process.stdout, io.BufferedReader), "asked for"
        return self._process.stdout

    @property
    def input(self) -> IO[bytes]:
        assert self._process.stdin is not None, "always a pipe"
        return self._process.stdin

    def say(self, script: str) -> None:
        """Give it all that it will read; if it is gone already, its exit code says so."""
        with suppress(BrokenPipeError):
            self.input.write(script.encode(errors="surrogateescape"))
            self.input.close()

    def conclude(self) -> None:
        """Wait for its end; raise unless it went well."""
        code = self._process.wait()
        if code == 0:
            return
        self._complaints.seek(0)
        words = self._complaints.read(LAST_WORDS).decode(errors="replace").strip()
        # A signal is ours, or that of somebody who ends the connection.
        if code == LOST or code < 0:
            raise SshLost(words or "the connection is lost")
        raise CommandError(ExitCode.FAILED, "REMOTE_FAILED", words or f"the machine answered with {code}")

    def abort(self) -> None:
        """End it, if it has not ended, with whatever it has started here."""
        if self._process.poll() is None:
            # It leads a session of its own; a child that lived on would hold the pipes open.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Give everything back. Nobody may read any more: a stream cannot be closed under its reader."""
        for stream in (self._process.stdin, self._process.stdout, self._complaints):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


class SshConnection:
    """A machine that was logged in to. Made by `connected`."""

    def __init__(self, target: SshTarget, alias: str, folder: Path) -> None:
        self._target = target
        self._options = {
            **_OPTIONS,
            "ControlPath": str(folder / "control"),
            "UserKnownHostsFile": str(folder / "known_hosts"),
            # Ports of the proxy are used again by other machines, with other keys.
            "HostKeyAlias": alias,
        }

    def log_in(self, clock: Clock) -> None:
        """Open the connection that the calls share; wait a while for a machine that does not answer yet."""
        deadline = clock.monotonic() + LOGIN_LIMIT_S
        while (complaint := self._try_login()) is not None:
            refused = any(word in complaint.lower() for word in _REFUSALS)
            if refused or clock.monotonic() + LOGIN_INTERVAL_S >= deadline:
                raise CommandError(
                    ExitCode.FAILED,
                    "SSH_REFUSED" if refused else "SSH_UNREACHABLE",
                    f"cannot log in to {self._target.user}@{self._target.host}: {complaint or 'no answer'}",
                    suggestion="give the machine your public key: in the account's settings, or in the image",
                )
            clock.pause(LOGIN_INTERVAL_S)

    def _try_login(self) -> str | None:
        """Return why not, or None. In the terminal's session, so that ssh can ask for a password."""
        with tempfile.TemporaryFile() as complaints:
            # Not a pipe: the connection stays in the background and would hold it open for ever.
            argv = self._argv({"ControlMaster": "yes", "ControlPersist": "yes"}, "-f", "-N")
            try:
                done = subprocess.run(  # noqa: S603  every word is ours, or was read strictly
                    argv, stdin=subprocess.DEVNULL, stdout=complaints, stderr=complaints, check=False
                )
            except OSError as error:
                raise no_ssh(error) from error
            complaints.seek(0)
            words = complaints.read(LAST_WORDS).decode(errors="replace").strip()
        return None if done.returncode == 0 else words

    def call(self, command: str, *, stdout: bool = True) -> RemoteCall:
        """Begin a command there. It is out of the terminal's reach: Ctrl-C is ours to understand."""
        argv = self._argv({"ControlMaster": "no", "BatchMode": "yes"}, "-T")
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  the call closes it
        process = subprocess.Popen(  # noqa: S603  as above
            [*argv, command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if stdout else subprocess.DEVNULL,
            stderr=complaints,
            start_new_session=True,
        )
        return RemoteCall(process, complaints)

    def ask(self, script: str) -> str:
        """Return what a short script prints there."""
        with self.call(RUN_SCRIPT) as call:
            call.say(script)
            said = call.answers.read()
            call.conclude()
        return said.decode(errors="replace")

    def log_out(self) -> None:
        """End the shared connection."""
        argv = self._argv({}, "-O", "exit")
        subprocess.run(  # noqa: S603  as above
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )

    def _argv(self, options: dict[str, str], *more: str) -> list[str]:
        pairs = [f"-o{name}={value}" for name, value in {**self._options, **options}.items()]
        return [
            "ssh",
            *pairs,
            *more,
            "-p",
            str(self._target.port),
            f"{self._target.user}@{self._target.host}",
        ]


@contextmanager
def connected(target: SshTarget, alias: str, clock: Clock) -> Iterator[SshConnection]:
    """Log in, and out in the end. `alias` names the machine among the keys that were seen."""
    # Under /tmp itself: the path of a socket may have hardly more than a hundred characters.
    with tempfile.TemporaryDirectory(prefix="gpuherd-ssh-", dir="/tmp") as folder:
        connection = SshConnection(target, alias, Path(folder))
        connection.log_in(clock)
        try:
            yield connection
        finally:
            connection.log_out()


def no_ssh(error: OSError) -> CommandError:
    """Return the failure of a computer without OpenSSH."""
    return CommandError(
        ExitCode.FAILED,
        "NO_SSH",
        f"ssh cannot be started here: {error.strerror}",
        suggestion="install OpenSSH",
    )
