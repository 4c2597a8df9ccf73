"""From what was found to what it means and what to do: pure, so that every case can be tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches

from gpuherd.entrypoints.cli.doctor import SETTINGS, Finding, Verdict
from gpuherd.settings import NAMES, Source

OK, WARNING, PROBLEM = Verdict.OK, Verdict.WARNING, Verdict.PROBLEM

CLOCK_MAX = timedelta(seconds=30)


def judge_settings(problems: Sequence[str], sources: Mapping[str, Source]) -> list[Finding]:
    """One finding for each problem, with where the value came from."""
    if not problems:
        said = sum(source is not Source.DEFAULT for source in sources.values())
        return [Finding(SETTINGS, OK, f"{said} set, the rest as by default", facts={"set": said})]
    return [_bad_setting(problem, sources) for problem in problems]


def _bad_setting(problem: str, sources: Mapping[str, Source]) -> Finding:
    name = problem.partition(":")[0]
    source = sources.get(name)
    if source is None:
        return Finding(SETTINGS, PROBLEM, problem, "correct it; gpuherd config lists all settings")
    where = "the environment" if source is Source.ENVIRONMENT else source.value
    return Finding(
        SETTINGS,
        PROBLEM,
        f"{problem} (it comes from {where})",
        f"correct {name} in {where}, or take it out",
        {"setting": name, "source": source.value},
    )


def judge_strangers(names: Sequence[str]) -> list[Finding]:
    """Variables that look like settings: somebody believes that they do something."""
    return [
        Finding(
            SETTINGS,
            WARNING,
            f"{name} is in the environment, but there is no such setting",
            f"did you mean {close[0]}?" if (close := get_close_matches(name, NAMES, 1)) else "take it out",
            {"setting": name, "source": Source.ENVIRONMENT.value},
        )
        for name in names
    ]


def judge_clock(ahead: timedelta | None, whose: str) -> list[Finding]:
    """Compare two clocks; nothing is said where there was nothing to compare."""
    if ahead is None:
        return []
    seconds = round(ahead.total_seconds(), 1)
    facts = {"aheadSeconds": seconds}
    if abs(ahead) <= CLOCK_MAX:
        return [Finding("clock", OK, f"agrees with the clock of {whose}", facts=facts)]
    way = "ahead of" if seconds > 0 else "behind"
    return [
        Finding(
            "clock",
            WARNING,
            f"this machine is {abs(seconds):g} s {way} {whose}: receivers refuse webhooks signed so",
            "let the clock be set by the network: timedatectl set-ntp true",
            facts,
        )
    ]
