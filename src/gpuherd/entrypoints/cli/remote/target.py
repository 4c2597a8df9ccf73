"""Where the ssh of an instance is. What the cloud wrote is read strictly before it becomes arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from gpuherd.client.follow_instance import outcome_of
from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.runtime.errors import CommandError, command
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode

SSH_PORT = 22
PORT_MAX = 65535

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True)
class SshTarget:
    """Whom to call, in parts that no option and no shell can hide in."""

    user: str
    host: str
    port: int

    def command(self, more: Sequence[str] = (), *, options: Sequence[str] = ()) -> list[str]:
        """Return the program and its arguments."""
        return ["ssh", *options, "-p", str(self.port), f"{self.user}@{self.host}", *more]


def ssh_target(instance: Instance) -> SshTarget:
    """Return where the instance's ssh is."""
    refuse_unready(instance, also="health_checking")
    words = instance.ssh
    if not words:
        raise not_reachable(instance, f"{instance.name} offers no ssh; its template opens no port for it")
    try:
        return parse_ssh(words)
    except ValueError as error:
        raise CommandError(
            ExitCode.FAILED,
            "ODD_SSH_COMMAND",
            f"the cloud gives an ssh command for {instance.name} that is not obeyed: {error}",
            suggestion=f"look at it with: {command('show', instance)}",
        ) from error


def parse_ssh(words: str) -> SshTarget:
    """Read `ssh user@host -p 2222`, in either order, and nothing else; ValueError says what is odd."""
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
    """Return True if this is a plain name or address, and nothing else."""
    if ":" in host:
        try:
            # A zone may hold anything.
            return IPv6Address(host).scope_id is None
        except ValueError:
            return False
    return _HOST.fullmatch(host) is not None


def refuse_unready(instance: Instance, also: str | None = None) -> None:
    """Let only what can be used pass, and what has the status `also`."""
    if instance.usable or instance.status == also:
        return
    # Waiting helps only where somebody is working on it.
    is_over = outcome_of(instance, "ready") is False
    verb = "wait" if not is_over else "start" if instance.status == "exited" else "why"
    yet = " yet" if verb == "wait" else ""
    raise CommandError(
        ExitCode.CONFLICT,
        "INSTANCE_NOT_READY",
        f"{instance.name} cannot be used{yet}: it is {instance.status}",
        suggestion=command(verb, instance),
    )


def not_reachable(instance: Instance, message: str) -> CommandError:
    """Return the failure of somebody who looks for a way in where there is none."""
    return CommandError(
        ExitCode.NOT_FOUND,
        "NO_WAY_IN",
        message,
        suggestion=f"see its ways in with: {command('show', instance)}",
    )
