"""The page `bench/month.md`: what was measured, beside the targets and beside the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from bench.month.baselines import BY_HAND_S, HEARD_OF_S
from bench.month.figures import Month
from bench.month.measure import Cause, Figures
from bench.month.users import HOUR_S

BAR = 60
MARKS = {
    Cause.SERVING: "█",
    Cause.BOOTS: "b",
    Cause.STOPPED_DISKS: "d",
    Cause.FAILED_BOOTS: "f",
    Cause.UNBOUND: "u",
    Cause.AFTER_END: "e",
    Cause.OVERLAP: "o",
}


def page(months: Sequence[Month], commit: str, now: datetime, cpu_s: float) -> str:
    """Return the page; the first month is shown in full, the others in a line each."""
    first = months[0]
    plan = first.plan
    return "\n".join(
        [
            "# The simulated month",
            "",
            f"Made by `make month` (seed {plan.seed}) on {now.astimezone(UTC):%Y-%m-%d} at `{commit}`, in "
            f"{cpu_s:.0f} s of CPU time.",
            f"{first.rentals:,} rentals in {plan.days:g} virtual days. How each figure is defined, and what",
            "it leaves out: [docs/month.md](../docs/month.md).",
            "",
            f"The weather: {len(plan.outages)} outages, {len(plan.blind_windows)} spells of empty lists, "
            f"{len(plan.jumps)} steps of the clock, {first.crashes} kills of the process,",
            f"{first.ours.reclaims} machines taken back while they were wanted; {first.looks:,} lists read.",
            "",
            "## Against the targets",
            "",
            _table(
                ("figure", "measured", "target", "met"),
                ((it.what, it.ours, it.target, it.cells[-1]) for it in first.lines()),
            ),
            "",
            *(f"- **{it.what}**: {it.note}" for it in first.lines() if it.note),
            "",
            "## Against others",
            "",
            f"The same users on the same days. Models of our own, see docs/month.md; what nobody ends is "
            f"heard of after {HEARD_OF_S / HOUR_S:g} h, and a person stops {BY_HAND_S / 60:g} min late.",
            "",
            _strategies(first),
            "",
            "```text",
            *_chart([first.ours, *first.others]),
            "```",
            "",
            *_seeds(months),
            "",
        ]
    )


def terminal(month: Month) -> str:
    """Return the figures of one month for people who wait for it."""
    rows = [(it.what, it.ours, it.target, it.cells[-1]) for it in month.lines()]
    widths = [max(len(row[n]) for row in rows) for n in range(4)]
    table = [
        "  ".join(it.ljust(width) for it, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*table, "", *_chart([month.ours, *month.others])])


def missed(month: Month) -> list[str]:
    """Return what does not meet its target."""
    return [it.what for it in month.lines() if it.met is False]


def beaten(month: Month) -> list[str]:
    """Return the strategies whose served hour costs more than ours."""
    ours = month.ours.usd_per_served_hour
    return [it.name for it in month.others if it.usd_per_served_hour > ours]


def _strategies(month: Month) -> str:
    ours = month.ours.usd_per_served_hour
    rows = [
        (
            it.name,
            f"${float(it.paid_usd):,.2f}",
            f"{it.served_s / HOUR_S:,.0f} h",
            f"${it.usd_per_served_hour:.4f}",
            f"{it.usd_per_served_hour / ours:.3f}",
            f"{float((it.paid_usd - it.waste_usd) / month.floor_b_usd(it)):.3f}",
            f"{float(it.waste_usd / it.paid_usd):.2%}",
            f"{it.served_s / it.wanted_s:.2%}",
            f"{it.replaced_served_s / it.replaced_wanted_s:.2%}" if it.replaced_wanted_s else "",
            str(it.started),
        )
        for it in (month.ours, *month.others)
    ]
    heads = (
        "strategy",
        "paid",
        "served",
        "a served hour",
        "to ours",
        "to its floor B",
        "waste",
        "wanted served",
    )
    return _table((*heads, "where replacement is asked for", "rentals usable"), rows)


def _chart(all_figures: Sequence[Figures]) -> list[str]:
    """Return dollars by cause as bars."""
    most = max(float(it.paid_usd) for it in all_figures)
    width = max(len(it.name) for it in all_figures)
    lines = []
    for it in all_figures:
        bar = "".join(MARKS[cause] * round(float(usd) / most * BAR) for cause, usd in it.usd.items())
        lines.append(f"{it.name.ljust(width)}  {bar} ${float(it.paid_usd):,.0f}")
    legend = ", ".join(f"{mark} {cause.value}" for cause, mark in MARKS.items())
    return [*lines, "", f"dollars paid, by cause: {legend}"]


def _seeds(months: Sequence[Month]) -> list[str]:
    if len(months) == 1:
        return []
    rows = [
        (
            str(it.plan.seed),
            f"${float(it.ours.paid_usd):,.2f}",
            f"{float(it.ledger.relative_error):.4%}{'' if it.is_inside else ' OUTSIDE'}",
            f"{it.price_ratio:.4f}",
            f"{it.waste_share:.3%}",
            f"{it.ours.replaced_served_s / it.ours.replaced_wanted_s:.3%}",
            f"{it.ours.served_s / it.ours.wanted_s:.3%}",
            f"{len(beaten(it))} of {len(it.others)}",
            "; ".join(missed(it)) or "nothing",
        )
        for it in months
    ]
    heads = ("seed", "paid", "ledger error", "to floor B", "waste", "served (replacement)", "served (all)")
    return [f"## {len(months)} seeds", "", _table((*heads, "others beaten", "missed"), rows)]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))
