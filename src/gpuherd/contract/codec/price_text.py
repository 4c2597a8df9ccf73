"""What an hour costs, as people read it: the same digits wherever a price is shown."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

CENT, MILLICENT = Decimal("0.01"), Decimal("0.00001")


def price_text(usd: Decimal) -> str:
    """Return a price: cents at least, a thousandth of one at most, and never less than it costs.

    The price of a disk has no end, and whoever takes a price that is shown for a cap must not be refused.
    """
    shown = usd.quantize(MILLICENT, ROUND_CEILING)
    cents = shown.quantize(CENT)
    return f"${cents if cents == shown else shown.normalize():,f}"
