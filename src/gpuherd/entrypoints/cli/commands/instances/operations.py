"""The commands that change an instance's goal: start, restart, stop, rm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import typer

from gpuherd.client.client_connection import Clock
from gpuherd.client.client_errors import ConnectionFailed
from gpuherd.client.follow_instance import Until
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.operation_models import Accepted, Operation
from gpuherd.entrypoints.cli.render.instances import facts_of, when
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.progress import Watcher
from gpuherd.entrypoints.cli.render.stages import SeenInstance, estimate
from gpuherd.entrypoints.cli.runtime.confirm import confirm_or_exit, require_terminal
from gpuherd.entrypoints.cli.runtime.errors import NotAcknowledged, command, wait_command
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.options import (
    TIMEOUT_S,
    HealthPath,
    HealthPort,
    HealthTimeout,
    NameOrId,
    Timeout,
    WaitForCapacity,
    WebhookUrl,
    health_check_of,
)
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of, run
from gpuherd.entrypoints.cli.runtime.wait import InstanceWaiter

WaitOption = Annotated[bool, typer.Option("--wait", help="Follow it to the end. Ctrl-C detaches.")]

# Finds the instance, and asks the server for the change.
Seek = Callable[[Gpuherd], Instance]
Order = Callable[[Gpuherd, Instance], Accepted]
Verb = Literal["start", "restart", "stop", "delete"]
UNTIL: dict[Verb, Until] = {"start": "ready", "restart": "ready", "stop": "exited", "delete": "deleted"}


def start(
    context: typer.Context,
    name_or_id: NameOrId,
    wait: WaitOption = False,
    health_port: HealthPort = None,
    health_path: HealthPath = None,
    health_timeout: HealthTimeout = None,
    webhook_url: WebhookUrl = None,
    wait_for_capacity: WaitForCapacity = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Start an instance that has exited. A health check that is given replaces the one it has."""
    check = health_check_of(health_port, health_path, health_timeout)
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    _carry_out(
        cli,
        output,
        "start",
        lambda herd: find(herd, name_or_id),
        lambda herd, it: herd.instances.start(
            it, health_check=check, webhook_url=webhook_url, wait_for_capacity_s=wait_for_capacity
        ),
        _waiter(cli, output, timeout, "start", name_or_id),
        wait=wait,
    )


def restart(
    context: typer.Context,
    name_or_id: NameOrId,
    wait: WaitOption = False,
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Restart an instance that runs. Its machine and data stay, its ports may change."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    _carry_out(
        cli,
        output,
        "restart",
        lambda herd: find(herd, name_or_id),
        lambda herd, it: herd.instances.restart(it),
        _waiter(cli, output, timeout, "restart", name_or_id),
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
    _carry_out(
        cli,
        output,
        "stop",
        lambda herd: find(herd, name_or_id),
        lambda herd, it: herd.instances.stop(it),
        _waiter(cli, output, timeout, "stop", name_or_id),
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
    if not yes:
        require_terminal()
    found = run(cli, output, lambda herd: find(herd, name_or_id))
    if not yes:
        _ask(cli, output, found)
    _carry_out(
        cli,
        output,
        "delete",
        # By the id of what was shown: meanwhile the name may have become another one's.
        lambda _: found,
        lambda herd, it: herd.instances.delete(it),
        _waiter(cli, output, timeout, "delete", name_or_id),
        wait=wait,
    )


def _waiter(cli: CliContext, output: Output, timeout_s: float, verb: Verb, name_or_id: str) -> InstanceWaiter:
    unanswered = (
        "interrupted before the server answered; it may have been accepted: "
        f"look with gpuherd show {safe(name_or_id)}"
    )
    return InstanceWaiter(
        output, cli.clock, timeout_s, until=UNTIL[verb], ordered=True, unanswered=unanswered
    )


def _carry_out(
    cli: CliContext,
    output: Output,
    verb: Verb,
    seek: Seek,
    order: Order,
    waiter: InstanceWaiter,
    *,
    wait: bool,
) -> None:
    """Find the instance, give the order, and follow it or say how to."""

    def work(herd: Gpuherd) -> None:
        accepted: list[Accepted] = []

        def begin(_: Watcher) -> SeenInstance:
            found = seek(herd)
            accepted.append(_ordered(found, lambda: order(herd, found)))
            return _after(found, accepted[0], verb, cli.clock)

        if wait:
            waiter.wait_to_end(herd, begin)
        else:
            seen = waiter.begin_only(begin)
            _print_ordered(output, accepted[0], seen, waiter.until, cli.clock)

    run(cli, output, work, interrupt_message=waiter.interrupt_message)


def _ordered(found: Instance, order: Callable[[], Accepted]) -> Accepted:
    """Return the server's answer to `order` about what was found."""
    try:
        return order()
    except ConnectionFailed as trouble:
        if not trouble.sent:
            raise
        advice = f"see how it is with: {command('show', found)}; to say it again does no harm"
        raise NotAcknowledged(advice, trouble) from trouble


def _after(found: Instance, accepted: Accepted, verb: Verb, clock: Clock) -> SeenInstance:
    """Return what was found as it is after the order, with the operation that has begun."""
    instance = Instance.of({**found.raw, **accepted.raw, "statusReason": accepted.message})
    operation = {
        "operationId": accepted.operation_id,
        "instanceId": found.id,
        "type": verb,
        "status": "running",
        "phases": [{"phase": "requested", "at": clock.now().isoformat()}],
    }
    return SeenInstance(instance, Operation.of(operation))


def _print_ordered(
    output: Output, accepted: Accepted, seen: SeenInstance, until: Until, clock: Clock
) -> None:
    """Tell about an order that nobody waits for."""
    if not output.for_people:
        output.answer(accepted.raw, seen.instance.id)
        return
    left = estimate(seen, until, clock) if accepted.estimated_ready_time else ""
    words = f"{safe(seen.instance.name)} is {safe(seen.instance.status)}" + (f", {left}" if left else "")
    output.out.print(words, soft_wrap=True)
    output.note(f"follow it with: {wait_command(seen.instance, until)}")


def _ask(cli: CliContext, output: Output, it: Instance) -> None:
    """Show what will be lost and what it costs, and go on only with a yes."""
    created = when(it.created_at, cli.clock.now())
    rented = facts_of(it, it.gpu_num, it.billing_mode)
    facts = [it.status, *rented, f"created {created}" if created else ""]
    output.note(f"{safe(it.name)}  {safe(it.id)}", "bold")
    output.note(" · ".join(safe(fact) for fact in facts if fact))
    confirm_or_exit(output, "Delete it with all its data?", "nothing was deleted")
