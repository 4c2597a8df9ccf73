"""From facts to findings: pure functions, so that every case can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches

from gpuherd.ops.doctor.results import SETTINGS, CheckResult, Severity
from gpuherd.settings import SETTING_NAMES, SettingSource

OK, WARNING, PROBLEM = Severity.OK, Severity.WARNING, Severity.PROBLEM

CLOCK_OFFSET_MAX = timedelta(seconds=30)


def judge_settings(problems: Sequence[str], sources: Mapping[str, SettingSource]) -> list[CheckResult]:
    """One finding for each problem, with where the value came from."""
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
    """Variables that look like settings: somebody believes that they do something."""
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
    """Compare two clocks; nothing is said where there was nothing to compare."""
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
