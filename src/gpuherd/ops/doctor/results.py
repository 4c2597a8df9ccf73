"""What the doctor finds: a verdict of each check here, and of each assumption about Novita."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from gpuherd.entrypoints.cli.cli_errors import ExitCode

SETTINGS = "settings"


class Severity(StrEnum):
    """How bad it is; the later, the worse."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class CheckResult:
    """What one check found. Where it is not well, `advice` says what to do."""

    check: str
    verdict: Severity
    message: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class Agreement(StrEnum):
    """Whether Novita does what gpuherd assumes."""

    AS_ASSUMED = "as assumed"
    DIFFERS = "differs"
    NOT_SEEN = "not seen"


@dataclass(frozen=True)
class LiveFinding:
    """One assumption, and what was seen of it. `changes` says what a difference means for the service."""

    check: str
    assumed: str
    seen: str
    verdict: Agreement
    changes: str = ""
    # Settings that follow, as `NAME=value`.
    settings: tuple[str, ...] = ()
    # For programs; nothing in it is secret, and nothing names the account's other machines.
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Quote:
    """What the paid checks cost at most, whatever becomes of the doctor."""

    usd: Decimal
    explanation: str


@dataclass(frozen=True)
class Rented:
    """What the paid checks found; `machine` is what a later look at the bill needs."""

    findings: Sequence[LiveFinding]
    machine: Mapping[str, Any] | None = None
    # Why not everything could be looked at, if so.
    broke_off: str | None = None


class CannotLook(Exception):
    """The checks could not be made; the message says why and what to do."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
