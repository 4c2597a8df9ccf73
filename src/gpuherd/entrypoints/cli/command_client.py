"""The client for commands that follow something: it returns JSON and raises command errors.

Only following commands import this module, because the client is slow to load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from gpuherd import client as api
from gpuherd.entrypoints.cli.cli_errors import (
    ALLOW_MORE,
    NO_CAPACITY_CODES,
    CommandError,
    ErrorReport,
    ExitCode,
)
from gpuherd.entrypoints.cli.cli_output import CommandClock, Row
from gpuherd.entrypoints.cli.instance_facts import command_about, wait_command
from gpuherd.entrypoints.cli.server_connection import REPLY_TIMEOUT_S, USER_AGENT, ServerConnection
from gpuherd.entrypoints.cli.server_replies import (
    ServerFailure,
    ServerRefusal,
    ServerUnreachable,
    UnexpectedReply,
)


class WaitEnded(Exception):
    """A wait ended without what it was for; `instance` is the last state."""

    def __init__(self, instance: Row, error: CommandError) -> None:
        super().__init__(str(error))
        self.instance = instance
        self.error = error


@contextmanager
def open_client(server: ServerConnection, clock: CommandClock) -> Iterator[api.Gpuherd]:
    """Open a client whose errors become command errors."""
    address = server.address
    try:
        with api.Gpuherd(
            address.url,
            address.key,
            timeout_s=REPLY_TIMEOUT_S,
            max_retries=0,
            user_agent=USER_AGENT,
            clock=clock,
        ) as client:
            yield client
    except api.GpuherdError as error:
        raise failure_of(error) from error


def failure_of(error: api.GpuherdError) -> ServerFailure | CommandError | WaitEnded:
    """Return the command error for an error of the client."""
    match error:
        case api.ConnectionFailed():
            return ServerUnreachable(error.url, error.reason, sent=error.sent)
        case api.ApiError():
            problem = {
                "code": error.code,
                "title": error.title,
                "detail": error.detail,
                "errors": [asdict(problem) for problem in error.errors],
                "details": dict(error.details),
                "requestId": error.request_id,
            }
            return ServerRefusal(
                error.status, problem, retry_after_s=error.retry_after_s, detail=error.detail
            )
        case api.UnexpectedReply():
            return UnexpectedReply(str(error), error.status)
        case api.InstanceFailed():
            operation = None if error.operation is None else as_row(error.operation)
            instance = as_row(error.instance)
            return WaitEnded(instance, CommandError.of(_end_report(instance, operation)))
        case api.WaitTimedOut():
            instance = as_row(error.instance)
            is_known = f"it is {instance['status']}" if error.is_reachable else "the server was not reachable"
            again = f"gpuherd keeps trying. To wait again: {wait_command(instance, error.until)}"  # type: ignore[arg-type]
            report = ErrorReport(
                ExitCode.TIMEOUT, "WAIT_TIMED_OUT", f"not {error.until} in time", is_known, again
            )
            return WaitEnded(instance, CommandError.of(report))
        case api.PrewarmFailed():
            task = as_row(error.prewarm)
            return CommandError.of(
                ErrorReport(
                    ExitCode.FAILED,
                    "PREWARM_FAILED",
                    f"the image could not be pulled into {task['region']}",
                    "; ".join(task.get("reasons") or ()),
                    f"it counts against the quota; remove it with: gpuherd prewarm rm {task['id']}",
                    details={"id": task["id"]},
                )
            )
        case api.PrewarmTimedOut():
            state = None if error.prewarm is None else as_row(error.prewarm)["state"]
            return CommandError.of(
                ErrorReport(
                    ExitCode.TIMEOUT,
                    "WAIT_TIMED_OUT",
                    "not pulled in time",
                    f"it is {state}" if state else "the server was not reachable",
                    "the cloud goes on with it; look with: gpuherd prewarm ls",
                    details={"id": error.id},
                )
            )
    return CommandError(ExitCode.FAILED, "FAILED", str(error))


def broken_off(error: Exception) -> ServerUnreachable | ServerRefusal:
    """Return the failure for an outage that the client waits out."""
    assert isinstance(error, api.GpuherdError)
    failure = failure_of(error)
    assert isinstance(failure, ServerUnreachable | ServerRefusal)
    return failure


def as_row(model: Any) -> Row:
    """Return a model of the client as the server's JSON."""
    return dict(model.raw)


def _end_report(instance: Row, operation: Row | None) -> ErrorReport:
    """Return why a wait cannot succeed."""
    error = (operation or {}).get("error") or instance.get("lastError")
    status = str(instance["status"])
    code = str(error["code"]) if error else f"INSTANCE_{status.upper()}"
    title = f"{instance['name']} is {status}"
    rests = status == "exited" and operation is None
    if operation is not None and operation["status"] == "superseded":
        error, code = None, "OPERATION_SUPERSEDED"
    elif rests:
        # An old error is not the reason for the present rest.
        error, code = None, "INSTANCE_EXITED"
    message = str((error or {}).get("message") or "")
    kind = "" if operation is None else str(operation["type"])
    if operation is not None:
        superseded = operation["status"] == "superseded"
        outcome = "was superseded by a later order" if superseded else "failed"
        title = f"the {kind} of {instance['name']} {outcome}"
    else:
        message = str(instance.get("statusReason") or message)
    if code in NO_CAPACITY_CODES:
        started = kind in ("start", "restart")
        advice = "try again later, or rent another one with: gpuherd up" if started else ALLOW_MORE
    elif rests:
        advice = f"start it with: {command_about('start', instance)}"
    else:
        advice = f"see why with: {command_about('why', instance)}"
    exit_code = ExitCode.NO_CAPACITY if code in NO_CAPACITY_CODES else ExitCode.FAILED
    return ErrorReport(exit_code, code, title, message, advice, details=(error or {}).get("details") or {})


def follow_operation(
    server: ServerConnection, clock: CommandClock, instance: Row, operation: Row, timeout_s: float
) -> Row:
    """Return the instance when the operation has succeeded, or raise its failure. Nothing is shown."""
    try:
        with open_client(server, clock) as client:
            ended = client.instances.follow(
                api.Instance.of(instance), "ready", timeout_s, operation=api.Operation.of(operation)
            )
            return as_row(ended)
    except WaitEnded as end:
        raise end.error from end
