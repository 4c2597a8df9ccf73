"""Balance, bill rows, volumes, metrics and limits: their form, never their amounts."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from gpuherd.adapters.novita.novita_billing import UNITS_PER_USD, read_charge, read_samples
from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_json import text, whole
from gpuherd.domain.money.bill import BillCategory
from gpuherd.ops.doctor.live import assumptions
from gpuherd.ops.doctor.live.calls import Throttled
from gpuherd.ops.doctor.live.catalogue import rows_of, unread
from gpuherd.ops.doctor.results import LiveFinding

# What the rounding of a second and of a price may make of a row's amount.
ROW_SLACK = Decimal("0.0005")


def judge_balance(reply: NovitaReply) -> LiveFinding:
    if not reply.is_success or reply.body is None:
        return assumptions.BALANCE.differs(unread(reply))
    value = reply.body.get("availableBalance")
    form = "missing" if value is None else f"a {type(value).__name__}"
    readable = whole(reply.body, "availableBalance") is not None
    return assumptions.BALANCE.judged(
        readable, f"availableBalance is {form}{'' if readable else ' that is no whole number'}"
    )


def judge_bill_rows(reply: NovitaReply) -> LiveFinding:
    """Judge the rows of the account: all readable, each amount rounded down, each of quantity and price."""
    rows = rows_of(reply, "bills")
    if rows is None:
        return assumptions.BILL_ROWS.differs(unread(reply))
    if not rows:
        return assumptions.BILL_ROWS.not_seen(
            "the last day has no rows; ask again after something was rented"
        )
    unreadable = sum(_misses_something(row) for row in rows)
    otherwise = sum(not _is_rounded_down(row) for row in rows)
    off = sum(not _is_product(row) for row in rows)
    seen = (
        f"{len(rows)} rows: {unreadable} not readable, {otherwise} not rounded down, "
        f"{off} whose amount is not price times quantity"
    )
    facts = {"rows": len(rows), "unreadable": unreadable, "roundedOtherwise": otherwise, "notAProduct": off}
    return assumptions.BILL_ROWS.judged(not (unreadable or otherwise or off), seen, **facts)


def _misses_something(row: dict[str, Any]) -> bool:
    charge = read_charge(row, BillCategory.GPU)
    return charge is None or not charge.owner_id or not charge.quantity or charge.unit_usd is None


def _exact(row: dict[str, Any]) -> Decimal | None:
    # An amount without its exact form would be judged by itself.
    charge = read_charge(row, BillCategory.GPU) if text(row, "amountDecimal") else None
    return None if charge is None else charge.amount_usd


def _is_rounded_down(row: dict[str, Any]) -> bool:
    exact, units = _exact(row), whole(row, "amount")
    return exact is None or units is None or units == int(exact * UNITS_PER_USD)


def _is_product(row: dict[str, Any]) -> bool:
    charge, exact = read_charge(row, BillCategory.GPU), _exact(row)
    if charge is None or exact is None or charge.unit_usd is None or not charge.quantity:
        return True
    return abs(charge.unit_usd * charge.quantity / 3600 - exact) <= ROW_SLACK


def judge_volumes(reply: NovitaReply) -> LiveFinding:
    rows = rows_of(reply, "data")
    if rows is None or reply.body is None:
        return assumptions.VOLUMES.differs(unread(reply))
    total = whole(reply.body, "total")
    readable = sum(bool(text(row, "storageId")) and whole(row, "storageSize") is not None for row in rows)
    seen = f"{len(rows)} rows, total {'missing' if total is None else total}, {readable} readable"
    return assumptions.VOLUMES.judged(total is not None and readable == len(rows), seen)


def judge_metrics(reply: NovitaReply | None) -> LiveFinding:
    if reply is None:
        return assumptions.METRICS.not_seen("no machine runs on the account")
    if not reply.is_success or reply.body is None:
        return assumptions.METRICS.differs(unread(reply))
    samples = read_samples(reply.body)
    if not samples and _has_no_points(reply.body):
        return assumptions.METRICS.not_seen(
            "a machine runs, but nothing was measured in the last ten minutes"
        )
    gpus = len(samples[0].gpus) if samples else 0
    return assumptions.METRICS.judged(bool(samples), f"{len(samples)} samples of the CPU and {gpus} GPUs")


def _has_no_points(body: dict[str, Any]) -> bool:
    expected = ("cpuUtilization", "gpuUtilization")
    return all(name in body for name in expected) and not body["cpuUtilization"]


def judge_limit_headers(headers: dict[str, str], calls_per_minute: int) -> LiveFinding:
    """Say what the answers told of limits; only a number that is clearly for a minute can be compared."""
    told = {name: value for name, value in headers.items() if name != "retry-after"}
    if not told:
        return assumptions.LIMITS.holds("no header tells of a limit")
    seen = ", ".join(f"{name}: {value}" for name, value in sorted(told.items()))
    limits = [int(value) for name, value in told.items() if name.endswith("limit") and value.isdigit()]
    lowest = min(limits, default=0)
    if lowest and (not calls_per_minute or lowest < calls_per_minute):
        return assumptions.LIMITS.differs(seen, f"NOVITA_RATE_LIMIT={lowest}", headers=told)
    return assumptions.LIMITS.holds(seen, headers=told)


def judge_throttling(throttled: Sequence[Throttled]) -> LiveFinding:
    if not throttled:
        return assumptions.THROTTLED.not_seen("no call was answered with 429, and none was provoked")
    without = sum(it.retry_after_s is None for it in throttled)
    seen = f"{len(throttled)} answers 429, {without} of them without Retry-After"
    return assumptions.THROTTLED.judged(not without, seen)
