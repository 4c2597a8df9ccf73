"""What the billing API tells: the rows written so far, by fault with another price or with gaps."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gpuherd.simulator.calls import ApiEndpoint, Call
from gpuherd.simulator.faults.fault import FaultKind
from gpuherd.simulator.money.bill import BillRow, bill_rows
from gpuherd.simulator.money.charge import Span
from gpuherd.simulator.world.state import WorldState


def billed(state: WorldState, window: Span, cycle_s: int) -> list[BillRow]:
    rows = bill_rows(state.charges(), state.now(), window, cycle_s)
    fault = state.faults.draw(FaultKind.WRONG_BILL, Call(ApiEndpoint.BILL))
    if fault is None:
        return rows
    if fault.chosen_style == "missing_rows":
        return rows[::2]
    factor = Fraction(2 if fault.factor is None else fault.factor).limit_denominator(1000)
    return [
        replace(row, usd=row.usd * factor, usd_per_unit_hour=row.usd_per_unit_hour * factor) for row in rows
    ]
