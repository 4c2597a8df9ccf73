"""Runs many seeds and adds up what came of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuherd.domain.instance.instance import Goal, Status
from proof.chaos.checks.checker import check
from proof.chaos.checks.coverage import (
    REQUIRED_COVERAGE,
    REQUIRED_COVERAGE_ACCOUNTS,
    REQUIRED_COVERAGE_CAPACITY,
    REQUIRED_COVERAGE_ENDS,
    REQUIRED_COVERAGE_HEIRS,
    REQUIRED_COVERAGE_LATE,
    REQUIRED_COVERAGE_STRICT,
    note_coverage,
)
from proof.chaos.checks.evidence import Evidence, Violation
from proof.chaos.checks.money_checker import machine_lifetimes, overlaps, owner_by_tag, surplus_s, wasted_s
from proof.chaos.predecessor import check_predecessor, owner_by_name, run_predecessor_schedule, unknown_s
from proof.chaos.runner import run_schedule, silence_logs
from proof.chaos.schedules import PROFILES, Schedule, draw_schedule


@dataclass
class Report:
    """The sums over some seeds."""

    profile: str
    schedules: int = 0
    operations: int = 0
    crashes: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    accepted: int = 0
    as_wished: int = 0
    overlapping: int = 0
    wasted_s: float = 0.0
    surplus_s: float = 0.0
    violations: list[tuple[int, Violation]] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)

    def add(self, other: Report) -> None:
        """Take another report's sums in."""
        for name in ("schedules", "operations", "crashes", "accepted", "as_wished", "overlapping"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.virtual_s += other.virtual_s
        self.cpu_s += other.cpu_s
        self.wasted_s += other.wasted_s
        self.surplus_s += other.surplus_s
        self.violations += other.violations
        self.coverage.update(other.coverage)

    @property
    def unreached(self) -> list[str]:
        """What should have happened at least once, and did not."""
        wanted = {
            "calm": (),
            "late": (*REQUIRED_COVERAGE, *REQUIRED_COVERAGE_LATE),
            "strict": REQUIRED_COVERAGE_STRICT,
            "accounts": REQUIRED_COVERAGE_ACCOUNTS,
            "capacity": REQUIRED_COVERAGE_CAPACITY,
            "ends": REQUIRED_COVERAGE_ENDS,
            "ends_calm": (),
            "heirs": REQUIRED_COVERAGE_HEIRS,
        }.get(self.profile, REQUIRED_COVERAGE)
        return [name for name in wanted if not self.coverage[name]]

    @property
    def success_share(self) -> float:
        """How many of the accepted wishes ended as they were meant to."""
        return self.as_wished / self.accepted if self.accepted else 0.0

    def lines(self) -> list[str]:
        """Return the table."""
        rows: list[tuple[str, object]] = [
            ("profile", self.profile),
            ("schedules", f"{self.schedules:,}"),
            ("operations", f"{self.operations:,}"),
            ("crashes", f"{self.crashes:,}"),
            ("virtual days", f"{self.virtual_s / 86400:,.1f}"),
            ("schedules a second of one core", f"{self.schedules / self.cpu_s:,.0f}" if self.cpu_s else "-"),
            ("ended as wished", f"{self.success_share:.1%} of {self.accepted:,}"),
            ("requests that ever had two machines", self.overlapping),
            ("machine seconds that nobody had", f"{self.wasted_s:,.0f}"),
            ("of these, after a list had shown them", f"{self.surplus_s:,.0f}"),
            (
                "broken promises",
                f"{len(self.violations):,} in {len({it for it, _ in self.violations}):,} schedules",
            ),
        ]
        table = [f"  {name:<38} {value}" for name, value in rows]
        reached = [f"  {count:>9,}  {name}" for name, count in sorted(self.coverage.items())]
        return [*table, "", "  reached", *reached]


def run_seeds(seeds: Iterable[int], profile: str) -> Report:
    """Run these seeds in this process."""
    silence_logs()
    report = Report(profile)
    begin_s = time.process_time()
    for seed in seeds:
        report.add(run_seed(seed, profile)[0])
    report.cpu_s = time.process_time() - begin_s
    return report


def run_seed(seed: int, profile: str) -> tuple[Report, Evidence]:
    """Run one seed and check it."""
    return judge(draw_schedule(seed, profile))


def judge(schedule: Schedule) -> tuple[Report, Evidence]:
    """Play a schedule and hold the service to its promises."""
    seed, profile = schedule.seed, schedule.profile
    evidence, _ = run_schedule(schedule)
    lifetimes = list(machine_lifetimes(evidence, owner_by_tag))
    violations = check(evidence, abandoned_may_overlap=profile == "late")
    wasted = wasted_s(evidence, lifetimes)
    if PROFILES[profile].late_max <= 1 and wasted > 0:
        violations.append(Violation("waste", f"machines existed for {wasted:.0f} s that nobody had"))
    instances = [row.instance for row in evidence.tables.instances.values()]
    report = Report(
        profile,
        schedules=1,
        operations=len(schedule.ops),
        crashes=evidence.crashes,
        virtual_s=evidence.ended_s,
        accepted=len(instances),
        as_wished=sum(it.usable or it.goal is not Goal.RUNNING for it in instances),
        overlapping=len({one.owner for one, _ in overlaps(lifetimes)}),
        wasted_s=wasted,
        surplus_s=surplus_s(lifetimes),
        violations=[(seed, it) for it in violations],
        coverage=note_coverage(evidence),
    )
    return report, evidence


def run_predecessor(seeds: Iterable[int]) -> Report:
    """Run the way without intent and tag through the storms of these seeds."""
    silence_logs()
    report = Report("predecessor")
    begin_s = time.process_time()
    for seed in seeds:
        schedule = draw_schedule(seed)
        evidence = run_predecessor_schedule(schedule)
        lifetimes = list(machine_lifetimes(evidence, owner_by_name))
        report.schedules += 1
        report.operations += len(schedule.ops)
        report.crashes += evidence.crashes
        report.virtual_s += evidence.ended_s
        wishes = [row.instance for row in evidence.tables.instances.values()]
        report.accepted += len(wishes)
        report.as_wished += sum(it.status in (Status.RUNNING, Status.DELETED) for it in wishes)
        report.overlapping += len({one.owner for one, _ in overlaps(lifetimes)})
        report.wasted_s += unknown_s(evidence, lifetimes)
        report.violations += [(seed, it) for it in check_predecessor(evidence)]
    report.cpu_s = time.process_time() - begin_s
    return report
