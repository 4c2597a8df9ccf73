"""The commands that change where an instance shall go: start, stop, rm."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from gpuherd.domain.waiting import WaitFor
from gpuherd.entrypoints.cli.connection import ApiClient, Reply
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.follow import Watcher, instance_path
from gpuherd.entrypoints.cli.instance_views import when
from gpuherd.entrypoints.cli.lookup import find
from gpuherd.entrypoints.cli.options import (
    TIMEOUT_S,
    HealthPath,
    HealthPort,
    HealthTimeout,
    NameOrId,
    Timeout,
    WebhookUrl,
    health_check_of,
)
from gpuherd.entrypoints.cli.order import known_so_far, ordered, say_ordered
from gpuherd.entrypoints.cli.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.pursuit import Pursuit
from gpuherd.entrypoints.cli.question import go_on_only_with_a_yes
from gpuherd.entrypoints.cli.session import Surroundings, run, surroundings_of

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
    world, output = surroundings_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    _carry_out(
        world,
        output,
        lambda api: find(api, name_or_id),
        lambda api, path: api.post(f"{path}/start", body),
        Pursuit(output, world.clock, timeout, ordered=True, unanswered=_unanswered(name_or_id)),
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
    world, output = surroundings_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    unanswered = _unanswered(name_or_id)
    _carry_out(
        world,
        output,
        lambda api: find(api, name_or_id),
        lambda api, path: api.post(f"{path}/stop", {}),
        Pursuit(output, world.clock, timeout, what=WaitFor.EXITED, ordered=True, unanswered=unanswered),
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
    world, output = surroundings_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    if not yes and not _somebody_is_there():
        raise typer.BadParameter("nobody can be asked here; say --yes if it shall go", param_hint="--yes")
    found: list[Details] = []

    async def look(api: ApiClient) -> None:
        found.append(await find(api, name_or_id))

    async def known(_: ApiClient) -> Details:
        return found[0]

    run(world, output, look)
    if not yes:
        _ask(world, output, found[0])
    unanswered = _unanswered(name_or_id)
    _carry_out(
        world,
        output,
        # By the id of what was shown: meanwhile the name may have become another one's.
        known,
        lambda api, path: api.delete(path),
        Pursuit(output, world.clock, timeout, what=WaitFor.DELETED, ordered=True, unanswered=unanswered),
        wait=wait,
    )


def _carry_out(
    world: Surroundings,
    output: Output,
    seek: Callable[[ApiClient], Awaitable[Details]],
    order: Order,
    pursuit: Pursuit,
    *,
    wait: bool,
) -> None:
    """Find the instance, give the order, and follow it or say how to."""

    async def work(api: ApiClient) -> None:
        async def begin(_: Watcher) -> Details:
            found = await seek(api)
            answer = await ordered(found, order(api, instance_path(found.id)), world.clock)
            return known_so_far(found, answer) if wait else answer

        if wait:
            await pursuit.to_the_end(api, begin)
        else:
            say_ordered(output, await pursuit.begun(begin), pursuit.what, world.clock)

    run(world, output, work, farewell=pursuit.farewell)


def _somebody_is_there() -> bool:
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _ask(world: Surroundings, output: Output, details: Details) -> None:
    """Show what will be lost and what it costs, and go on only with a yes."""
    created = when(details, "createdAt", world.clock.now())
    facts = [details.status, *details.facts, f"created {created}" if created else ""]
    output.note(f"{safe(details.name)}  {safe(details.id)}", "bold")
    output.note(" · ".join(safe(fact) for fact in facts if fact))
    go_on_only_with_a_yes(output, "Delete it with all its data?", "nothing was deleted")


def _unanswered(name_or_id: str) -> str:
    return (
        "interrupted before the server answered; it may have been accepted: "
        f"look with gpuherd show {safe(name_or_id)}"
    )
