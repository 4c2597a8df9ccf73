"""What the spans of an instance came to at one moment: from then on the rate says how it goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpuherd.domain.costs.amount import cost_nano
from gpuherd.domain.costs.span import CostSpan


@dataclass(frozen=True)
class SettledCost:
    """An amount, by how much it may be wrong, and what is paid an hour since."""

    amount: int = 0
    doubt: int = 0
    rate: int = 0
    at: datetime | None = None


def settle(spans: Iterable[CostSpan], now: datetime) -> SettledCost:
    """Sum up the spans of one instance."""
    amount = doubt = rate = 0
    for it in spans:
        amount += it.cost(now)
        doubt += it.uncertainty()
        if it.ended is None:
            rate += it.rate.nano_usd
            if it.sure_until is not None:
                doubt += cost_nano(it.rate.nano_usd, now - min(it.sure_until, now))
    return SettledCost(amount, doubt, rate, now)
