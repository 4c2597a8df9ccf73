"""The figures of one seed: ours with its targets, and every other strategy beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from bench.month.baselines import POLICIES, play_baseline
from bench.month.floors import Floors, floors, unservable_s
from bench.month.market import Market, play_market
from bench.month.measure import Cause, Figures, measure
from bench.month.ours import compare_ledger, ends_late_s, played_by_us, rented_at_other_price
from bench.month.play import PACE, play_month
from bench.month.users import DAY_S, HOUR_S, Habit, draw_rentals
from bench.month.weather import PULL_S, WeatherPlan, draw_weather, month_catalogue
from bench.report import Line, percentile
from gpuherd.simulator.simulated_machine import Times
from gpuherd.simulator.world import PULL_JITTER
from proof.chaos.checks.ledger_sums import LedgerSums
from proof.chaos.process import Pace

# The whole way to a machine that runs, at its longest.
BOOT_MAX_S = sum((Times().pending, Times().to_create, Times().creating, PULL_S * (1 + PULL_JITTER)))
IDLE = frozenset({Habit.INTERACTIVE})
# An end by idleness that comes later than this was held back.
HELD_S = 600.0
TIMED = frozenset(Habit) - IDLE


@dataclass(frozen=True)
class Month:
    """One seed, played by everybody."""

    plan: WeatherPlan
    rentals: int
    market: Market
    ours: Figures
    others: Sequence[Figures]
    ledger: LedgerSums
    # Machines that are off because their price moved while they were rented.
    other_prices: int
    floors: Floors
    late_s: Sequence[float]
    idle_late_s: Sequence[float]
    crashes: int
    looks: int
    # When the brake on idleness first held, in days, if it did.
    braked_day: float | None = None
    # What nobody caught.
    unhandled: tuple[str, ...] = ()

    def floor_b_usd(self, of: Figures) -> Fraction:
        """Return floor B of what a strategy served: each serves other hours."""
        return self.floors.b_usd if of is self.ours else floors(of.served, self.market, self.plan).b_usd

    @property
    def price_ratio(self) -> float:
        return float((self.ours.paid_usd - self.ours.waste_usd) / self.floors.b_usd)

    @property
    def waste_share(self) -> float:
        return float(self.ours.waste_usd / self.ours.paid_usd)

    @property
    def endable_waste_share(self) -> float:
        """Return the waste without what was paid while nobody could have ended anything."""
        return float((self.ours.waste_usd - self.ours.outage_usd) / self.ours.paid_usd)

    @property
    def is_inside(self) -> bool:
        """Tell whether the sum of the ledger is off by no more than it states."""
        return abs(self.ledger.ledger_usd - self.ledger.billed_usd) <= self.ledger.stated_usd

    def lines(self) -> list[Line]:
        """Return ours beside the targets."""
        return [*self._money(), *self._service(), *self._ends()]

    def _money(self) -> list[Line]:
        ours, ledger = self.ours, self.ledger
        paid = float(ours.paid_usd)
        off, error = len(ledger.beyond) - self.other_prices, float(ledger.relative_error)
        return [
            Line("paid", f"${paid:,.2f}", "", None, "", None),
            Line("ledger error", f"{error:.4%}", "", None, "≤ 0.1 %", error <= 0.001),
            Line(
                "ledger within its uncertainty",
                f"off by ${float(abs(ledger.ledger_usd - ledger.billed_usd)):.4f}, "
                f"states ± ${float(ledger.stated_usd):.4f}",
                "",
                None,
                "always",
                self.is_inside,
            ),
            Line(
                "each machine within its uncertainty",
                f"{off} are not; {self.other_prices} whose price moved while they were rented",
                "",
                None,
                "always",
                not ledger.beyond,
            ),
            Line("floor A", f"${float(self.floors.a_usd):,.2f}", "", None, "", None),
            Line(
                "floor B", f"${float(self.floors.b_usd):,.2f}, {self.floors.boots} boots", "", None, "", None
            ),
            Line(
                "(paid - waste) / floor B",
                f"{self.price_ratio:.4f}",
                "",
                None,
                "≤ 1.02",
                self.price_ratio <= 1.02,
            ),
            Line(
                "waste",
                f"{self.waste_share:.3%} (${float(ours.waste_usd):.3f}: {self._waste()})",
                "",
                None,
                "≤ 0.1 % of paid",
                self.waste_share <= 0.001,
                self._after_end(),
            ),
            Line(
                "waste but for outages of the cloud",
                f"{self.endable_waste_share:.3%}",
                "",
                None,
                "≤ 0.1 % of paid",
                self.endable_waste_share <= 0.001,
                f"${float(ours.outage_usd):.2f} were paid after an end while the cloud answered nobody",
            ),
            Line("failed boots", f"${float(ours.usd[Cause.FAILED_BOOTS]):.3f}", "", None, "", None),
        ]

    def _waste(self) -> str:
        causes = (Cause.UNBOUND, Cause.AFTER_END, Cause.OVERLAP)
        return ", ".join(f"{it} {float(self.ours.usd[it]):.3f}" for it in causes)

    def _after_end(self) -> str:
        """Say whose ends were late, in dollars."""
        whose = {
            "deletes": (Habit.BATCH, Habit.ON_DEMAND),
            "leases": (Habit.FORGOTTEN,),
            "silence": (Habit.AGENT,),
            "idleness": (Habit.INTERACTIVE,),
        }
        sums = {name: sum(self.ours.after_end_usd[it] for it in habits) for name, habits in whose.items()}
        return "after the end: " + ", ".join(f"{name} ${float(usd):.2f}" for name, usd in sums.items())

    def _service(self) -> list[Line]:
        ours = self.ours
        asked = _share(ours.replaced_served_s, ours.replaced_wanted_s)
        everybody = _share(ours.served_s, ours.wanted_s)
        gaps, fillable = ours.gaps_s or [0.0], self.fillable_gaps_s() or [0.0]
        boot_s = BOOT_MAX_S + 60
        return [
            Line(
                "wanted seconds served, where replacement is asked for",
                f"{asked:.3%}",
                "",
                None,
                "≥ 99.5 %",
                asked >= 0.995,
                self._missed(),
            ),
            Line(
                "wanted seconds served, all rentals",
                f"{everybody:.3%}",
                "",
                None,
                "≥ 99.5 %",
                everybody >= 0.995,
                "half of the rentals do not ask for replacement: what the cloud takes back is over for them",
            ),
            Line(
                "gap after a reclaim, p50 / p99",
                f"{percentile(gaps, 50):.0f} s / {percentile(gaps, 99):.0f} s ({len(ours.gaps_s)} reclaims)",
                "",
                None,
                f"0 s / < {boot_s:.0f} s (boot + 60 s)",
                percentile(gaps, 50) == 0 and percentile(gaps, 99) < boot_s,
                self._long_gaps(boot_s),
            ),
            Line(
                "of it, while an offer fitted, p50 / p99",
                f"{percentile(fillable, 50):.0f} s / {percentile(fillable, 99):.0f} s, "
                f"at most {max(fillable):.0f} s",
                "",
                None,
                f"0 s / < {boot_s:.0f} s (boot + 60 s)",
                percentile(fillable, 50) == 0 and percentile(fillable, 99) < boot_s,
            ),
            Line(
                "rentals usable / over / refused",
                f"{ours.started} / {ours.done} / {sum(ours.refused.values())} of {self.rentals}",
                "",
                None,
                "",
                None,
            ),
        ]

    def fillable_gaps_s(self) -> list[float]:
        """Return of each gap the seconds in which something was offered that fits the wish."""
        return [
            until_s - at_s - unservable_s(it, [(at_s, until_s)], self.market)
            for it, at_s, until_s in self.ours.gaps
        ]

    def _long_gaps(self, boot_s: float) -> str:
        long = [
            (whole_s, fillable_s)
            for whole_s, fillable_s in zip(self.ours.gaps_s, self.fillable_gaps_s(), strict=True)
            if whole_s >= boot_s
        ]
        empty = sum(fillable_s < boot_s for _, fillable_s in long)
        return f"{len(long)} were longer than that, {empty} of them because no offer fitted the wish"

    def _missed(self) -> str:
        """Say why seconds of those who asked for replacement were not served."""
        missed = [(it, spans) for it, spans in self.ours.missed if it.replaces]
        lost_s = sum(b - a for _, spans in missed for a, b in spans)
        nothing_s = sum(unservable_s(it, spans, self.market) for it, spans in missed)
        return f"{lost_s / HOUR_S:.1f} h not served; in {nothing_s / HOUR_S:.1f} h of them no offer fitted"

    def _ends(self) -> list[Line]:
        late, idle = self.late_s or [0.0], self.idle_late_s or [0.0]
        worst = percentile(late, 99)
        return [
            Line(
                "end (user, lease, silence) → stop call, p50 / p99",
                f"{percentile(late, 50):.1f} s / {worst:.1f} s ({len(self.late_s)} ends)",
                "",
                None,
                "p99 < 15 s",
                worst < 15,
            ),
            Line(
                "idle for long enough → stop call, p50 / p99",
                f"{percentile(idle, 50):.0f} s / {percentile(idle, 99):.0f} s ({len(self.idle_late_s)} ends)",
                "",
                None,
                "",
                None,
                self._held(),
            ),
        ]

    def _held(self) -> str:
        """Say how many ends by idleness came late, and by what."""
        held = sum(it > HELD_S for it in self.idle_late_s)
        brake = "never held" if self.braked_day is None else f"first held on day {self.braked_day:.0f}"
        return f"samples are a minute old; {held} ends were more than {HELD_S:.0f} s late; the brake {brake}"


def play_everything(seed: int, rentals: int, days: float, pace: Pace = PACE) -> Month:
    """Play a month of one seed with every strategy."""
    plan = draw_weather(seed, days)
    users = draw_rentals(seed, rentals, days, month_catalogue())
    market = play_market(plan)
    harness = play_month(plan, users, pace)
    played = played_by_us(harness)
    ours, ledger = measure(played), compare_ledger(harness)
    braked_s = harness.evidence.ends.braked_s
    others = [measure(play_baseline(it, plan, users)) for it in POLICIES]
    return Month(
        plan=plan,
        rentals=rentals,
        market=market,
        ours=ours,
        others=others,
        ledger=ledger,
        other_prices=rented_at_other_price(harness, ledger),
        floors=floors(ours.served, market, plan),
        late_s=ends_late_s(harness, played, TIMED),
        idle_late_s=ends_late_s(harness, played, IDLE),
        crashes=harness.evidence.crashes,
        looks=harness.evidence.looks,
        braked_day=None if braked_s is None else braked_s / DAY_S,
        unhandled=tuple(map(repr, harness.evidence.unhandled)),
    )


def _share(part_s: float, whole_s: float) -> float:
    return part_s / whole_s if whole_s else 1.0
