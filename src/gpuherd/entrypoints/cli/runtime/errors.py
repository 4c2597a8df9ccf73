"""Errors of a command.

What happened, why, what to do now, on stderr as text or as one line of JSON, and the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import typer
from rich.text import Text

from gpuherd.client.client_errors import (
    ApiError,
    BadConfiguration,
    ConnectionFailed,
    GpuherdError,
    InstanceFailed,
    PrewarmFailed,
    PrewarmTimedOut,
    UnexpectedReply,
    WaitTimedOut,
)
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.operation_models import Operation
from gpuherd.entrypoints.cli.render.output import Mode, Output, as_json, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.exit_codes import (
    NO_CAPACITY_CODES,
    UNEXPECTED_REPLY,
    ExitCode,
    of_problem,
)
from gpuherd.entrypoints.durations import format_duration

# The server answered with a document of its own; what else answers is not gpuherd.
NOT_GPUHERD = "this is not an answer of gpuherd"


class NotAcknowledged(GpuherdError):
    """An order was sent and no answer came back: it may have been accepted. `advice` is what to do."""

    def __init__(self, advice: str, cause: ConnectionFailed) -> None:
        super().__init__(str(cause))
        self.advice = advice
        self.reason = cause.reason


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


_RELAX_WISH_ADVICE = (
    "allow more: another --region, a higher --max-price, --billing on-demand, or fewer --gpu-num"
)

# What was named is not there: the command that lists what is.
_LISTED_BY = {
    "INSTANCE_NOT_FOUND": "gpuherd ls",
    "BUDGET_NOT_FOUND": "gpuherd budgets ls",
    "DELIVERY_NOT_FOUND": "gpuherd webhooks deliveries",
    "JOB_NOT_FOUND": "gpuherd jobs",
    "KEY_NOT_FOUND": "gpuherd keys ls",
    "ORPHAN_NOT_FOUND": "gpuherd orphans",
    "PREWARM_NOT_FOUND": "gpuherd prewarm ls",
    "REGISTRY_AUTH_NOT_FOUND": "gpuherd registry ls",
    "SECRET_NOT_FOUND": "gpuherd secrets ls",
    "TEMPLATE_NOT_FOUND": "gpuherd templates",
    "VOLUME_NOT_FOUND": "gpuherd volumes ls",
    "WEBHOOK_ENDPOINT_NOT_FOUND": "gpuherd webhooks ls",
}

_SUGGESTIONS = {
    **{code: f"see what there is with: {command}" for code, command in _LISTED_BY.items()},
    "PRODUCT_NOT_FOUND": "part of the name is enough, as in --gpu 4090; see them with: gpuherd offers",
    "PLAN_NOT_FOUND": "make another one with: gpuherd plan --hold",
    "PREWARM_QUOTA_EXCEEDED": "finished and failed ones count; see them with: gpuherd prewarm ls",
    "INVALID_REGION": "give --region as a code like CN-HK-01; see them with: gpuherd regions",
    "STARTUP_OPERATION_IN_PROGRESS": "follow it with: gpuherd wait NAME",
    "LOG_NOT_AVAILABLE": "how it boots is told by: gpuherd logs NAME --system",
    "INSTANCE_NOT_RESTARTABLE": "what has exited is started with: gpuherd start NAME",
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
    422: "this --idempotency-key was used for another request: choose a new one, or leave it out",
}


def error_report_of(failure: GpuherdError | CommandError) -> ErrorReport:
    """Say what a person needs to know about `failure`."""
    match failure:
        case CommandError():
            return failure.report
        case ApiError():
            return _of_api_error(failure)
        case UnexpectedReply():
            return problem_report(UNEXPECTED_REPLY, NOT_GPUHERD, str(failure), failure.status)
        case InstanceFailed():
            return _of_ended(failure.instance, failure.operation)
        case ConnectionFailed():
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
                str(failure),
                "correct the environment or gpuherd.toml",
            )
        case NotAcknowledged():
            return ErrorReport(
                ExitCode.UNREACHABLE,
                "OUTCOME_UNKNOWN",
                "the server did not answer; the request may have been accepted",
                failure.reason,
                failure.advice,
            )
        case WaitTimedOut(instance=instance, until=until):
            return ErrorReport(
                ExitCode.TIMEOUT,
                "WAIT_TIMED_OUT",
                f"not {until} in time",
                f"it is {instance.status}" if failure.is_reachable else "the server was not reachable",
                f"it is still being worked on; go on with: {wait_command(instance, until)}",
            )
        case PrewarmFailed(prewarm=task):
            return ErrorReport(
                ExitCode.FAILED,
                "PREWARM_FAILED",
                f"the image could not be pulled into {task.region}",
                "; ".join(task.reasons or ()),
                f"it counts against the quota; remove it with: gpuherd prewarm rm {task.id}",
                details={"id": task.id},
            )
        case PrewarmTimedOut(prewarm=last):
            return ErrorReport(
                ExitCode.TIMEOUT,
                "WAIT_TIMED_OUT",
                "not pulled in time",
                f"it is {last.state}" if last else "the server was not reachable",
                "the cloud goes on with it; look with: gpuherd prewarm ls",
                details={"id": failure.id},
            )
        case _:
            return ErrorReport(ExitCode.FAILED, "FAILED", str(failure))


def command(verb: str, instance: Instance) -> str:
    """Return the command about this instance, good for pasting into a shell."""
    name = instance.name
    # Anything that a shell or our own parser could read differently: the id is always plain.
    plain = name.replace("-", "").replace("_", "").replace(".", "").isalnum() and name.isascii()
    return f"gpuherd {verb} {name if plain and name[0].isalnum() else instance.id}"


def wait_command(instance: Instance, until: str) -> str:
    """Return the command that goes on waiting."""
    if until == "ready":
        return command("wait", instance)
    # What is deleted gives its name away: only the id is sure to be found.
    base = f"gpuherd wait {instance.id}" if until == "deleted" else command("wait", instance)
    return f"{base} --for {until}"


def problem_report(
    code: str, title: str, detail: str, status: int, details: Mapping[str, Any] | None = None
) -> ErrorReport:
    """Say what a person needs to know about an answer of the API that is a no."""
    exit_code = of_problem(code, status)
    is_capacity = exit_code is ExitCode.NO_CAPACITY
    return ErrorReport(
        exit_code,
        code,
        # HTTP knows only "conflict" for it.
        "no capacity" if is_capacity else title,
        detail,
        _RELAX_WISH_ADVICE
        if is_capacity
        else _SUGGESTIONS.get(code) or _SUGGESTIONS_BY_STATUS.get(status, ""),
        status,
        details=details or {},
    )


def _of_api_error(error: ApiError) -> ErrorReport:
    report = problem_report(
        error.code, error.title or NOT_GPUHERD, detail_of(error), error.status, error.details
    )
    can_wait = error.retry_after_s is not None and error.is_temporary
    if can_wait and report.exit_code is not ExitCode.NO_CAPACITY:
        report = replace(report, suggestion=f"try again in {format_duration(error.retry_after_s or 0)}")
    return replace(
        report,
        errors=[asdict(it) for it in error.errors],
        retry_after=error.retry_after_s,
        request_id=error.request_id,
    )


def detail_of(error: ConnectionFailed | ApiError) -> str:
    """Say in a few words why the server did not do what it was asked for."""
    if isinstance(error, ConnectionFailed):
        return error.reason
    # Without a title it is no document of gpuherd.
    return error.detail if error.title else f"the server answered with HTTP {error.status}"


def _of_ended(instance: Instance, operation: Operation | None) -> ErrorReport:
    error = (operation.error if operation else None) or instance.last_error
    code = error.code if error else f"INSTANCE_{instance.status.upper()}"
    title = f"{instance.name} is {instance.status}"
    if operation is not None and operation.status == "superseded":
        error, code = None, "OPERATION_SUPERSEDED"
    elif _rests(instance, operation):
        # Whatever went wrong before it came to rest is not why it is not ready now: nobody has started it.
        error, code = None, "INSTANCE_EXITED"
    if operation is not None:
        outcome = _OUTCOME_WORDS.get(operation.status, "failed")
        title = f"the {operation.type} of {instance.name} {outcome}"
    message = error.message if error else ""
    return ErrorReport(
        ExitCode.NO_CAPACITY if code in NO_CAPACITY_CODES else ExitCode.FAILED,
        code,
        title,
        message if operation is not None else instance.status_reason or message,
        _advice(instance, operation, code),
        details=error.details if error else {},
    )


def _advice(instance: Instance, operation: Operation | None, code: str) -> str:
    if code in NO_CAPACITY_CODES:
        started = operation is not None and operation.type in ("start", "restart")
        return "try again later, or rent another one with: gpuherd up" if started else _RELAX_WISH_ADVICE
    if _rests(instance, operation):
        return f"start it with: {command('start', instance)}"
    return f"see why with: {command('why', instance)}"


def _rests(instance: Instance, operation: Operation | None) -> bool:
    return instance.status == "exited" and operation is None


_OUTCOME_WORDS = {"superseded": "was superseded by a later order"}


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

    @classmethod
    def of(cls, report: ErrorReport) -> CommandError:
        """Return the failure that this report is about."""
        made = cls(report.exit_code, report.code, report.title)
        made.report = report
        return made


def run_or_exit(output: Output, work: Callable[[], T]) -> T:
    """Return what `work` returns; tell a refusal and exit with its code."""
    try:
        return work()
    except CommandError as error:
        print_error(output, error.report)
        raise typer.Exit(int(error.report.exit_code)) from error
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
