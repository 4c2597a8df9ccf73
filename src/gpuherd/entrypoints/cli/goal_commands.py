"""The commands that change the goal of an instance, or wait: wait, start, stop, restart, replace, rm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import click

from gpuherd.entrypoints.cli.cli_errors import unknown_outcome
from gpuherd.entrypoints.cli.cli_output import Output, Row, moment_of, pairs, safe
from gpuherd.entrypoints.cli.command_runner import (
    NAME_OR_ID,
    TIMEOUT_OPTION,
    WAIT_OPTION,
    YES_OPTION,
    confirm_or_exit,
    detaches_by_interrupt,
    require_terminal,
    server_command,
)
from gpuherd.entrypoints.cli.instance_facts import (
    Until,
    command_about,
    endpoint_lines,
    facts_of,
    find_instance,
    wait_command,
)
from gpuherd.entrypoints.cli.launch_options import (
    HEALTH_OPTIONS,
    WAIT_FOR_CAPACITY,
    WEBHOOK_URL,
    health_check_of,
)
from gpuherd.entrypoints.cli.rental_stages import Progress
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.cli.server_replies import ServerReply, ServerUnreachable
from gpuherd.entrypoints.durations import remaining_time

Verb = Literal["start", "restart", "stop", "delete"]

UNTIL: dict[Verb, Until] = {"start": "ready", "restart": "ready", "stop": "exited", "delete": "deleted"}


@server_command(
    "wait",
    NAME_OR_ID,
    click.option(
        "--for",
        "until",
        type=click.Choice(["ready", "exited", "deleted"]),
        default="ready",
        show_default=True,
        help="Until it can be used, has stopped, or is gone.",
    ),
    TIMEOUT_OPTION,
    ids=True,
)
def wait(server: ServerConnection, output: Output, name_or_id: str, until: Until, timeout: float) -> None:
    """Follow an instance until it can be used, has stopped, or is gone. Ctrl-C detaches."""
    _follow(server, output, timeout, lambda: (find_instance(server, name_or_id), None), until=until)


@server_command(
    "start",
    NAME_OR_ID,
    WAIT_OPTION,
    *HEALTH_OPTIONS,
    WEBHOOK_URL,
    WAIT_FOR_CAPACITY,
    TIMEOUT_OPTION,
    ids=True,
)
def start(
    server: ServerConnection,
    output: Output,
    name_or_id: str,
    wait: bool,
    health_port: int | None,
    health_path: str | None,
    health_timeout: float | None,
    webhook_url: str | None,
    wait_for_capacity: int | None,
    timeout: float,
) -> None:
    """Start an instance that has exited. A health check that is given replaces the one it has."""
    body = {
        "healthCheck": health_check_of(health_port, health_path, health_timeout),
        "webhookUrl": webhook_url,
        "waitForCapacity": wait_for_capacity and {"seconds": wait_for_capacity},
    }
    _change_goal(server, output, "start", name_or_id, wait=wait, timeout=timeout, body=body)


@server_command("restart", NAME_OR_ID, WAIT_OPTION, TIMEOUT_OPTION, ids=True)
def restart(server: ServerConnection, output: Output, name_or_id: str, wait: bool, timeout: float) -> None:
    """Restart an instance that runs. Its machine and data stay, its ports may change."""
    _change_goal(server, output, "restart", name_or_id, wait=wait, timeout=timeout)


@server_command("stop", NAME_OR_ID, WAIT_OPTION, TIMEOUT_OPTION, ids=True)
def stop(server: ServerConnection, output: Output, name_or_id: str, wait: bool, timeout: float) -> None:
    """Stop an instance. Its data stays, its GPU does not."""
    _change_goal(server, output, "stop", name_or_id, wait=wait, timeout=timeout)


@server_command("rm", NAME_OR_ID, YES_OPTION, WAIT_OPTION, TIMEOUT_OPTION, ids=True)
def rm(
    server: ServerConnection, output: Output, name_or_id: str, yes: bool, wait: bool, timeout: float
) -> None:
    """Delete an instance with its machine and its data, whatever state it is in."""
    if not yes:
        require_terminal()
    found = find_instance(server, name_or_id)
    if not yes:
        created = output.when(found.get("createdAt"))
        facts = [found["status"], *facts_of(found), created and f"created {created}"]
        output.note(f"{safe(found['name'])}  {safe(found['id'])}", "bold")
        output.note(" · ".join(safe(fact) for fact in facts if fact))
        confirm_or_exit(output, "Delete it with all its data?", "nothing was deleted")
    # By id: another instance may have the name by now.
    _change_goal(server, output, "delete", name_or_id, found=found, wait=wait, timeout=timeout)


@server_command("replace", NAME_OR_ID, WAIT_OPTION, TIMEOUT_OPTION, ids=True)
def replace(server: ServerConnection, output: Output, name_or_id: str, wait: bool, timeout: float) -> None:
    """Rent another machine for an instance, and delete the old one when the new one can be used."""
    with detaches_by_interrupt(
        output, lambda: f"it may still be replaced; look with: gpuherd why {safe(name_or_id)}"
    ):
        old = find_instance(server, name_or_id)
        accepted = server.post(path_of("instances", str(old["id"]), "replace"), {})
        operation_id = str(accepted["operationId"])
        if not wait and not output.for_people:
            output.answer(accepted, operation_id)
            return
        if output.for_people:
            output.line(f"{safe(accepted['name'])} is being replaced ({safe(operation_id)})")
        if not wait:
            output.note(f"follow it with: gpuherd why {safe(accepted['name'])}")
            return
        # The client loads asyncio, aiohttp and pydantic, which most commands do not need.
        from gpuherd.entrypoints.cli.command_client import follow_operation  # noqa: PLC0415

        retired = follow_operation(server, output.clock, old, _operation(old, accepted, "replace"), timeout)
        heir = server.get(path_of("instances", str(retired.get("replacedBy") or old["name"])))
        if not output.for_people:
            output.answer(heir, str(heir["id"]))
            return
        output.line(f"{safe(heir['id'])} has taken over")
        if ways := endpoint_lines(heir):
            output.show(pairs(ways))


def _change_goal(
    server: ServerConnection,
    output: Output,
    verb: Verb,
    named: str,
    *,
    found: ServerReply | None = None,
    wait: bool,
    timeout: float,
    body: dict[str, Any] | None = None,
) -> None:
    """Find the instance, send the order, and follow it or print how to follow it."""
    accepted: list[ServerReply] = []

    def order() -> tuple[Row, Row]:
        instance = found or find_instance(server, named)
        accepted.append(_send_order(server, instance, verb, body or {}))
        # The reply is short; the other fields are unchanged.
        changed = {**instance, **accepted[0], "statusReason": accepted[0].get("message")}
        operation = _operation(instance, accepted[0], verb)
        operation["phases"] = [{"phase": "requested", "at": output.clock.now().isoformat()}]
        return changed, operation

    unanswered = (
        "interrupted before the server answered; it may have been accepted: "
        f"look with gpuherd show {safe(named)}"
    )
    until = UNTIL[verb]
    if wait:
        _follow(server, output, timeout, order, until=until, unanswered=unanswered, ordered=True)
        return
    with detaches_by_interrupt(output, lambda: unanswered):
        changed, _ = order()
    if not output.for_people:
        output.answer(accepted[0], str(changed["id"]))
        return
    expected = moment_of(accepted[0].get("estimatedReadyTime"))
    left = remaining_time(expected, output.clock.now()) if expected and until == "ready" else ""
    output.line(f"{safe(changed['name'])} is {safe(changed['status'])}" + (f", {left}" if left else ""))
    output.note(f"follow it with: {wait_command(changed, until)}")


def _send_order(server: ServerConnection, found: Row, verb: Verb, body: dict[str, Any]) -> ServerReply:
    path = path_of("instances", str(found["id"]))
    try:
        return server.delete(path) if verb == "delete" else server.post(f"{path}/{verb}", body)
    except ServerUnreachable as failure:
        if not failure.sent:
            raise
        advice = f"see how it is with: {command_about('show', found)}; to say it again does no harm"
        raise unknown_outcome(failure, advice) from failure


def _operation(found: Row, accepted: Row, verb: str) -> dict[str, Any]:
    return {
        "operationId": accepted["operationId"],
        "instanceId": found["id"],
        "type": verb,
        "status": "running",
        "phases": [],
    }


def _follow(
    server: ServerConnection,
    output: Output,
    timeout: float,
    begin: Callable[[], tuple[Row, Row | None]],
    *,
    until: Until,
    unanswered: str = "",
    ordered: bool = False,
) -> None:
    # The client loads asyncio, aiohttp and pydantic, which most commands do not need.
    from gpuherd.entrypoints.cli.rental_progress import InstanceFollower  # noqa: PLC0415

    follower = InstanceFollower(server, output, timeout, until=until, ordered=ordered, unanswered=unanswered)
    with detaches_by_interrupt(output, follower.farewell):
        follower.follow(lambda _: Progress(*begin()))
