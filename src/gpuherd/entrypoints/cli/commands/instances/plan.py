"""The command plan, and the question that `up` asks before it spends money."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from gpuherd.client.client_errors import ApiError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.client.wish import Wish
from gpuherd.contract.plan_models import Plan
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, safe
from gpuherd.entrypoints.cli.render.plans import full_plan, short_plan
from gpuherd.entrypoints.cli.runtime.confirm import confirm_or_exit
from gpuherd.entrypoints.cli.runtime.errors import CommandError, ErrorReport, detail_of, problem_report
from gpuherd.entrypoints.cli.runtime.exit_codes import NO_CAPACITY_CODES
from gpuherd.entrypoints.cli.runtime.options import (
    BillingOption,
    Disk,
    FallbackAfter,
    Gpu,
    GpuNum,
    HandoverOption,
    HealthPath,
    HealthPort,
    HealthTimeout,
    HoldOption,
    IdleOption,
    Labels,
    LeaseOption,
    MaxPrice,
    MaxReplacementsOption,
    Name,
    OnFailureOption,
    OnReclaimOption,
    OptimizeOption,
    Regions,
    SilenceOption,
    TemplateId,
    ThenOption,
    WaitForCapacity,
    WebhookUrl,
    health_check_of,
    product_of,
    template_of,
    wish_of,
)
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of, run
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

# What a server says that is too old to have plans.
NO_PLANS = frozenset({"NOT_FOUND", "METHOD_NOT_ALLOWED"})
# HTTP's word for what cannot be done now; the code says more.
CONFLICT_STATUS = 409


def plan(
    context: typer.Context,
    gpu: Gpu,
    template: TemplateId = None,
    image: Image = None,
    command: ContainerCommand = None,
    env: Env = None,
    secret: SecretEnv = None,
    port: Port = None,
    min_cuda: MinCuda = None,
    registry_auth: RegistryAuth = None,
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
    hold: HoldOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what `up` would rent, in which order and for how much. Nothing is rented."""
    output = Output.for_command(as_json=as_json)
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
    product, template = product_of(gpu), template_of(context, template, image)
    planned = run(
        cli_context_of(context),
        output,
        lambda herd: herd.plan(product, template, name=name, hold=hold, **wish),
    )
    if output.for_people:
        output.show(*full_plan(planned, output.out.width))
    else:
        output.json(planned.raw)
    if (why_not := _obstacle(planned)) is not None:
        raise typer.Exit(int(why_not.exit_code))


def confirm_plan(
    cli: CliContext, output: Output, name: str, product: str | Sequence[str], template: str | None, wish: Wish
) -> None:
    """Show what would be rented, and return only if that is wanted; what cannot be is refused at once."""

    def look(herd: Gpuherd) -> Plan | None:
        try:
            planned = herd.plan(product, template, name=name, **wish)
        except ApiError as problem:
            if not (problem.is_temporary or problem.code in NO_PLANS):
                raise
            # The server may accept it all the same, and wait for the cloud.
            output.note(f"no plan can be made now: {safe(detail_of(problem))}", "yellow")
            return None
        why_not = _obstacle(planned)
        if why_not is not None and not _only_waits(planned):
            raise CommandError.of(why_not)
        return planned

    planned = run(cli, output, look)
    if planned is not None:
        output.show(*short_plan(planned))
    confirm_or_exit(output, _question(planned), "nothing was rented")


def _question(planned: Plan | None) -> str:
    if planned is None:
        return "Order it all the same?"
    return "Rent it?" if planned.fits else "Order it, and wait for an offer?"


def _obstacle(planned: Plan) -> ErrorReport | None:
    """Return what a create would be refused with, or None if it fits."""
    if planned.fits or not planned.reasons:
        return None
    first = planned.reasons[0]
    return problem_report(first.code, "it cannot be rented", first.message, CONFLICT_STATUS, first.details)


def _only_waits(planned: Plan) -> bool:
    """Return True if a create would be accepted, and wait for an offer."""
    codes = {reason.code for reason in planned.reasons}
    waits = planned.wait_for_capacity is not None or bool(planned.fallback_after_seconds)
    return waits and codes <= NO_CAPACITY_CODES
