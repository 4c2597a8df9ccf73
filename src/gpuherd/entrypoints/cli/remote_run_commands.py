"""`gpuherd run`: rent, send the folder, run something there, bring back what it made, release the machine."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import click

from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.entrypoints.cli.cli_output import Output, Row, safe, usd
from gpuherd.entrypoints.cli.command_runner import (
    LABEL_OPTION,
    TIMEOUT_OPTION,
    command_context,
    detaches_by_interrupt,
    is_interactive,
    server_command,
)
from gpuherd.entrypoints.cli.instance_facts import command_about, find_instance, outcome_of
from gpuherd.entrypoints.cli.launch_commands import confirm_plan, create_instance, new_key, new_name
from gpuherd.entrypoints.cli.launch_options import (
    IMAGE,
    LEASE,
    MIN_CUDA,
    OFFER_OPTIONS,
    REGISTRY_AUTH,
    SECRET,
    SILENCE,
    TEMPLATE,
    WAIT_FOR_CAPACITY,
    envs_of,
    gpu_option,
    launch_body_of,
    require_gpu_and_template,
)
from gpuherd.entrypoints.cli.remote_job import LEFT_OUT, RemoteJob
from gpuherd.entrypoints.cli.rental_progress import InstanceFollower
from gpuherd.entrypoints.cli.rental_stages import Progress
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.cli.server_replies import ServerFailure, ServerRefusal, ServerUnreachable
from gpuherd.entrypoints.cli.ssh_connection import (
    SshConnection,
    SshLost,
    Transfer,
    connected,
    size_text,
    ssh_target,
    transfer,
)

# The lease of a machine, if the user gives none.
LEASE_S = 4 * 3600
# After this time without a heartbeat the server deletes the machine, long before its lease ends.
SILENCE_S = 900
# Several heartbeats may get lost.
BEATS_IN_SILENCE = 6
# A lost connection is tried again for this time while the machine runs.
RECONNECT_LIMIT_S = 600.0
RECONNECT_INTERVAL_S = 3.0
# A delete without an answer is repeated for this time. After that, silence and lease end the machine.
RELEASE_LIMIT_S = 60.0
RELEASE_INTERVAL_S = 1.0
# An image must open this port for logins.
SSH_PORT = "22/tcp"
# A run finds its rental by this label.
RUN_LABEL = "gpuherd.run"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@server_command(
    "run",
    click.argument(
        "arguments",
        nargs=-1,
        required=True,
        metavar="-- COMMAND",
        help="What to run there, in the folder that was sent.",
    ),
    gpu_option(required=False),
    TEMPLATE,
    IMAGE,
    click.option(
        "--out",
        multiple=True,
        help="Bring this file or folder back, whatever the exit code. May be given often.",
    ),
    click.option(
        "--folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path(),
        show_default=True,
        help="What to send.",
    ),
    click.option(
        "--exclude", multiple=True, help="Do not send what is called so: *.ckpt. May be given often."
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME=VALUE",
        help="A variable of the command; NAME alone takes its value from here. May be given often.",
    ),
    SECRET,
    click.option("--keep", is_flag=True, help="Do not give it back after the command; its lease ends it."),
    MIN_CUDA,
    REGISTRY_AUTH,
    *OFFER_OPTIONS,
    LABEL_OPTION,
    WAIT_FOR_CAPACITY,
    LEASE,
    SILENCE,
    click.option("--yes", "-y", is_flag=True, help="Do not show the plan, do not ask."),
    TIMEOUT_OPTION,
    json=False,
)
def run(server: ServerConnection, output: Output, yes: bool, timeout: float, **values: Any) -> None:
    """Rent a machine, run a command on it in a copy of this folder, and give the machine back.

    The output and the exit code are those of the command. The machine is given back whatever happens: by this
    command, else when this command has been silent for 15 minutes (--silence), and in any case at the end of
    the lease (--lease, 4 h).
    """
    # What the command prints there is all that goes to stdout.
    output = output.on_stderr()
    require_gpu_and_template(output, values)
    rng, clock = command_context().rng, output.clock
    name = values["name"] if values["name"] is not None else new_name("run", rng)
    silence_s = round(values["silence"] or SILENCE_S)
    run_id = f"{rng.getrandbits(64):016x}"
    # Lease and variables are for the command, not for the container.
    rented = {**values, "name": name, "env": (), "lease": None, "silence": None}
    body = launch_body_of(rented) | {
        "lease": {"seconds": round(values["lease"] or LEASE_S), "then": "delete"},
        "autoStop": {"silenceSeconds": silence_s, "then": "delete"},
    }
    body["labels"] = {**body.get("labels", {}), RUN_LABEL: run_id}
    if values["image"]:
        body["ports"] = [SSH_PORT]
    order = RunOrder(
        run_id,
        values["arguments"],
        values["folder"],
        [*LEFT_OUT, *values["exclude"]],
        _checked(envs_of(values["env"]), "--env"),
        list(_checked(body.get("envs") or {}, "--secret")),
        values["out"],
    )
    if not yes and is_interactive():
        confirm_plan(server, output, body)
    key = new_key(rng)
    follower = InstanceFollower(server, output, timeout)
    made: list[Row] = []

    def rent(lost: Any) -> Progress:
        made.append(create_instance(server, clock, body, key, follower.deadline, lost))
        return Progress(made[0])

    with detaches_by_interrupt(output, lambda: "interrupted"), stop_on_signals():
        try:
            instance = follower.follow(rent)
            with heartbeats(server, str(instance["id"]), silence_s / BEATS_IN_SILENCE):
                code = Run(server, output, instance, order).to_end()
        finally:
            with shield_from_interrupts():
                for rental in made or find_unconfirmed(server, run_id):
                    release_rental(server, output, rental, keep=values["keep"])
    raise click.exceptions.Exit(code)


def _checked(variables: Mapping[str, Any], option: str) -> Mapping[str, Any]:
    """Return variables of the command. Their names become a part of a script, so they are checked."""
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            raise click.BadParameter(f"{name!r} is no name of a variable", param_hint=option)
    return variables


@dataclass(frozen=True)
class RunOrder:
    """What to do on the machine."""

    run_id: str
    command: Sequence[str]
    folder: Path
    left_out: Sequence[str]
    environment: Mapping[str, str]
    # The names of variables whose values only the machine gets.
    inherited: Sequence[str]
    out: Sequence[str]


class Run:
    """One command on one machine, over as many connections as needed."""

    def __init__(self, server: ServerConnection, output: Output, instance: Row, order: RunOrder) -> None:
        self._server = server
        self._output = output
        self._instance = instance
        self._order = order
        self._job: RemoteJob | None = None
        self._sent = False
        self._code: int | None = None
        self._fetched: set[str] = set()

    def to_end(self) -> int:
        """Return the exit code of the command."""
        lost_at: float | None = None
        while True:
            try:
                with connected(
                    ssh_target(self._instance), str(self._instance["id"]), self._output.clock
                ) as connection:
                    lost_at = None
                    return self._go_on(connection)
            except SshLost as lost:
                now = self._output.clock.monotonic()
                lost_at = now if lost_at is None else lost_at
                self._look_for_machine(lost, now - lost_at)

    def _go_on(self, connection: SshConnection) -> int:
        """Do the remaining steps. Each is done once, or can be repeated."""
        job = self._job = self._job or RemoteJob(connection, self._order.run_id)
        job.connection = connection
        if not self._sent:
            with transfer(self._output, self._output.clock, "sending the folder") as shown:
                self._send(job, shown)
            self._output.note(f"sent {size_text(shown.count)}; running", "dim")
            self._sent = True
        if self._code is None:
            job.start(self._order.command, self._order.environment, self._order.inherited)
            self._code = self._follow(job)
        for path in self._order.out:
            if path not in self._fetched:
                with transfer(self._output, self._output.clock, f"bringing back {path}") as shown:
                    self._fetch(job, path, shown)
                self._fetched.add(path)
        return self._code

    def _send(self, job: RemoteJob, shown: Transfer) -> None:
        try:
            job.send(self._order.folder, self._order.left_out, shown.tell)
        except OSError as error:
            words = f"{error.filename or self._order.folder} cannot be read: {error.strerror or error}"
            raise CommandError(
                ExitCode.FAILED, "CANNOT_READ", words, suggestion="leave it out with --exclude"
            ) from error

    def _follow(self, job: RemoteJob) -> int:
        streams = (sys.stdout.buffer, sys.stderr.buffer)
        while True:
            try:
                return job.follow(*streams)
            except KeyboardInterrupt:
                if not is_interactive() or not self._asked_to_go_on():
                    _end_politely(job)
                    raise
            except OSError as error:
                _end_politely(job)
                words = f"nobody reads the output any more: {error.strerror or error}"
                raise CommandError(ExitCode.FAILED, "OUTPUT_CLOSED", words) from error

    def _asked_to_go_on(self) -> bool:
        """Ask once whether to continue; a second Ctrl-C means no."""
        try:
            return not click.confirm("\nEnd it and give the machine back?", default=True, err=True)
        except click.Abort:
            return False

    def _fetch(self, job: RemoteJob, path: str, shown: Transfer) -> None:
        try:
            job.fetch(path, Path(), shown.tell)
        except CommandError as refusal:
            if self._code:
                # A failed command need not have made the file; its exit code says more.
                self._output.note(f"{safe(path)} cannot be brought back: {safe(refusal)}", "yellow")
                return
            raise
        self._output.note(f"brought back {safe(path)} ({size_text(shown.count)})", "dim")

    def _look_for_machine(self, lost: SshLost, for_s: float) -> None:
        """Return if another try makes sense, with the machine's present address."""
        with suppress(ServerUnreachable):
            self._instance = find_instance(self._server, str(self._instance["id"]))
        instance = self._instance
        if outcome_of(instance, "ready") is False:
            reason = instance.get("statusReason") or lost
            raise CommandError(
                ExitCode.FAILED,
                "MACHINE_LOST",
                f"{instance['name']} is {instance['status']}: {reason}",
                suggestion=command_about("why", instance),
            )
        if for_s > RECONNECT_LIMIT_S:
            raise CommandError(
                ExitCode.FAILED, "CONNECTION_LOST", f"the connection does not come back: {lost}"
            )
        self._output.note(f"the connection is lost ({safe(lost)}); trying again", "yellow")
        self._output.clock.pause(RECONNECT_INTERVAL_S)


def _end_politely(job: RemoteJob) -> None:
    with suppress(SshLost, CommandError):
        job.signal("TERM")


# --- release the machine, however the command ends ---


def find_unconfirmed(server: ServerConnection, run_id: str) -> Sequence[Row]:
    """Return the instance of a create whose answer was interrupted. If that is unclear, silence ends it."""
    try:
        found = server.rows("/api/instances", "instances", label=f"{RUN_LABEL}={run_id}", limit=100)
    except ServerFailure:
        return ()
    rows: Sequence[Row] = found["instances"]
    return rows


def release_rental(server: ServerConnection, output: Output, instance: Row, *, keep: bool) -> None:
    """Request the deletion until the server accepts it, or print what will end the machine."""
    if keep and sys.exc_info()[0] is None:
        output.note(f"kept; give it back with: {command_about('rm', instance)}", "yellow")
        return
    clock = output.clock
    deadline = clock.monotonic() + RELEASE_LIMIT_S
    while True:
        try:
            server.delete(path_of("instances", str(instance["id"])))
            output.note(f"given back{_cost_text(server, instance)}", "dim")
            return
        except ServerRefusal as refusal:
            if refusal.status in (404, 409, 410):
                return
            failure: ServerFailure = refusal
        except ServerUnreachable as unreachable:
            failure = unreachable
        if clock.monotonic() >= deadline:
            output.note(
                f"the server does not answer ({safe(failure)}): {safe(instance['name'])} is deleted when it"
                f" has not heard of this command for a while; look with: {command_about('show', instance)}",
                "red",
            )
            return
        clock.pause(RELEASE_INTERVAL_S)


def _cost_text(server: ServerConnection, instance: Row) -> str:
    with suppress(ServerFailure):
        cost = find_instance(server, str(instance["id"])).get("cost") or {}
        if "settled" in cost:
            return f"; it cost {usd(cost['settled'])} until now"
    return ""


@contextmanager
def heartbeats(server: ServerConnection, instance_id: str, interval_s: float) -> Iterator[None]:
    """Report use of the machine while this process lives."""
    ended = threading.Event()

    def beat() -> None:
        with ServerConnection(server.address) as own:
            while not ended.wait(interval_s):
                # The next one may arrive; the server's silence limit covers many.
                with suppress(ServerFailure):
                    own.post(path_of("instances", instance_id, "heartbeat"))

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Make SIGHUP and SIGTERM end the command like Ctrl-C, so that the machine is released."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with ExitStack() as restored:
        for number in (signal.SIGTERM, signal.SIGHUP):
            restored.callback(signal.signal, number, signal.signal(number, interrupt))
        yield


@contextmanager
def shield_from_interrupts() -> Iterator[None]:
    """Ignore all signals except kill -9 during the release, which takes at most a minute."""
    with ExitStack() as restored:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            restored.callback(signal.signal, number, signal.signal(number, signal.SIG_IGN))
        yield
