"""Adds up what came of the runs, as a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from proof.replicas.checker import KINDS, TERM_S, terms
from proof.replicas.plan import Plan
from proof.replicas.takeover import Takeover


@dataclass
class Report:
    """The sums, and what each broken promise was."""

    runs: int = 0
    # Strikes that hit what they were meant for.
    struck: int = 0
    requests: int = 0
    failed: int = 0
    machines: int = 0
    creates: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[Plan, str]] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    boots_s: list[float] = field(default_factory=list)

    def break_promises(self, plan: Plan, broken: list[str]) -> None:
        self.broken.update(it.partition(":")[0] for it in broken)
        self.violations += [(plan, it) for it in broken]

    def table(self, took_s: float) -> str:
        counts = ", ".join(f"{self.broken[it]} {it}" for it in KINDS)
        return "\n".join(
            (
                f"  {self.runs} runs, {self.struck} strikes, {took_s:,.0f} s",
                f"  {self.requests:,} requests ({self.failed} ended as failed, with a reason), "
                f"{self.creates:,} create calls, {self.machines:,} machines rented",
                f"  broken promises: {counts}",
                self._takeovers(),
                f"  from start to ready: {_spread(self.boots_s)}",
            )
        )

    def _takeovers(self) -> str:
        took_s = [it.took_s for it in self.takeovers if it.others_were_up]
        others = len(self.takeovers) - len(took_s)
        by_terms = Counter(map(terms, took_s))
        counted = ", ".join(f"{n} within {it} of {TERM_S:.0f} s" for it, n in sorted(by_terms.items()))
        return (
            f"  jobs of the dead taken over by one who was up: {_spread(took_s)}"
            + (f"; {counted}" if counted else "")
            + (f"; and {others} when all had been down" if others else "")
        )


def _spread(values: list[float]) -> str:
    if not values:
        return "none"
    ordered = sorted(values)
    return (
        f"{len(ordered)}, median {ordered[len(ordered) // 2]:.2f} s, "
        f"p95 {ordered[int(len(ordered) * 0.95)]:.2f} s, worst {ordered[-1]:.2f} s"
    )
