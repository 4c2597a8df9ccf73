"""The command that rents: up."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated

import typer

from gpuherd.client.client_connection import Clock
from gpuherd.client.client_errors import ApiError, ConnectionFailed
from gpuherd.client.sync_client import Gpuherd
from gpuherd.client.wish import Wish
from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.commands.instances.plan import confirm_plan
from gpuherd.entrypoints.cli.render.amounts import usd
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.progress import Watcher
from gpuherd.entrypoints.cli.render.stages import SeenInstance
from gpuherd.entrypoints.cli.runtime.confirm import is_interactive
from gpuherd.entrypoints.cli.runtime.errors import NotAcknowledged, command, detail_of
from gpuherd.entrypoints.cli.runtime.options import (
    TIMEOUT_S,
    BillingOption,
    Disk,
    FallbackAfter,
    GpuNum,
    HandoverOption,
    HealthPath,
    HealthPort,
    HealthTimeout,
    HeldPlanOption,
    IdempotencyKey,
    IdleOption,
    Labels,
    LeaseOption,
    MaxPrice,
    MaxReplacementsOption,
    Name,
    OnFailureOption,
    OnReclaimOption,
    OptimizeOption,
    OptionalGpu,
    Regions,
    SilenceOption,
    TemplateId,
    ThenOption,
    Timeout,
    WaitForCapacity,
    WebhookUrl,
    health_check_of,
    product_of,
    required,
    template_of,
    wish_of,
)
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.cli.runtime.wait import InstanceWaiter
from gpuherd.entrypoints.cli.runtime.workload_options import (
    ContainerCommand,
    Env,
    Image,
    MinCuda,
    Port,
    RegistryAuth,
    SecretEnv,
    VolumeOption,
)
from gpuherd.entrypoints.durations import remaining_time

# A create without an answer is repeated once a second.
RETRY_INTERVAL_S = 1.0
HOURS_A_DAY = 24


def up(
    context: typer.Context,
    gpu: OptionalGpu = None,
    template: TemplateId = None,
    image: Image = None,
    command: ContainerCommand = None,
    env: Env = None,
    secret: SecretEnv = None,
    port: Port = None,
    min_cuda: MinCuda = None,
    registry_auth: RegistryAuth = None,
    plan: HeldPlanOption = None,
    volume: VolumeOption = None,
    name: Name = None,
    gpu_num: GpuNum = None,
    disk: Disk = None,
    region: Regions = None,
    max_price: MaxPrice = None,
    billing: BillingOption = None,
    fallback_after: FallbackAfter = None,
    optimize: OptimizeOption = None,
    label: Labels = None,
    webhook_url: WebhookUrl = None,
    health_port: HealthPort = None,
    health_path: HealthPath = None,
    health_timeout: HealthTimeout = None,
    on_failure: OnFailureOption = None,
    wait_for_capacity: WaitForCapacity = None,
    lease: LeaseOption = None,
    idle: IdleOption = None,
    silence: SilenceOption = None,
    then: ThenOption = None,
    on_reclaim: OnReclaimOption = None,
    max_replacements: MaxReplacementsOption = None,
    handover: HandoverOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show the plan, do not ask.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return as soon as it is accepted.")] = False,
    timeout: Timeout = TIMEOUT_S,
    idempotency_key: IdempotencyKey = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rent an instance and follow it until it can be used. Ctrl-C detaches; the work goes on."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)
    wish = wish_of(
        gpu_num=gpu_num,
        disk=disk,
        region=region,
        max_price=max_price,
        billing=billing,
        fallback_after=fallback_after,
        optimize=optimize,
        label=label,
        webhook_url=webhook_url,
        health_check=health_check_of(health_port, health_path, health_timeout),
        on_failure=on_failure,
        wait_for_capacity=wait_for_capacity,
        lease=lease,
        idle=idle,
        silence=silence,
        then=then,
        on_reclaim=on_reclaim,
        max_replacements=max_replacements,
        handover=handover,
        image=image,
        command=command,
        env=env,
        secret=secret,
        port=port,
        min_cuda=min_cuda,
        registry_auth=registry_auth,
        volume=volume,
    )
    create: RepeatableCreate
    if plan is not None:
        if gpu or template or name or any(it not in (None, {}, []) for it in wish.values()):
            raise typer.BadParameter("what is rented was said when it was planned", param_hint="--plan")
        key = idempotency_key or plan
        create = PlannedCreate(key, plan)
    else:
        gpu, template = required(context, "gpu", gpu), template_of(context, template, image)
        product, name = product_of(gpu), name if name is not None else new_name(gpu[0], cli.rng)
        if not yes and output.for_people and is_interactive():
            confirm_plan(cli, output, name, product, template, wish)
        key = idempotency_key or f"cli-{cli.rng.getrandbits(128):032x}"
        create = Create(key, name, product, template, wish)
    waiter = InstanceWaiter(output, cli.clock, timeout, unanswered=_unanswered(key))

    def work(herd: Gpuherd) -> None:
        def begin(watcher: Watcher) -> SeenInstance:
            return SeenInstance(create.send(herd, cli.clock, waiter.deadline, watcher))

        if no_wait:
            _print_accepted(output, waiter.begin_only(begin).instance, cli.clock)
        else:
            _tell_endless(output, waiter.wait_to_end(herd, begin))

    run(cli, output, work, interrupt_message=waiter.interrupt_message)


@dataclass(frozen=True)
class RepeatableCreate(ABC):
    """What is asked for once, however often the network makes us say it."""

    key: str

    def send(self, herd: Gpuherd, clock: Clock, deadline: float, watcher: Watcher) -> Instance:
        """Rent; say it again under the same key when the answer was lost: that never rents twice."""
        lost: ConnectionFailed | None = None
        while True:
            try:
                return self._send_once(herd)
            except ConnectionFailed as trouble:
                # Never sent, and nothing sent before: surely nothing happened, and waiting would only annoy.
                if not (trouble.sent or lost):
                    raise
                lost = trouble
            except ApiError as problem:
                # "Not now" to the second question says nothing about the first one.
                if lost is None or not problem.is_temporary:
                    raise
            if clock.monotonic() + RETRY_INTERVAL_S >= deadline:
                advice = f"repeat the same command with --idempotency-key {self.key}: it never rents twice"
                raise NotAcknowledged(advice, lost) from lost
            watcher.unreachable(detail_of(lost))
            clock.pause(RETRY_INTERVAL_S)

    @abstractmethod
    def _send_once(self, herd: Gpuherd) -> Instance: ...


@dataclass(frozen=True)
class PlannedCreate(RepeatableCreate):
    """A plan that is held."""

    plan_id: str

    def _send_once(self, herd: Gpuherd) -> Instance:
        return herd.instances.rent_plan(self.plan_id, idempotency_key=self.key)


@dataclass(frozen=True)
class Create(RepeatableCreate):
    """What was said on the command line."""

    name: str
    product_name: str | Sequence[str]
    template_id: str | None
    wish: Wish

    def _send_once(self, herd: Gpuherd) -> Instance:
        made = herd.instances.create(
            self.name, self.product_name, self.template_id, idempotency_key=self.key, **self.wish
        )
        # The answer is short; what it leaves out, we know from having asked.
        asked = {
            "name": self.name,
            "productName": self.product_name if isinstance(self.product_name, str) else self.product_name[0],
            "gpuNum": self.wish.get("gpu_num"),
            "billingMode": self.wish.get("billing_mode"),
        }
        return Instance.of({**{key: it for key, it in asked.items() if it is not None}, **made.raw})


def new_name(product_name: str, rng: Random) -> str:
    """Return a name for somebody who did not care to give one: `rtx-4090-3f2a`."""
    slug = re.sub(r"[^a-z0-9]+", "-", product_name.casefold()).strip("-")[:40].strip("-")
    return f"{slug or 'gpu'}-{rng.getrandbits(16):04x}"


def _print_accepted(output: Output, instance: Instance, clock: Clock) -> None:
    """Tell about a create that nobody waits for."""
    if not output.for_people:
        output.answer(instance.raw, instance.id)
        return
    estimate = instance.estimated_ready_time
    left = f", {remaining_time(estimate, clock.now())}" if estimate else ""
    output.out.print(f"{safe(instance.name)} is accepted as {safe(instance.id)}{left}", soft_wrap=True)
    output.note(f"follow it with: {command('wait', instance)}")


def _tell_endless(output: Output, instance: Instance) -> None:
    """Say what a machine costs that nobody has agreed on an end for."""
    hourly, has_end = instance.hourly_price, instance.lease or instance.auto_stop
    if not output.for_people or has_end or hourly is None or not instance.usable:
        return
    output.note(f"it has no end, and costs {usd(hourly * HOURS_A_DAY)} a day until somebody stops it")
    output.note(f"set one with: {command('lease', instance)} +8h")


def _unanswered(key: str) -> str:
    return (
        "interrupted before the server answered; it may have been accepted: look with gpuherd ls, "
        f"or repeat the command with --idempotency-key {safe(key)}"
    )
