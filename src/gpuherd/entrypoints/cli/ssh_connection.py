"""One login to a machine that all later calls share, over OpenSSH's control socket, and where the machine is.

ssh asks for a password or a touch of a hardware key once, and a call costs no new handshake. The command of
each call is made of plain characters that we chose. What a user or a stranger wrote goes over standard input,
quoted, so that every login shell reads it as data. What the cloud wrote is read strictly before it becomes
arguments.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import IO

from rich.status import Status

from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.entrypoints.cli.cli_output import CommandClock, Output, Row, safe
from gpuherd.entrypoints.cli.instance_facts import command_about, outcome_of

SSH_PORT = 22
PORT_MAX = 65535

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True)
class SshTarget:
    """The ssh address of a machine, in parts that cannot hide an option or shell syntax."""

    user: str
    host: str
    port: int

    def command(self, more: Sequence[str] = (), *, options: Sequence[str] = ()) -> list[str]:
        """Return the program and its arguments."""
        return ["ssh", *options, "-p", str(self.port), f"{self.user}@{self.host}", *more]


def ssh_target(instance: Row) -> SshTarget:
    """Return the ssh address of the instance."""
    refuse_unready(instance, also="health_checking")
    words = (instance.get("connectionDetails") or {}).get("ssh")
    if not words:
        raise not_reachable(instance, f"{instance['name']} offers no ssh; its template opens no port for it")
    try:
        return parse_ssh(words)
    except ValueError as error:
        raise CommandError(
            ExitCode.FAILED,
            "ODD_SSH_COMMAND",
            f"the cloud gives an ssh command for {instance['name']} that is not obeyed: {error}",
            suggestion=f"look at it with: {command_about('show', instance)}",
        ) from error


def parse_ssh(words: str) -> SshTarget:
    """Parse `ssh user@host -p 2222`, in either order, and nothing else; ValueError gives the reason."""
    port, rest = str(SSH_PORT), shlex.split(words)
    if rest[:1] != ["ssh"]:
        raise ValueError("it does not begin with ssh")
    rest = rest[1:]
    if "-p" in rest[:-1]:
        at = rest.index("-p")
        port, rest = rest[at + 1], rest[:at] + rest[at + 2 :]
    if len(rest) != 1:
        raise ValueError("it has more in it than a user, a host and a port")
    if not _NUMBER.fullmatch(port) or not 1 <= int(port) <= PORT_MAX:
        raise ValueError("its port is none")
    user, at_sign, host = rest[0].rpartition("@")
    if not at_sign or not _USER.fullmatch(user):
        raise ValueError("its user is no plain name")
    if not is_host(host):
        raise ValueError("its host is neither a name nor an address")
    return SshTarget(user, host, int(port))


def is_host(host: str) -> bool:
    """Return True if this is a plain name or address."""
    if ":" in host:
        try:
            # A zone may hold any characters.
            return IPv6Address(host).scope_id is None
        except ValueError:
            return False
    return _HOST.fullmatch(host) is not None


def refuse_unready(instance: Row, also: str | None = None) -> None:
    """Reject an instance that is not usable, unless it has the status `also`."""
    if instance.get("usable") or instance["status"] == also:
        return
    # Waiting helps only while the server works on it.
    is_over = outcome_of(instance, "ready") is False
    verb = "wait" if not is_over else "start" if instance["status"] == "exited" else "why"
    yet = " yet" if verb == "wait" else ""
    raise CommandError(
        ExitCode.CONFLICT,
        "INSTANCE_NOT_READY",
        f"{instance['name']} cannot be used{yet}: it is {instance['status']}",
        suggestion=command_about(verb, instance),
    )


def not_reachable(instance: Row, message: str) -> CommandError:
    """Return the error of a command that finds no ssh address."""
    return CommandError(
        ExitCode.NOT_FOUND,
        "NO_WAY_IN",
        message,
        suggestion=f"see its ways in with: {command_about('show', instance)}",
    )


# --- the connection ---


# ssh's own exit code if the connection, not the command, failed.
LOST = 255
# A usable machine may still be starting its sshd.
LOGIN_LIMIT_S = 120.0
LOGIN_INTERVAL_S = 2.0
LAST_WORDS = 4000
# Runs a script there that comes over standard input.
RUN_SCRIPT = "exec sh -s"

_OPTIONS = {
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "4",
    "ConnectTimeout": "10",
    # A new machine has a new key; a changed key is still rejected.
    "StrictHostKeyChecking": "accept-new",
    "LogLevel": "ERROR",
}
# A retry does not help against these.
_REFUSALS = ("permission denied", "too many authentication failures", "host key verification failed")


class SshLost(Exception):
    """The connection ended before the command did."""


class RemoteCall:
    """One running remote command. Its stderr goes to a file, because a full pipe would block it."""

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
        """Send all input. If the command is already gone, its exit code says so."""
        with suppress(BrokenPipeError):
            self.input.write(script.encode(errors="surrogateescape"))
            self.input.close()

    def conclude(self) -> None:
        """Wait for the end; raise if it failed."""
        code = self._process.wait()
        if code == 0:
            return
        self._complaints.seek(0)
        words = self._complaints.read(LAST_WORDS).decode(errors="replace").strip()
        # A signal comes from us, or from a person who ends the connection.
        if code == LOST or code < 0:
            raise SshLost(words or "the connection is lost")
        raise CommandError(ExitCode.FAILED, "REMOTE_FAILED", words or f"the machine answered with {code}")

    def abort(self) -> None:
        """End it with all its local processes, if it has not ended."""
        if self._process.poll() is None:
            # It leads its own session; a surviving child would keep the pipes open.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Close the streams. No thread may still read them."""
        for stream in (self._process.stdin, self._process.stdout, self._complaints):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


class SshConnection:
    """A logged-in connection. Made by `connected`."""

    def __init__(self, target: SshTarget, alias: str, folder: Path) -> None:
        self._target = target
        self._options = {
            **_OPTIONS,
            "ControlPath": str(folder / "control"),
            "UserKnownHostsFile": str(folder / "known_hosts"),
            # Other machines with other keys reuse the ports of the proxy.
            "HostKeyAlias": alias,
        }

    def log_in(self, clock: CommandClock) -> None:
        """Open the shared connection; wait for a machine that does not answer yet."""
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
        """Return why the login failed; None if it succeeded.

        It runs in the terminal's session, so that ssh can ask for a password.
        """
        with tempfile.TemporaryFile() as complaints:
            # Not a pipe: the background connection would keep it open.
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
        """Start a remote command. It does not get Ctrl-C from the terminal: gpuherd handles that."""
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
        """Return the output of a short remote script."""
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
def connected(target: SshTarget, alias: str, clock: CommandClock) -> Iterator[SshConnection]:
    """Log in, and log out at the end. `alias` names the machine among the known keys."""
    # Directly under /tmp: the path of a socket may have hardly more than a hundred characters.
    with tempfile.TemporaryDirectory(prefix="gpuherd-ssh-", dir="/tmp") as folder:
        connection = SshConnection(target, alias, Path(folder))
        connection.log_in(clock)
        try:
            yield connection
        finally:
            connection.log_out()


def no_ssh(error: OSError) -> CommandError:
    """Return the error for a computer without OpenSSH."""
    return CommandError(
        ExitCode.FAILED,
        "NO_SSH",
        f"ssh cannot be started here: {error.strerror}",
        suggestion="install OpenSSH",
    )


# --- how much has gone over the wire ---


DRAW_INTERVAL_S = 0.2
UNITS = ("bytes", "kB", "MB", "GB", "TB")
STEP = 1000


def size_text(count: int) -> str:
    """Return a size as people say it: 12.3 MB."""
    amount = float(count)
    for unit in UNITS[:-1]:
        if amount < STEP:
            return f"{amount:.0f} {unit}" if unit == UNITS[0] else f"{amount:.1f} {unit}"
        amount /= STEP
    return f"{amount:.1f} {UNITS[-1]}"


class Transfer:
    """Counts the transferred bytes and shows them."""

    def __init__(self, clock: CommandClock, status: Status | None, what: str) -> None:
        self._clock = clock
        self._status = status
        self._what = what
        self._drawn_at = clock.monotonic()
        self.count = 0

    def tell(self, count: int) -> None:
        self.count = count
        now = self._clock.monotonic()
        if self._status is not None and now - self._drawn_at >= DRAW_INTERVAL_S:
            self._drawn_at = now
            self._status.update(f"{safe(self._what)}  {size_text(count)}")


@contextmanager
def transfer(output: Output, clock: CommandClock, what: str) -> Iterator[Transfer]:
    """Show a running transfer, if a person watches."""
    if not output.err.is_interactive:
        yield Transfer(clock, None, what)
        return
    with output.err.status(safe(what)) as status:
        yield Transfer(clock, status, what)
