"""The command run: rent, send the folder, run something there, bring back what it made, give back."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from gpuherd.client.client_errors import ConnectionFailed
from gpuherd.client.follow_instance import outcome_of
from gpuherd.client.sync_client import Gpuherd
from gpuherd.client.wish import AutoStop, Lease
from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.commands.instances.plan import confirm_plan
from gpuherd.entrypoints.cli.commands.instances.up import Create, new_name
from gpuherd.entrypoints.cli.remote.connection import SshConnection, SshLost, connected
from gpuherd.entrypoints.cli.remote.folder import LEFT_OUT
from gpuherd.entrypoints.cli.remote.give_back import (
    RUN_LABEL,
    ended_by_signals,
    give_back,
    heartbeats,
    rented_unheard,
    undisturbed,
)
from gpuherd.entrypoints.cli.remote.job import RemoteJob
from gpuherd.entrypoints.cli.remote.target import ssh_target
from gpuherd.entrypoints.cli.remote.transfer_progress import Transfer, size_text, transfer
from gpuherd.entrypoints.cli.render.output import Mode, Output, safe
from gpuherd.entrypoints.cli.render.progress import Watcher
from gpuherd.entrypoints.cli.render.stages import SeenInstance
from gpuherd.entrypoints.cli.runtime.confirm import is_interactive
from gpuherd.entrypoints.cli.runtime.errors import CommandError, command
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.options import (
    TIMEOUT_S,
    BillingOption,
    Disk,
    Gpu,
    GpuNum,
    Labels,
    LeaseOption,
    MaxPrice,
    Name,
    Regions,
    SilenceOption,
    TemplateId,
    Timeout,
    WaitForCapacity,
    product_of,
    template_of,
    wish_of,
)
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of
from gpuherd.entrypoints.cli.runtime.session import run as run_with_client
from gpuherd.entrypoints.cli.runtime.wait import InstanceWaiter
from gpuherd.entrypoints.cli.runtime.workload_options import (
    Image,
    MinCuda,
    RegistryAuth,
    SecretEnv,
    envs_of,
)

# The end that was agreed, if nobody has said another.
LEASE_S = 4 * 3600
# Without a sign of life of this command for so long the machine is deleted, long before its lease ends.
SILENCE_S = 900
# Several may get lost.
BEATS_IN_SILENCE = 6
# So long a lost connection is tried again while the machine is said to run.
RECONNECT_LIMIT_S = 600.0
RECONNECT_INTERVAL_S = 3.0
# What an image of one's own must open, so that one can log in.
SSH_PORT = "22/tcp"
T = TypeVar("T")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def run(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND", help="What to run there, in the folder that was sent."),
    ],
    gpu: Gpu,
    template: TemplateId = None,
    image: Image = None,
    out: Annotated[
        list[str] | None,
        typer.Option(
            "--out", help="Bring this file or folder back, whatever the exit code. May be given often."
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", help="What to send.", exists=True, file_okay=False, show_default=True)
    ] = Path(),
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", help="Do not send what is called so: *.ckpt. May be given often."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME=VALUE",
            help="A variable of the command; NAME alone takes its value from here. May be given often.",
        ),
    ] = None,
    secret: SecretEnv = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Do not give it back after the command; its lease ends it.")
    ] = False,
    min_cuda: MinCuda = None,
    registry_auth: RegistryAuth = None,
    name: Name = None,
    gpu_num: GpuNum = None,
    disk: Disk = None,
    region: Regions = None,
    max_price: MaxPrice = None,
    billing: BillingOption = None,
    label: Labels = None,
    wait_for_capacity: WaitForCapacity = None,
    lease: LeaseOption = None,
    silence: SilenceOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show the plan, do not ask.")] = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Rent a machine, run a command on it in a copy of this folder, and give the machine back.

    The output and the exit code are those of the command. The machine is given back whatever happens: by this
    command, else when this command has been silent for 15 minutes (--silence), and in any case at the end of
    the lease (--lease, 4 h).
    """
    cli = cli_context_of(context)
    # What the command prints there is all that goes to stdout.
    err = Output.for_command().err
    output = Output(Mode.PEOPLE, err, err)
    product, template = product_of(gpu), template_of(context, template, image)
    name = name if name is not None else new_name("run", cli.rng)
    wish = wish_of(
        gpu_num=gpu_num,
        disk=disk,
        region=region,
        max_price=max_price,
        billing=billing,
        fallback_after=None,
        optimize=None,
        label=label,
        webhook_url=None,
        health_check=None,
        on_failure=None,
        wait_for_capacity=wait_for_capacity,
        lease=None,
        idle=None,
        silence=None,
        then=None,
        on_reclaim=None,
        max_replacements=None,
        handover=None,
        image=image,
        command=None,
        env=None,
        secret=secret,
        port=[SSH_PORT] if image else None,
        min_cuda=min_cuda,
        registry_auth=registry_auth,
    )
    wish["lease"] = Lease(seconds=round(lease or LEASE_S), then="delete")
    silence_s = round(silence or SILENCE_S)
    wish["auto_stop"] = AutoStop(silence_seconds=silence_s, then="delete")
    run_id = f"{cli.rng.getrandbits(64):016x}"
    wish["labels"] = {**(wish.get("labels") or {}), RUN_LABEL: run_id}
    left_out, inherited = [*LEFT_OUT, *(exclude or ())], list(_checked(wish.get("envs") or {}, "--secret"))
    order = RunOrder(
        run_id, arguments, folder, left_out, _checked(envs_of(env), "--env"), inherited, out or ()
    )
    if not yes and is_interactive():
        confirm_plan(cli, output, name, product, template, wish)
    create = Create(f"cli-{cli.rng.getrandbits(128):032x}", name, product, template, wish)
    waiter = InstanceWaiter(output, cli.clock, timeout)

    def work(herd: Gpuherd) -> int:
        rented: list[Instance] = []

        def begin(watcher: Watcher) -> SeenInstance:
            rented.append(create.send(herd, cli.clock, waiter.deadline, watcher))
            return SeenInstance(rented[0])

        with ended_by_signals():
            try:
                instance = waiter.wait_to_end(herd, begin)
                with heartbeats(cli, instance.id, silence_s / BEATS_IN_SILENCE):
                    return Run(cli, output, herd, instance, order).to_end()
            finally:
                with undisturbed():
                    for it in rented or rented_unheard(herd, run_id):
                        give_back(cli, output, herd, it, keep=keep)

    code = run_with_client(cli, output, work, interrupt_message=lambda: "interrupted")
    raise typer.Exit(code)


def _checked(variables: Mapping[str, T], option: str) -> Mapping[str, T]:
    """Return variables of the command; their names become part of a script."""
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            raise typer.BadParameter(f"{name!r} is no name of a variable", param_hint=option)
    return variables


@dataclass(frozen=True)
class RunOrder:
    """What shall happen on the machine."""

    run_id: str
    command: Sequence[str]
    folder: Path
    left_out: Sequence[str]
    environment: Mapping[str, str]
    # The names of variables whose values only the machine gets.
    inherited: Sequence[str]
    out: Sequence[str]


class Run:
    """One command on one machine, over as many connections as it takes."""

    def __init__(
        self, cli: CliContext, output: Output, herd: Gpuherd, instance: Instance, order: RunOrder
    ) -> None:
        self._cli = cli
        self._output = output
        self._herd = herd
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
                with connected(ssh_target(self._instance), self._instance.id, self._cli.clock) as connection:
                    lost_at = None
                    return self._go_on(connection)
            except SshLost as lost:
                now = self._cli.clock.monotonic()
                lost_at = now if lost_at is None else lost_at
                self._look_for_machine(lost, now - lost_at)

    def _go_on(self, connection: SshConnection) -> int:
        """Do what is not done yet: each step is done once, or can be done again."""
        job = self._job = self._job or RemoteJob(connection, self._order.run_id)
        job.connection = connection
        if not self._sent:
            with transfer(self._output, self._cli.clock, "sending the folder") as shown:
                self._send(job, shown)
            self._output.note(f"sent {size_text(shown.count)}; running", "dim")
            self._sent = True
        if self._code is None:
            job.start(self._order.command, self._order.environment, self._order.inherited)
            self._code = self._follow(job)
        for path in self._order.out:
            if path not in self._fetched:
                with transfer(self._output, self._cli.clock, f"bringing back {path}") as shown:
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
        """Ask once; a second Ctrl-C is an answer."""
        try:
            return not typer.confirm("\nEnd it and give the machine back?", default=True, err=True)
        except typer.Abort:
            return False

    def _fetch(self, job: RemoteJob, path: str, shown: Transfer) -> None:
        try:
            job.fetch(path, Path(), shown.tell)
        except CommandError as refusal:
            if self._code:
                # A command that failed need not have made anything; its exit code says more.
                self._output.note(f"{safe(path)} cannot be brought back: {safe(refusal)}", "yellow")
                return
            raise
        self._output.note(f"brought back {safe(path)} ({size_text(shown.count)})", "dim")

    def _look_for_machine(self, lost: SshLost, for_s: float) -> None:
        """Return if another try makes sense, with what is known of the machine now."""
        with suppress(ConnectionFailed):
            self._instance = self._herd.instances.get(self._instance.id)
        if outcome_of(self._instance, "ready") is False:
            raise CommandError(
                ExitCode.FAILED,
                "MACHINE_LOST",
                f"{self._instance.name} is {self._instance.status}: {self._instance.status_reason or lost}",
                suggestion=command("why", self._instance),
            )
        if for_s > RECONNECT_LIMIT_S:
            raise CommandError(
                ExitCode.FAILED, "CONNECTION_LOST", f"the connection does not come back: {lost}"
            )
        self._output.note(f"the connection is lost ({safe(lost)}); trying again", "yellow")
        self._cli.clock.pause(RECONNECT_INTERVAL_S)


def _end_politely(job: RemoteJob) -> None:
    with suppress(SshLost, CommandError):
        job.signal("TERM")
