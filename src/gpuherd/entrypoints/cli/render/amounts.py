"""Amounts of money for people."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")
FINE = Decimal("0.0001")


def usd(amount: Decimal) -> str:
    """Say an amount: to the cent, or finer where that would be nothing."""
    cents = amount.quantize(CENT, ROUND_HALF_UP)
    shown = cents if abs(amount) >= 1 or cents == amount else amount.quantize(FINE, ROUND_HALF_UP)
    return f"-${-shown}" if shown < 0 else f"${shown}"


def usd_sure(amount: Decimal, uncertainty: Decimal) -> str:
    """Say an amount and by how much it may be wrong."""
    return usd(amount) if uncertainty < FINE else f"{usd(amount)} ± {usd(uncertainty).removeprefix('$')}"
