"""The command plan, and the question that `up` asks before it spends money."""

from __future__ import annotations

import sys

import typer

from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, safe
from gpuherd.entrypoints.cli.render.plans import entries, full_plan, short_plan
from gpuherd.entrypoints.cli.runtime.confirm import confirm_or_exit
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.exit_codes import NO_CAPACITY_CODES, of_problem
from gpuherd.entrypoints.cli.runtime.launch import Launch
from gpuherd.entrypoints.cli.runtime.options import (
    BILLING_MODES,
    BillingOption,
    Disk,
    Gpu,
    GpuNum,
    HealthPath,
    HealthPort,
    HealthTimeout,
    Labels,
    MaxPrice,
    Name,
    OnFailureOption,
    OptimizeOption,
    Regions,
    TemplateId,
    WaitForCapacity,
    WebhookUrl,
    health_check_of,
    labels_of,
)
from gpuherd.entrypoints.cli.runtime.problems import ApiProblem
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of, run

PATH = "/api/plans"
# The server waits for the cloud's catalogue, unlike in a create.
PLAN_TIMEOUT_S = 60.0
# What a server says that is too old to have plans.
NO_PLANS = frozenset({"NOT_FOUND", "METHOD_NOT_ALLOWED"})
# HTTP's word for what cannot be done now; the code says more.
CONFLICT_STATUS = 409


def plan(
    context: typer.Context,
    gpu: Gpu,
    template: TemplateId,
    name: Name = None,
    gpu_num: GpuNum = None,
    disk: Disk = None,
    region: Regions = None,
    max_price: MaxPrice = None,
    billing: BillingOption = None,
    optimize: OptimizeOption = None,
    label: Labels = None,
    webhook_url: WebhookUrl = None,
    health_port: HealthPort = None,
    health_path: HealthPath = None,
    health_timeout: HealthTimeout = None,
    on_failure: OnFailureOption = None,
    wait_for_capacity: WaitForCapacity = None,
    as_json: JsonOption = False,
) -> None:
    """Show what `up` would rent, in which order and for how much. Nothing is rented."""
    output = Output.for_command(as_json=as_json)
    wish = Launch(
        name=name,
        product_name=gpu,
        template_id=template,
        gpu_num=gpu_num,
        disk_gb=disk,
        regions=region or (),
        hourly_usd_max=max_price,
        billing_mode=BILLING_MODES[billing] if billing else None,
        optimize=optimize,
        labels=labels_of(label),
        webhook_url=webhook_url,
        on_failure=on_failure,
        health_check=health_check_of(health_port, health_path, health_timeout),
        capacity_wait_s=wait_for_capacity,
    )
    found: list[Details] = []

    async def work(api: ApiClient) -> None:
        found.append(await _planned(api, wish))

    run(cli_context_of(context), output, work)
    (planned,) = found
    if output.for_people:
        output.show(*full_plan(planned, output.out.width))
    else:
        output.json(planned.raw)
    if (why_not := _obstacle(planned)) is not None:
        raise typer.Exit(int(of_problem(why_not.code, why_not.status)))


def is_interactive(output: Output) -> bool:
    """Tell whether a question would be read and answered by a person."""
    return output.for_people and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def confirm_plan(cli: CliContext, output: Output, wish: Launch) -> None:
    """Show what would be rented, and return only if that is wanted; what cannot be is refused at once."""
    found: list[Details] = []

    async def look(api: ApiClient) -> None:
        try:
            planned = await _planned(api, wish)
        except ApiProblem as problem:
            if not (problem.temporary or problem.code in NO_PLANS):
                raise
            # The server may accept it all the same, and wait for the cloud.
            output.note(f"no plan can be made now: {safe(problem.detail)}", "yellow")
            return
        why_not = _obstacle(planned)
        if why_not is not None and not _only_waits(planned):
            raise why_not
        found.append(planned)

    run(cli, output, look)
    for planned in found:
        output.show(*short_plan(planned))
    confirm_or_exit(output, _question(found), "nothing was rented")


def _question(found: list[Details]) -> str:
    if not found:
        return "Order it all the same?"
    return "Rent it?" if found[0].raw.get("fits") is True else "Order it, and wait for an offer?"


async def _planned(api: ApiClient, wish: Launch) -> Details:
    return Details((await api.post(PATH, wish.body(), timeout_s=PLAN_TIMEOUT_S)).body)


def _obstacle(planned: Details) -> ApiProblem | None:
    """Return what a create would be refused with, or None if it fits."""
    reasons = entries(planned, "reasons")
    if planned.raw.get("fits") is True or not reasons:
        return None
    first = reasons[0]
    details = first.mapping("details")
    return ApiProblem(
        first.text("code"),
        "it cannot be rented",
        first.text("message"),
        status=CONFLICT_STATUS,
        details=details,
    )


def _only_waits(planned: Details) -> bool:
    """Tell whether a create would be accepted, and wait for an offer."""
    codes = {reason.text("code") for reason in entries(planned, "reasons")}
    return bool(planned.mapping("waitForCapacity")) and codes <= NO_CAPACITY_CODES
