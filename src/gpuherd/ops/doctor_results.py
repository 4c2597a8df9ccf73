"""The results of the doctor's checks, and their meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.settings import SETTING_NAMES, SettingSource

SETTINGS = "settings"


class Severity(StrEnum):
    """How bad a result is; later values are worse."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check. If it is not good, `advice` says what to do."""

    check: str
    verdict: Severity
    message: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class Agreement(StrEnum):
    """Whether Novita behaves as gpuherd assumes."""

    AS_ASSUMED = "as assumed"
    DIFFERS = "differs"
    NOT_SEEN = "not seen"


@dataclass(frozen=True)
class LiveFinding:
    """One assumption, and what was observed. `changes` says what a difference means for the service."""

    check: str
    assumed: str
    seen: str
    verdict: Agreement
    changes: str = ""
    # Recommended settings, as `NAME=value`.
    settings: tuple[str, ...] = ()
    # For programs. It contains no secret and names no other machine of the account.
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Quote:
    """The maximum cost of the paid checks, even if the doctor is killed."""

    usd: Decimal
    explanation: str


@dataclass(frozen=True)
class Rented:
    """The results of the paid checks; `machine` is what a later check of the bill needs."""

    findings: Sequence[LiveFinding]
    machine: Mapping[str, Any] | None = None
    # Why some checks are missing, if they are.
    broke_off: str | None = None


class CannotLook(Exception):
    """The checks could not be made. The message says why and what to do."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


OK, WARNING, PROBLEM = Severity.OK, Severity.WARNING, Severity.PROBLEM
CLOCK_OFFSET_MAX = timedelta(seconds=30)


def judge_settings(problems: Sequence[str], sources: Mapping[str, SettingSource]) -> list[CheckResult]:
    """Return one finding for each problem, with the source of the value."""
    if not problems:
        said = sum(source is not SettingSource.DEFAULT for source in sources.values())
        return [CheckResult(SETTINGS, OK, f"{said} set, the rest as by default", facts={"set": said})]
    return [_bad_setting(problem, sources) for problem in problems]


def _bad_setting(problem: str, sources: Mapping[str, SettingSource]) -> CheckResult:
    name = problem.partition(":")[0]
    source = sources.get(name)
    if source is None:
        return CheckResult(SETTINGS, PROBLEM, problem, "correct it; gpuherd config lists all settings")
    where = "the environment" if source is SettingSource.ENVIRONMENT else source.value
    return CheckResult(
        SETTINGS,
        PROBLEM,
        f"{problem} (it comes from {where})",
        f"correct {name} in {where}, or take it out",
        {"setting": name, "source": source.value},
    )


def judge_unknown_variables(names: Sequence[str]) -> list[CheckResult]:
    """Warn about variables that look like settings: the user may expect an effect."""
    return [
        CheckResult(
            SETTINGS,
            WARNING,
            f"{name} is in the environment, but there is no such setting",
            f"did you mean {close[0]}?"
            if (close := get_close_matches(name, SETTING_NAMES, 1))
            else "take it out",
            {"setting": name, "source": SettingSource.ENVIRONMENT.value},
        )
        for name in names
    ]


def judge_clock(clock_offset: timedelta | None, whose: str) -> list[CheckResult]:
    """Compare two clocks. Without a second clock there is no finding."""
    if clock_offset is None:
        return []
    seconds = round(clock_offset.total_seconds(), 1)
    facts = {"aheadSeconds": seconds}
    if abs(clock_offset) <= CLOCK_OFFSET_MAX:
        return [CheckResult("clock", OK, f"agrees with the clock of {whose}", facts=facts)]
    way = "ahead of" if seconds > 0 else "behind"
    return [
        CheckResult(
            "clock",
            WARNING,
            f"this machine is {abs(seconds):g} s {way} {whose}: receivers refuse webhooks signed so",
            "let the clock be set by the network: timedatectl set-ntp true",
            facts,
        )
    ]
