"""Errors of a command.

What happened, why, what to do now, on stderr as text or as one line of JSON, and the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import typer
from rich.text import Text

from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.operation import OperationKind, OperationState
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.output import Mode, Output, as_json, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.render.times import format_duration
from gpuherd.entrypoints.cli.runtime.exit_codes import (
    NO_CAPACITY_CODES,
    UNEXPECTED_REPLY,
    ExitCode,
    of_problem,
)
from gpuherd.entrypoints.cli.runtime.problems import ApiProblem, BadConfiguration, CannotConnect


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
class ErrorReport:
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


AnyCommandFailure = ApiProblem | CannotConnect | BadConfiguration | NotReached | TimedOut | NotAcknowledged
COMMAND_FAILURES = (ApiProblem, CannotConnect, BadConfiguration, NotReached, TimedOut, NotAcknowledged)

_RELAX_WISH_ADVICE = (
    "allow more: another --region, a higher --max-price, --billing on-demand, or fewer --gpu-num"
)

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


def error_report_of(failure: AnyCommandFailure) -> ErrorReport:
    """Say what a person needs to know about `failure`."""
    match failure:
        case ApiProblem():
            return _of_problem(failure)
        case NotReached():
            return _of_ended(failure.details)
        case CannotConnect():
            return ErrorReport(
                ExitCode.UNREACHABLE,
                "SERVER_UNREACHABLE",
                f"cannot reach the gpuherd server at {failure.url}",
                failure.reason,
                "start one with: gpuherd serve --simulator (or point GPUHERD_URL to yours)",
            )
        case BadConfiguration():
            return ErrorReport(
                ExitCode.CONFIGURATION,
                "BAD_CONFIGURATION",
                "the configuration is wrong",
                "; ".join(failure.problems),
                "correct the environment or gpuherd.toml",
            )
        case NotAcknowledged():
            return ErrorReport(
                ExitCode.UNREACHABLE,
                "OUTCOME_UNKNOWN",
                "the server did not answer; the request may have been accepted",
                failure.cause.reason,
                failure.advice,
            )
        case TimedOut():
            return ErrorReport(
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


def _of_problem(problem: ApiProblem) -> ErrorReport:
    exit_code = of_problem(problem.code, problem.status)
    if exit_code is ExitCode.NO_CAPACITY:
        suggestion = _RELAX_WISH_ADVICE
    elif problem.retry_after is not None and problem.temporary:
        suggestion = f"try again in {format_duration(problem.retry_after)}"
    else:
        suggestion = _SUGGESTIONS.get(problem.code) or _SUGGESTIONS_BY_STATUS.get(problem.status, "")
    return ErrorReport(
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


def _of_ended(details: Details) -> ErrorReport:
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
        title = (
            f"the {operation.text('type')} of {details.name} {_OUTCOME_WORDS.get(operation.status, 'failed')}"
        )
    return ErrorReport(
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
        return "try again later, or rent another one with: gpuherd up" if started else _RELAX_WISH_ADVICE
    if _rests(details):
        return f"start it with: {command('start', details)}"
    return f"see why with: {command('why', details)}"


def _rests(details: Details) -> bool:
    return details.status == Status.EXITED and not details.operation


_OUTCOME_WORDS: dict[str, str] = {OperationState.SUPERSEDED: "was superseded by a later order"}


def print_error(output: Output, report: ErrorReport) -> None:
    """Tell `report`: what happened, why, what to do; the request id last."""
    if output.mode is Mode.JSON:
        # One line, so that the last line of stderr is the error, whatever progress came before it.
        typer.echo(as_json(report.as_json(), indent=None), err=True)
        return
    err = output.err
    err.print(Text.assemble(("error: ", "bold red"), safe(report.title), (f" ({safe(report.code)})", "dim")))
    if report.detail and report.detail != report.title:
        output.note(f"  {safe(report.detail)}")
    # A single wrong field is the whole detail already.
    for problem in (error for error in report.errors if error.get("message") != report.detail):
        output.note(f"  {safe(problem.get('field', '?'))}: {safe(problem.get('message', ''))}")
    if reasons := list(_reasons(report.details)):
        err.print(table(_REASON_COLUMNS, reasons, err.width))
    for candidate in _candidates(report.details):
        output.note(f"  {safe(candidate)}")
    if report.suggestion:
        output.note(f"try: {safe(report.suggestion)}", "yellow")
    if report.request_id:
        output.note(f"request id: {safe(report.request_id)}", "dim")


@dataclass(frozen=True)
class _Reason:
    region: str
    offer: str
    why_not: str


_REASON_COLUMNS: list[Column[_Reason]] = [
    Column("REGION", lambda r: r.region, 1),
    Column("OFFER", lambda r: r.offer, 2, shrinks_to=12),
    Column("WHY NOT", lambda r: r.why_not, 0, shrinks_to=20, wraps=True),
]


def _reasons(details: Mapping[str, Any]) -> Iterator[_Reason]:
    """Read why each region had nothing: a reason for each offer, or one for the whole region."""
    regions = details.get("regions")
    for entry in regions if isinstance(regions, list) else []:
        if not isinstance(entry, dict):
            continue
        region = str(entry.get("region", "?"))
        offers = entry.get("offers")
        for offer in offers if isinstance(offers, list) else []:
            if isinstance(offer, dict):
                name = str(offer.get("productName") or offer.get("productId") or "")
                yield _Reason(region, name, str(offer.get("reason", "")))
        if entry.get("reason"):
            yield _Reason(region, "", str(entry["reason"]))


def _candidates(details: Mapping[str, Any]) -> Iterator[str]:
    """Read which instances an ambiguous name could mean."""
    candidates = details.get("candidates")
    for one in candidates if isinstance(candidates, list) else []:
        if isinstance(one, dict):
            one = "  ".join(str(one[key]) for key in ("id", "instanceId", "name", "status") if one.get(key))
        yield str(one)


T = TypeVar("T")


class CommandError(Exception):
    """It is not done, and nothing was changed."""

    def __init__(self, exit_code: ExitCode, code: str, message: str, *, suggestion: str = "") -> None:
        super().__init__(message)
        self.report = ErrorReport(exit_code, code, message, suggestion=suggestion)


def run_or_exit(output: Output, work: Callable[[], T]) -> T:
    """Return what `work` returns; tell a refusal and exit with its code."""
    try:
        return work()
    except CommandError as error:
        print_error(output, error.report)
        raise typer.Exit(int(error.report.exit_code)) from error
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
