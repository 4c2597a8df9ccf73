"""The commands that change an instance's goal: start, stop, rm."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated

import typer

from gpuherd.clock import Clock
from gpuherd.domain.instance.operation import OperationPhase, OperationState
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.stages import estimate
from gpuherd.entrypoints.cli.runtime.confirm import confirm_or_exit
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Reply
from gpuherd.entrypoints.cli.runtime.errors import NotAcknowledged, command, wait_command
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.follow import Watcher, instance_path
from gpuherd.entrypoints.cli.runtime.options import (
    TIMEOUT_S,
    HealthPath,
    HealthPort,
    HealthTimeout,
    NameOrId,
    Timeout,
    WebhookUrl,
    health_check_of,
)
from gpuherd.entrypoints.cli.runtime.problems import CannotConnect, not_ours
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of, run
from gpuherd.entrypoints.cli.runtime.wait import InstanceWaiter


async def ordered(found: Details, order: Awaitable[Reply], clock: Clock) -> Details:
    """Return the server's answer to `order` about what was found, with the operation that it began."""
    try:
        reply = await order
    except CannotConnect as trouble:
        if not trouble.sent:
            raise
        advice = f"see how it is with: {command('show', found)}; to say it again does no harm"
        raise NotAcknowledged(advice, trouble) from trouble
    operation_id = Details(reply.body).text("operationId")
    if not operation_id:
        raise not_ours(reply.status)
    requested = {"phase": OperationPhase.REQUESTED.value, "at": clock.now().isoformat()}
    operation = {"operationId": operation_id, "status": OperationState.RUNNING, "phases": [requested]}
    return Details(reply.body, operation)


def merged_with_answer(found: Details, answer: Details) -> Details:
    """Return what was found as it is after the order: the answer to that is short."""
    return replace(answer, raw={**found.raw, **answer.raw, "statusReason": answer.raw.get("message")})


def print_ordered(output: Output, details: Details, what: WaitFor, clock: Clock) -> None:
    """Tell about an order that nobody waits for."""
    if not output.for_people:
        output.answer(details.raw, details.id)
        return
    left = estimate(details, what, clock)
    words = f"{safe(details.name)} is {safe(details.status)}" + (f", {left}" if left else "")
    output.out.print(words, soft_wrap=True)
    output.note(f"follow it with: {wait_command(details, what)}")


WaitOption = Annotated[bool, typer.Option("--wait", help="Follow it to the end. Ctrl-C detaches.")]

# Ask the server for the change, about the instance with this path.
Order = Callable[[ApiClient, str], Awaitable[Reply]]


def start(
    context: typer.Context,
    name_or_id: NameOrId,
    wait: WaitOption = False,
    health_port: HealthPort = None,
    health_path: HealthPath = None,
    health_timeout: HealthTimeout = None,
    webhook_url: WebhookUrl = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Start an instance that has exited. A health check that is given replaces the one it has."""
    health_check = health_check_of(health_port, health_path, health_timeout)
    said = {"healthCheck": health_check, "webhookUrl": webhook_url}
    body = {key: value for key, value in said.items() if value is not None}
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    _carry_out(
        cli,
        output,
        lambda api: find(api, name_or_id),
        lambda api, path: api.post(f"{path}/start", body),
        InstanceWaiter(output, cli.clock, timeout, ordered=True, unanswered=_unanswered(name_or_id)),
        wait=wait,
    )


def stop(
    context: typer.Context,
    name_or_id: NameOrId,
    wait: WaitOption = False,
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Stop an instance. Its data stays, its GPU does not."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    unanswered = _unanswered(name_or_id)
    _carry_out(
        cli,
        output,
        lambda api: find(api, name_or_id),
        lambda api, path: api.post(f"{path}/stop", {}),
        InstanceWaiter(output, cli.clock, timeout, what=WaitFor.EXITED, ordered=True, unanswered=unanswered),
        wait=wait,
    )


def rm(
    context: typer.Context,
    name_or_id: NameOrId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: WaitOption = False,
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Delete an instance with its machine and its data, whatever state it is in."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    if not yes and not _is_interactive():
        raise typer.BadParameter("nobody can be asked here; say --yes if it shall go", param_hint="--yes")
    found: list[Details] = []

    async def look(api: ApiClient) -> None:
        found.append(await find(api, name_or_id))

    async def known(_: ApiClient) -> Details:
        return found[0]

    run(cli, output, look)
    if not yes:
        _ask(cli, output, found[0])
    unanswered = _unanswered(name_or_id)
    _carry_out(
        cli,
        output,
        # By the id of what was shown: meanwhile the name may have become another one's.
        known,
        lambda api, path: api.delete(path),
        InstanceWaiter(output, cli.clock, timeout, what=WaitFor.DELETED, ordered=True, unanswered=unanswered),
        wait=wait,
    )


def _carry_out(
    cli: CliContext,
    output: Output,
    seek: Callable[[ApiClient], Awaitable[Details]],
    order: Order,
    waiter: InstanceWaiter,
    *,
    wait: bool,
) -> None:
    """Find the instance, give the order, and follow it or say how to."""

    async def work(api: ApiClient) -> None:
        async def begin(_: Watcher) -> Details:
            found = await seek(api)
            answer = await ordered(found, order(api, instance_path(found.id)), cli.clock)
            return merged_with_answer(found, answer) if wait else answer

        if wait:
            await waiter.wait_to_end(api, begin)
        else:
            print_ordered(output, await waiter.begin_only(begin), waiter.what, cli.clock)

    run(cli, output, work, interrupt_message=waiter.interrupt_message)


def _is_interactive() -> bool:
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _ask(cli: CliContext, output: Output, details: Details) -> None:
    """Show what will be lost and what it costs, and go on only with a yes."""
    created = when(details, "createdAt", cli.clock.now())
    facts = [details.status, *details.facts, f"created {created}" if created else ""]
    output.note(f"{safe(details.name)}  {safe(details.id)}", "bold")
    output.note(" · ".join(safe(fact) for fact in facts if fact))
    confirm_or_exit(output, "Delete it with all its data?", "nothing was deleted")


def _unanswered(name_or_id: str) -> str:
    return (
        "interrupted before the server answered; it may have been accepted: "
        f"look with gpuherd show {safe(name_or_id)}"
    )
