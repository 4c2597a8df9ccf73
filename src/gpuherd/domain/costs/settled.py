"""What the spans of an instance came to at one moment: from then on the rate says how it goes on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpuherd.domain.costs.amount import cost_nano
from gpuherd.domain.costs.span import CostSpan
from gpuherd.domain.instance.settled_cost import SettledCost


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
