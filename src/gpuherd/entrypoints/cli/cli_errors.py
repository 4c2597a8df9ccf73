"""Errors of a command: what happened, why, what to do, as text or as one line of JSON, and the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import click
from rich.text import Text

from gpuherd.entrypoints.cli.cli_output import Column, Mode, Output, as_json, safe
from gpuherd.entrypoints.cli.server_replies import (
    UNEXPECTED_REPLY,
    ServerFailure,
    ServerRefusal,
    ServerUnreachable,
    UnexpectedReply,
)
from gpuherd.entrypoints.durations import format_duration
from gpuherd.settings_loading import AddressInvalid


class ExitCode(IntEnum):
    """The exit code of a command: one number for each case that a script handles differently."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 3
    NOT_FOUND = 4
    CONFLICT = 5
    NO_CAPACITY = 6
    BUDGET = 7
    UNREACHABLE = 8
    DIFFERS = 9
    CONFIGURATION = 78
    TIMEOUT = 124
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "it worked",
    ExitCode.FAILED: "it failed (for example: the instance failed), or you said no",
    ExitCode.USAGE: "the command or a value in it makes no sense",
    ExitCode.AUTH: "the API key is missing, unknown or may not do this",
    ExitCode.NOT_FOUND: "there is no such thing",
    ExitCode.CONFLICT: "it cannot be done in the present state",
    ExitCode.NO_CAPACITY: "no offer that fits is available",
    ExitCode.BUDGET: "a limit of the key, or a budget, forbids it",
    ExitCode.UNREACHABLE: "the gpuherd server cannot be reached",
    ExitCode.DIFFERS: "Novita does otherwise than gpuherd assumes (`doctor --live`)",
    ExitCode.CONFIGURATION: "the configuration is wrong",
    ExitCode.TIMEOUT: "not ready in time; gpuherd keeps trying",
    ExitCode.INTERRUPTED: "interrupted; the work goes on",
}

# Codes of a problem, or of an instance's last error, that mean "nothing to rent".
NO_CAPACITY_CODES = frozenset(
    {"NO_OPTIMAL_PRODUCT_ANY_REGION", "NO_OPTIMAL_PRODUCT", "NO_AVAILABLE_PRODUCTS", "RESOURCE_CONSTRAINTS"}
)
# The limit of a key or a budget is reached.
BUDGET_CODES = frozenset({"QUOTA_EXCEEDED", "BUDGET_EXHAUSTED"})
NOT_GPUHERD = "this is not an answer of gpuherd"

_EXIT_CODE_OF_STATUS = {
    400: ExitCode.USAGE,
    401: ExitCode.AUTH,
    403: ExitCode.AUTH,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    413: ExitCode.USAGE,
    # The same Idempotency-Key with another body.
    422: ExitCode.CONFLICT,
    502: ExitCode.UNREACHABLE,
    503: ExitCode.UNREACHABLE,
    504: ExitCode.UNREACHABLE,
}

ALLOW_MORE = "allow more: another --region, a higher --max-price, --billing on-demand, or fewer --gpu-num"

# The command that lists the resources, by the code for a missing one.
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


@dataclass(frozen=True)
class ErrorReport:
    """One failure, ready to be printed."""

    exit_code: ExitCode
    code: str
    title: str
    detail: str = ""
    suggestion: str = ""
    status: int | None = None
    errors: Sequence[Mapping[str, Any]] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    retry_after_s: float | None = None
    request_id: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs, without what is empty."""
        everything = {
            "code": self.code,
            "title": self.title,
            "detail": self.detail,
            "status": self.status,
            "errors": list(self.errors),
            "details": dict(self.details),
            "suggestion": self.suggestion,
            "retryAfter": self.retry_after_s,
            "requestId": self.request_id,
        }
        given = {name: value for name, value in everything.items() if value not in (None, "", [], {})}
        return {"error": given | {"exitCode": int(self.exit_code)}}


class CommandError(Exception):
    """Ends a command; the report gives the reason."""

    def __init__(self, exit_code: ExitCode, code: str, message: str, *, suggestion: str = "") -> None:
        super().__init__(message)
        self.report = ErrorReport(exit_code, code, message, suggestion=suggestion)

    @classmethod
    def of(cls, report: ErrorReport) -> CommandError:
        """Return the error with this report."""
        made = cls(report.exit_code, report.code, report.title)
        made.report = report
        return made


def report_of(failure: CommandError | ServerFailure | AddressInvalid) -> ErrorReport:
    """Return the report for people about a failure."""
    match failure:
        case CommandError():
            return failure.report
        case ServerRefusal():
            return _refusal_report(failure)
        case UnexpectedReply():
            return problem_report(UNEXPECTED_REPLY, NOT_GPUHERD, str(failure), failure.status)
        case ServerUnreachable():
            return ErrorReport(
                ExitCode.UNREACHABLE,
                "SERVER_UNREACHABLE",
                f"cannot reach the gpuherd server at {failure.url}",
                failure.reason,
                "start one with: gpuherd serve --simulator (or point GPUHERD_URL to yours)",
            )
        case AddressInvalid():
            return ErrorReport(
                ExitCode.CONFIGURATION,
                "BAD_CONFIGURATION",
                "the configuration is wrong",
                str(failure),
                "correct the environment or gpuherd.toml",
            )
    return ErrorReport(ExitCode.FAILED, "FAILED", str(failure))


def problem_report(
    code: str, title: str, detail: str, status: int, details: Mapping[str, Any] | None = None
) -> ErrorReport:
    """Return the report for people about a problem of the API."""
    exit_code = exit_code_of(code, status)
    if exit_code is ExitCode.NO_CAPACITY:
        # HTTP has only "conflict" for this.
        return ErrorReport(exit_code, code, "no capacity", detail, ALLOW_MORE, status, details=details or {})
    suggestion = _SUGGESTIONS.get(code) or _SUGGESTIONS_BY_STATUS.get(status, "")
    return ErrorReport(exit_code, code, title, detail, suggestion, status, details=details or {})


def exit_code_of(code: str, status: int) -> ExitCode:
    """Return the exit code for this problem of the API."""
    if code in NO_CAPACITY_CODES:
        return ExitCode.NO_CAPACITY
    if code in BUDGET_CODES:
        return ExitCode.BUDGET
    if code == UNEXPECTED_REPLY and status not in (401, 403):
        # A "not found" of another program proves nothing about our instances.
        return ExitCode.UNREACHABLE
    return _EXIT_CODE_OF_STATUS.get(status, ExitCode.FAILED)


def unknown_outcome(failure: ServerUnreachable, suggestion: str) -> CommandError:
    """Return the failure of a request that was sent and got no answer: the server may have accepted it."""
    return CommandError.of(
        ErrorReport(
            ExitCode.UNREACHABLE,
            "OUTCOME_UNKNOWN",
            "the server did not answer; the request may have been accepted",
            failure.reason,
            suggestion,
        )
    )


def detail_of(failure: ServerUnreachable | ServerRefusal) -> str:
    """Return in a few words why the server did not do it."""
    if isinstance(failure, ServerUnreachable):
        return failure.reason
    # Without a title, the answer is from another program.
    return failure.detail if failure.title else f"the server answered with HTTP {failure.status}"


def explained_exit_codes() -> str:
    """Return the table for `gpuherd --help`."""
    lines = (f"{code.value:>5}  {meaning}" for code, meaning in MEANINGS.items())
    return "\n".join(("Exit codes:", *lines))


def print_error(output: Output, report: ErrorReport) -> None:
    """Print what happened, why, and what to do; the request id last."""
    if output.mode is Mode.JSON:
        # One line: the last line of stderr is the error, whatever progress came before.
        click.echo(as_json(report.as_json(), indent=None), err=True)
        return
    err = output.err
    err.print(Text.assemble(("error: ", "bold red"), safe(report.title), (f" ({safe(report.code)})", "dim")))
    if report.detail and report.detail != report.title:
        output.note(f"  {safe(report.detail)}")
    # A single wrong field is already the whole detail.
    for problem in (error for error in report.errors if error.get("message") != report.detail):
        output.note(f"  {safe(problem.get('field', '?'))}: {safe(problem.get('message', ''))}")
    if reasons := list(_reasons(report.details)):
        output.table_on_stderr(_REASON_COLUMNS, reasons)
    for candidate in _candidates(report.details):
        output.note(f"  {safe(candidate)}")
    if report.suggestion:
        output.note(f"try: {safe(report.suggestion)}", "yellow")
    if report.request_id:
        output.note(f"request id: {safe(report.request_id)}", "dim")


def _refusal_report(refusal: ServerRefusal) -> ErrorReport:
    title = refusal.title or NOT_GPUHERD
    report = problem_report(refusal.code, title, detail_of(refusal), refusal.status, refusal.details)
    can_wait = refusal.retry_after_s is not None and refusal.is_temporary
    if can_wait and report.exit_code is not ExitCode.NO_CAPACITY:
        report = replace(report, suggestion=f"try again in {format_duration(refusal.retry_after_s or 0)}")
    fields = ("field", "code", "message")
    return replace(
        report,
        errors=[{name: str(error.get(name) or "") for name in fields} for error in refusal.errors],
        retry_after_s=refusal.retry_after_s,
        request_id=refusal.request_id,
    )


_REASON_COLUMNS = [
    Column("REGION", "region", 1),
    Column("OFFER", "offer", 2, shrinks_to=12),
    Column("WHY NOT", "reason", 0, shrinks_to=20, wraps=True),
]


def _reasons(details: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """Yield why each region had nothing: a reason for each offer, or one for the whole region."""
    regions = details.get("regions")
    for entry in regions if isinstance(regions, list) else []:
        if not isinstance(entry, dict):
            continue
        region = str(entry.get("region", "?"))
        offers = entry.get("offers")
        for offer in offers if isinstance(offers, list) else []:
            if isinstance(offer, dict):
                name = str(offer.get("productName") or offer.get("productId") or "")
                yield {"region": region, "offer": name, "reason": str(offer.get("reason", ""))}
        if entry.get("reason"):
            yield {"region": region, "offer": "", "reason": str(entry["reason"])}


def _candidates(details: Mapping[str, Any]) -> Iterator[str]:
    """Yield which instances an ambiguous name could mean."""
    candidates = details.get("candidates")
    for candidate in candidates if isinstance(candidates, list) else []:
        if isinstance(candidate, dict):
            names = ("id", "instanceId", "name", "status")
            yield "  ".join(str(candidate[name]) for name in names if candidate.get(name))
        else:
            yield str(candidate)
