"""From anything that went wrong to what a person needs: what happened, why, and what to do now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuherd.domain.instance import Status
from gpuherd.domain.operation import OperationKind, OperationState
from gpuherd.domain.waiting import WaitFor
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.exit_codes import NO_CAPACITY_CODES, UNEXPECTED_REPLY, ExitCode, of_problem
from gpuherd.entrypoints.cli.problems import ApiProblem, BadConfiguration, CannotConnect
from gpuherd.entrypoints.cli.times import lasting


class NotReached(Exception):
    """The instance will not come to where it was waited for, or its operation failed."""

    def __init__(self, details: Details) -> None:
        super().__init__(details.status)
        self.details = details


class TimedOut(Exception):
    """Our patience ended, the work did not."""

    def __init__(self, details: Details, what: WaitFor, *, reachable: bool) -> None:
        super().__init__(details.status)
        self.details = details
        self.what = what
        self.reachable = reachable


class NotAcknowledged(Exception):
    """An order was sent and no answer came back: it may have been accepted. `advice` is what to do."""

    def __init__(self, advice: str, cause: CannotConnect) -> None:
        super().__init__(str(cause))
        self.advice = advice
        self.cause = cause


@dataclass(frozen=True)
class Report:
    """One failure, ready to be told."""

    exit_code: ExitCode
    code: str
    title: str
    detail: str = ""
    suggestion: str = ""
    status: int | None = None
    errors: Sequence[Mapping[str, Any]] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    retry_after: float | None = None
    request_id: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the same for programs, without what is empty."""
        everything = {
            "code": self.code,
            "title": self.title,
            "detail": self.detail,
            "status": self.status,
            "errors": list(self.errors),
            "details": dict(self.details),
            "suggestion": self.suggestion,
            "retryAfter": self.retry_after,
            "requestId": self.request_id,
        }
        told = {name: value for name, value in everything.items() if value not in (None, "", [], {})}
        return {"error": told | {"exitCode": int(self.exit_code)}}


Failure = ApiProblem | CannotConnect | BadConfiguration | NotReached | TimedOut | NotAcknowledged
FAILURES = (ApiProblem, CannotConnect, BadConfiguration, NotReached, TimedOut, NotAcknowledged)

_MORE_ROOM = "allow more: another --region, a higher --max-price, --billing on-demand, or fewer --gpu-num"

_SUGGESTIONS = {
    "PRODUCT_NOT_FOUND": "part of the name is enough, as in --gpu 4090; see them with: gpuherd offers",
    "TEMPLATE_NOT_FOUND": "see what there is with: gpuherd templates",
    "INVALID_REGION": "give --region as a code like CN-HK-01; see them with: gpuherd regions",
    "STARTUP_OPERATION_IN_PROGRESS": "follow it with: gpuherd wait NAME",
    "INSTANCE_NOT_STOPPABLE": "what is wanted no more can be deleted in any state: gpuherd rm NAME",
    "AMBIGUOUS_NAME": "several have this name: use the id instead (gpuherd ls --name NAME --quiet)",
    "AMBIGUOUS_ID": "several ids begin so: give more of it",
    "INVALID_WEBHOOK_URL": "use a public address (or let the server allow it: GPUHERD_ALLOW_PRIVATE_TARGETS)",
    "CIRCUIT_BREAKER_OPEN": "the cloud has trouble; try again in a minute",
    UNEXPECTED_REPLY: "check that GPUHERD_URL is the address of a gpuherd server",
}

_SUGGESTIONS_BY_STATUS = {
    401: "set GPUHERD_API_KEY to a key of this server",
    403: "use a key with the scope that this needs (GPUHERD_API_KEY)",
    404: "see what there is with: gpuherd ls",
    422: "this --idempotency-key was used for another request: choose a new one, or leave it out",
}


def report_of(failure: Failure) -> Report:
    """Say what a person needs to know about `failure`."""
    match failure:
        case ApiProblem():
            return _of_problem(failure)
        case NotReached():
            return _of_ended(failure.details)
        case CannotConnect():
            return Report(
                ExitCode.UNREACHABLE,
                "SERVER_UNREACHABLE",
                f"cannot reach the gpuherd server at {failure.url}",
                failure.reason,
                "start one with: gpuherd serve --simulator (or point GPUHERD_URL to yours)",
            )
        case BadConfiguration():
            return Report(
                ExitCode.CONFIGURATION,
                "BAD_CONFIGURATION",
                "the configuration is wrong",
                "; ".join(failure.problems),
                "correct the environment or gpuherd.toml",
            )
        case NotAcknowledged():
            return Report(
                ExitCode.UNREACHABLE,
                "OUTCOME_UNKNOWN",
                "the server did not answer; the request may have been accepted",
                failure.cause.reason,
                failure.advice,
            )
        case TimedOut():
            return Report(
                ExitCode.TIMEOUT,
                "WAIT_TIMED_OUT",
                f"not {failure.what} in time",
                f"it is {failure.details.status}" if failure.reachable else "the server was not reachable",
                f"it is still being worked on; go on with: {wait_command(failure.details, failure.what)}",
            )


def command(verb: str, details: Details) -> str:
    """Return the command about this instance, good for pasting into a shell."""
    name = details.name
    # Anything that a shell or our own parser could read differently: the id is always plain.
    plain = name.replace("-", "").replace("_", "").replace(".", "").isalnum() and name.isascii()
    return f"gpuherd {verb} {name if plain and name[0].isalnum() else details.id}"


def wait_command(details: Details, what: WaitFor) -> str:
    """Return the command that goes on waiting."""
    if what is WaitFor.READY:
        return command("wait", details)
    # What is deleted gives its name away: only the id is sure to be found.
    base = f"gpuherd wait {details.id}" if what is WaitFor.DELETED else command("wait", details)
    return f"{base} --for {what}"


def _of_problem(problem: ApiProblem) -> Report:
    exit_code = of_problem(problem.code, problem.status)
    if exit_code is ExitCode.NO_CAPACITY:
        suggestion = _MORE_ROOM
    elif problem.retry_after is not None and problem.temporary:
        suggestion = f"try again in {lasting(problem.retry_after)}"
    else:
        suggestion = _SUGGESTIONS.get(problem.code) or _SUGGESTIONS_BY_STATUS.get(problem.status, "")
    return Report(
        exit_code,
        problem.code,
        # HTTP knows only "conflict" for it.
        "no capacity" if exit_code is ExitCode.NO_CAPACITY else problem.title,
        problem.detail,
        suggestion,
        problem.status,
        problem.errors,
        problem.details,
        problem.retry_after,
        problem.request_id,
    )


def _of_ended(details: Details) -> Report:
    operation = Details(details.operation)
    error = Details(operation.mapping("error") or details.last_error)
    code = error.text("code") or f"INSTANCE_{details.status.upper()}"
    title = f"{details.name} is {details.status}"
    if operation.status == OperationState.SUPERSEDED:
        error, code = Details({}), "OPERATION_SUPERSEDED"
    elif _rests(details):
        # Whatever went wrong before it came to rest is not why it is not ready now: nobody has started it.
        error, code = Details({}), "INSTANCE_EXITED"
    if operation.raw:
        title = f"the {operation.text('type')} of {details.name} {_ENDS.get(operation.status, 'failed')}"
    return Report(
        ExitCode.NO_CAPACITY if code in NO_CAPACITY_CODES else ExitCode.FAILED,
        code,
        title,
        error.text("message") if operation.raw else details.text("statusReason") or error.text("message"),
        _advice(details, code),
        details=error.mapping("details"),
    )


def _advice(details: Details, code: str) -> str:
    started = details.operation.get("type") == OperationKind.START
    if code in NO_CAPACITY_CODES:
        return "try again later, or rent another one with: gpuherd up" if started else _MORE_ROOM
    if _rests(details):
        return f"start it with: {command('start', details)}"
    return f"see why with: {command('why', details)}"


def _rests(details: Details) -> bool:
    return details.status == Status.EXITED and not details.operation


_ENDS: dict[str, str] = {OperationState.SUPERSEDED: "was superseded by a later order"}
