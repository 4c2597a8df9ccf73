"""The endpoints below `/openapi/v1` of the host: bill rows, balance and metrics."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gpuherd.simulator.fault_effects import ask, ask_about
from gpuherd.simulator.faults import ApiEndpoint, Call, FaultKind
from gpuherd.simulator.instance_api import Route, Values
from gpuherd.simulator.novita_shapes import OWNER, Json
from gpuherd.simulator.simulated_bill import (
    CYCLES,
    DAY_S,
    GPU,
    BillRow,
    Span,
    UseSample,
    bill_rows,
    exact,
    tenthousandths,
)
from gpuherd.simulator.simulated_request import Fields, invalid
from gpuherd.simulator.world import World
from gpuherd.simulator.world_state import WorldState


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


LATE_S = 60.0


"""The newest sample is about this old."""


def measured(state: WorldState, machine_id: str, window: Span, interval_s: int) -> list[UseSample]:
    """Return the samples of a window; a machine that did not run has none."""
    machine = state.find(machine_id)
    shown = Span(max(window.begin, machine.created_at), min(window.end, state.now() - LATE_S))
    samples = state.uses.samples(
        machine_id, shown, interval_s, lambda moment: machine.status(moment) == "running"
    )
    fault = state.faults.draw(FaultKind.WRONG_METRICS, state.call_about(ApiEndpoint.METRICS, machine))
    match fault.chosen_style if fault else "":
        case "zeros":
            return [UseSample(sample.at, 0.0, 0.0) for sample in samples]
        case "gap":
            return samples[: len(samples) // 2]
        case "empty":
            return []
        case _:
            return samples


HOST_PATH = "/openapi/v1"
PRICE_PRECISION = 10


"""Unit prices are sent in 1/10,000 USD divided by this."""


INTERVAL_S_MIN = 15
WINDOW_S_MAX = 31 * DAY_S
FOREVER = 10**11


async def list_bills(world: World, query: Values) -> Json:
    """Return all rows without pages: a long period gives one long reply."""
    fields = Fields(query)
    now = world.now()
    begin = fields.whole("startTime", low=0, high=FOREVER, default=int(now) - DAY_S)
    # The last second belongs to the period.
    end = fields.whole("endTime", low=0, high=FOREVER, default=int(now)) + 1
    cycle_s = CYCLES[fields.one_of("cycleType", list(CYCLES), "Hour")]
    rows = await ask(world, ApiEndpoint.BILL, lambda: billed(world, Span(begin, end), cycle_s))
    category, owner_id = fields.text("productCategory"), fields.text("ownerId")
    name = fields.text("productName").casefold()
    shown = [
        _row_shape(world, row)
        for row in rows
        if category in ("", "summary", row.category) and owner_id in ("", row.owner_id)
    ]
    return {"bills": [row for row in shown if name in str(row["productName"]).casefold()]}


async def get_balance(world: World, _: Values) -> Json:
    left = await ask(world, ApiEndpoint.BALANCE, world.balance_usd)
    return {
        "availableBalance": str(tenthousandths(left)),
        "cashBalance": str(tenthousandths(left)),
        "creditLimit": "0",
        "pendingCharges": "0",
        "outstandingInvoices": "0",
    }


async def get_metrics(world: World, query: Values) -> Json:
    fields = Fields(query)
    now = int(world.now())
    begin = fields.whole("startTime", low=0, high=FOREVER, default=now - 3600)
    end = fields.whole("endTime", low=0, high=FOREVER, default=now)
    if end - begin > WINDOW_S_MAX:
        raise invalid("startTime", "must not be more than 31 days before endTime")
    interval_s = fields.whole("interval", low=INTERVAL_S_MIN, high=DAY_S, default=INTERVAL_S_MIN)
    machine_id = fields.text("instanceId", shortest=1)
    window = Span(begin, end)
    samples = await ask_about(
        world, ApiEndpoint.METRICS, machine_id, lambda: measured(world, machine_id, window, interval_s)
    )
    gpu_ids = world.find(machine_id).gpu_ids
    gpu = [_point(sample.at, sample.gpu) for sample in samples]
    by_gpu = {"avg": gpu, "gpuIds": [{"gpuId": str(gpu_id), "items": gpu} for gpu_id in gpu_ids]}
    cpu = [_point(sample.at, sample.cpu) for sample in samples]
    return {
        "cpuUtilization": cpu,
        "memUtilization": cpu,
        "rootDiskUtilization": [_point(sample.at, 30.0) for sample in samples],
        "gpuUtilization": by_gpu,
        "gpuMemUtilization": by_gpu,
    }


def _point(at: int, value: float) -> Json:
    return {"timestamp": str(at), "value": value}


def _row_shape(world: World, row: BillRow) -> Json:
    machine = world.machines.get(row.owner_id)
    volume = world.volumes.all.get(row.owner_id)
    name = machine.product_name if machine and row.kind == GPU else "storage"
    hours = 1 if row.kind == GPU else 24
    unit = str(_unit_price(row.usd_per_unit_hour * hours))
    amount, decimals = str(tenthousandths(row.usd)), exact(row.usd)
    return {
        "userId": OWNER,
        "startTime": str(int(row.span.begin)),
        "endTime": str(int(row.span.end) - 1),
        "billingMethod": "1",
        "productName": name if volume is None else "network storage",
        "category": row.category,
        "ownerID": row.owner_id,
        "billNum0": str(round(row.quantity)),
        "billNum1": "0",
        "basePrice0": unit,
        "basePrice1": "0",
        "discountPrice0": unit,
        "discountPrice1": "0",
        "amount": amount,
        "voucherAmount": "0",
        "payAmount": amount,
        "payAmountDisplay": amount,
        "pricePrecision": str(PRICE_PRECISION),
        "productId": machine.request.product_id if machine else "",
        "amountDecimal": decimals,
        "voucherAmountDecimal": "0",
        "payableDecimal": decimals,
        "originAmountDecimal": decimals,
    }


def _unit_price(usd: Fraction) -> int:
    return round(usd * 10_000 * PRICE_PRECISION)


BILLING_ROUTES = (
    Route("GET", "/billing/bill/list", list_bills),
    Route("GET", "/billing/balance/detail", get_balance),
    Route("GET", "/metrics/gpu/instance", get_metrics),
)
