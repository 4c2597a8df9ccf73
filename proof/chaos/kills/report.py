"""Adds up what came of the runs, as a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from proof.chaos.kills.plan import Plan

KINDS = ("orphan", "duplicate", "lost", "integrity", "unended", "webhook", "secret", "ledger", "end")


@dataclass
class Line:
    """All runs of one kind of death."""

    runs: int = 0
    kills: int = 0
    # Runs in which the process died at the named point, as it was told to.
    reached: int = 0
    broken: Counter[str] = field(default_factory=Counter)


@dataclass
class Report:
    """The sums, and what each broken promise was."""

    lines: dict[str, Line] = field(default_factory=dict)
    violations: list[tuple[Plan, str]] = field(default_factory=list)
    boots_s: list[float] = field(default_factory=list)
    requests: int = 0
    machines: int = 0

    def add(
        self, plan: Plan, reached: list[bool], broken: list[str], boots_s: list[float], machines: int
    ) -> None:
        line = self.lines.setdefault(plan.label, Line())
        line.runs += 1
        line.kills += len(plan.kills)
        line.reached += bool(reached and reached[0])
        line.broken.update(it.partition(":")[0] for it in broken)
        self.violations += [(plan, it) for it in broken]
        self.boots_s += boots_s
        self.requests += len(plan.scripts)
        self.machines += machines

    @property
    def unreached(self) -> list[str]:
        """Points at which nobody ever died."""
        return [name for name, line in self.lines.items() if not line.reached]

    def table(self, took_s: float) -> str:
        head = f"  {'killed at':<22} {'runs':>5} {'kills':>6} {'there':>6} " + " ".join(
            f"{it:>9}" for it in KINDS
        )
        rows = [self._row(name, self.lines[name]) for name in sorted(self.lines)]
        total = Line()
        for line in self.lines.values():
            total.runs += line.runs
            total.kills += line.kills
            total.reached += line.reached
            total.broken.update(line.broken)
        boots = sorted(self.boots_s)
        return "\n".join(
            (
                head,
                *rows,
                self._row("total", total),
                "",
                f"  {self.requests:,} requests, {self.machines:,} machines rented, {took_s:,.0f} s "
                f"({took_s / max(total.runs, 1):.1f} s a run)",
                f"  from start to ready: median {boots[len(boots) // 2]:.2f} s, worst {boots[-1]:.2f} s"
                if boots
                else "  nothing was started",
            )
        )

    def _row(self, name: str, line: Line) -> str:
        counts = " ".join(f"{line.broken[it]:>9}" for it in KINDS)
        return f"  {name:<22} {line.runs:>5} {line.kills:>6} {line.reached:>6} {counts}"
