"""The commands about instances: up, ls, show, wait."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.entrypoints.cli.commands.plan import confirm_plan, is_interactive
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.instances import instance_page, instance_table
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.follow import Watcher, attended
from gpuherd.entrypoints.cli.runtime.launch import Launch, launch, new_key, new_name
from gpuherd.entrypoints.cli.runtime.listing import pages, tell
from gpuherd.entrypoints.cli.runtime.options import (
    BILLING_MODES,
    TIMEOUT_S,
    BillingOption,
    Disk,
    Gpu,
    GpuNum,
    HealthPath,
    HealthPort,
    HealthTimeout,
    IdempotencyKey,
    Labels,
    MaxPrice,
    Name,
    NameOrId,
    OnFailureOption,
    OptimizeOption,
    Regions,
    TemplateId,
    Timeout,
    WaitForCapacity,
    WebhookUrl,
    health_check_of,
    labels_of,
)
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.cli.runtime.wait import InstanceWaiter, print_accepted


def up(
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
    wish = Launch(
        name=name if name is not None else new_name(gpu, cli.chance),
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
    if not yes and is_interactive(output):
        confirm_plan(cli, output, wish)
    key = idempotency_key or new_key(cli.chance)
    waiter = InstanceWaiter(output, cli.clock, timeout, unanswered=_unanswered(key))

    async def work(api: ApiClient) -> None:
        async def begin(watcher: Watcher) -> Details:
            return await launch(
                api, wish, key=key, clock=cli.clock, deadline=waiter.deadline, watcher=watcher
            )

        if no_wait:
            print_accepted(output, await waiter.begin_only(begin), cli.clock)
        else:
            await waiter.wait_to_end(api, begin)

    run(cli, output, work, interrupt_message=waiter.interrupt_message)


def ls(
    context: typer.Context,
    status: Annotated[Status | None, typer.Option(help="Only those that are so.")] = None,
    label: Labels = None,
    name: Annotated[str | None, typer.Option(help="Only those that are called so.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most (a page, with --all).")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All pages.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List instances."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)
    if label and len(label) > 1:
        # The API would silently use one of them.
        raise typer.BadParameter("a list can be filtered by one label only", param_hint="--label")
    query = [("limit", str(limit)), *(("label", f"{key}={value}") for key, value in labels_of(label).items())]
    query += [(key, value) for key, value in (("status", status), ("name", name)) if value is not None]
    filtered = len(query) > 1
    nothing = "no instance is like that" if filtered else "no instances yet; rent one with: gpuherd up"

    async def work(api: ApiClient) -> None:
        listing = await pages(api, "/api/instances", "instances", query, everything=everything)
        tell(output, listing, lambda rows: instance_table(rows, cli.clock.now(), output.out.width), nothing)

    run(cli, output, work)


def show(
    context: typer.Context, name_or_id: NameOrId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Show everything about one instance."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        details = await find(api, name_or_id)
        if output.for_people:
            output.show(instance_page(details, cli.clock.now()))
        else:
            output.answer(details.raw, details.id)

    run(cli, output, work)


def wait(
    context: typer.Context,
    name_or_id: NameOrId,
    what: Annotated[
        WaitFor, typer.Option("--for", help="Until it can be used, has stopped, or is gone.")
    ] = WaitFor.READY,
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Follow an instance until it can be used, or has stopped, or is gone. Ctrl-C detaches."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)
    waiter = InstanceWaiter(output, cli.clock, timeout, what=what)

    async def work(api: ApiClient) -> None:
        async def begin(_: Watcher) -> Details:
            return await attended(api, await find(api, name_or_id), what)

        await waiter.wait_to_end(api, begin)

    run(cli, output, work, interrupt_message=waiter.interrupt_message)


def _unanswered(key: str) -> str:
    return (
        "interrupted before the server answered; it may have been accepted: look with gpuherd ls, "
        f"or repeat the command with --idempotency-key {safe(key)}"
    )
