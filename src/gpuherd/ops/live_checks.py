"""The free checks of `doctor --live`: catalogue, lists, money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from gpuherd.adapters.novita import novita_failures, novita_json
from gpuherd.adapters.novita.novita_billing import (
    HOST_BILLING,
    METRICS_PATH,
    UNITS_PER_USD,
    read_charge,
    read_samples,
)
from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.adapters.novita.novita_json import (
    text,
    texts,
    usd,
    whole,
)
from gpuherd.adapters.novita.paged_list import LONG_PAGE_SIZE, PAGE_SIZE
from gpuherd.domain.cloud.offer import BillingMode, Offer
from gpuherd.domain.errors import MachineGone, NotFound
from gpuherd.domain.money.bill import BillCategory
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.ops import live_assumptions
from gpuherd.ops.doctor_results import CannotLook, LiveFinding
from gpuherd.ops.live_assumptions import NovitaCalls, Throttled

# No GPU is cheaper or more expensive per hour. A price outside has another unit.
PLAUSIBLE_USD = (Decimal("0.03"), Decimal(60))


def rows_of(reply: NovitaReply, key: str) -> list[dict[str, Any]] | None:
    """Return the rows of a reply; None if the service would not accept them."""
    if not reply.is_success or reply.body is None:
        return None
    found = novita_json.rows(reply.body, key)
    return None if found is None else [row for row in found if isinstance(row, dict)]


def unread(reply: NovitaReply) -> str:
    """Describe an unexpected reply."""
    problem = novita_failures.read_problem(reply.body, reply.secrets)
    if not reply.is_success and problem is not None:
        return f"HTTP {reply.status}: {problem}"
    names = ", ".join(sorted(reply.body)[:8]) if reply.body else "no JSON object"
    return f"HTTP {reply.status} with {names}"


def judge_regions(clusters: NovitaReply, products: NovitaReply) -> LiveFinding:
    cluster_rows, product_rows = rows_of(clusters, "data"), rows_of(products, "data")
    if cluster_rows is None or product_rows is None:
        return live_assumptions.REGIONS.differs(unread(clusters if cluster_rows is None else products))
    codes = {region.code for region in novita_json.read_regions(cluster_rows)}
    # Products that are not on sale may still name a closed region.
    on_sale = [row for row in product_rows if row.get("availableDeploy") is not False]
    labels = {label for row in on_sale for label in texts(row, "regions")}
    lost = sorted(label for label in labels if novita_json.region_code(label) not in codes)
    seen = f"{len(codes)} clusters, {len(labels)} labels of products on sale"
    if lost:
        return live_assumptions.REGIONS.differs(
            f"{seen}; no cluster for {', '.join(lost[:5])}", lost=lost[:20]
        )
    return live_assumptions.REGIONS.judged(bool(codes), seen, clusters=len(codes), labels=len(labels))


def judge_prices(products: NovitaReply) -> LiveFinding:
    rows = rows_of(products, "data")
    if rows is None:
        return live_assumptions.PRICES.differs(unread(products))
    if not rows:
        return live_assumptions.PRICES.not_seen("no product is listed")
    forms = sorted({_form(row.get("price")) for row in rows})
    read = [price for row in rows if (price := usd(row, "price")) is not None]
    low, high = PLAUSIBLE_USD
    odd = [price for price in read if not low <= price <= high]
    unreadable = [row for row in rows if whole(row, "price") is None]
    seen = f"{len(rows)} products, price as {' or '.join(forms)}"
    if read:
        seen += f", read as {min(read)} to {max(read)} USD"
    holds = bool(read) and not odd and not unreadable
    return live_assumptions.PRICES.judged(
        holds, seen, forms=forms, odd=len(odd), unreadable=len(unreadable), products=len(rows)
    )


def judge_spot_prices(products: NovitaReply) -> LiveFinding:
    rows = [
        row
        for row in rows_of(products, "data") or ()
        if BillingMode.SPOT in texts(row, "billingMethods") and usd(row, "price") is not None
    ]
    if not rows:
        return live_assumptions.SPOT_PRICES.not_seen("no product is sold as spot now")
    pairs = [(usd(row, "spotPrice"), usd(row, "price")) for row in rows]
    missing = sum(spot is None for spot, _ in pairs)
    dearer = sum(spot is not None and price is not None and spot > price for spot, price in pairs)
    seen = f"{len(rows)} products as spot, {missing} without a spotPrice, {dearer} dearer than on demand"
    return live_assumptions.SPOT_PRICES.judged(not missing and not dearer, seen)


def judge_templates(reply: NovitaReply) -> LiveFinding:
    rows = rows_of(reply, "template")
    if rows is None or reply.body is None:
        return live_assumptions.TEMPLATES.differs(unread(reply))
    total = whole(reply.body, "total")
    readable = sum(novita_json.read_template(row) is not None for row in rows)
    seen = f"{len(rows)} rows of {'no total' if total is None else total}, {readable} of them readable"
    return live_assumptions.TEMPLATES.judged(total is not None and readable == len(rows), seen)


def judge_unknown_template(reply: NovitaReply) -> LiveFinding:
    error = novita_failures.failure_of_read(reply, ResourceKind.TEMPLATE)
    return live_assumptions.NO_TEMPLATE.judged(isinstance(error, NotFound), unread(reply))


def pick_template(rows: Sequence[dict[str, Any]]) -> str | None:
    """Return a template for a test rental: a plain system is small and boots everywhere."""
    ranked = sorted(
        (row for row in rows if text(row, "Id") and not text(row, "imageAuth")),
        key=lambda row: ("ubuntu" not in text(row, "name").casefold(), text(row, "channel") != "official"),
    )
    return text(ranked[0], "Id") if ranked else None


def _form(value: object) -> str:
    """Describe how a number is written, without the number."""
    match value:
        case bool() | None:
            return "nothing"
        case int():
            return "a number"
        case float():
            return "a number with decimals"
        case str() if value.strip().lstrip("-").isdigit():
            return "digits in a string"
        case str():
            return "a string with other characters than digits"
        case _:
            return "something else"


@dataclass(frozen=True)
class NumberedPages:
    """The ids of the first rows of one-row pages: without a page number, and numbered."""

    of_what: str
    total: int
    by_number: Mapping[int, Sequence[str]]
    # The second page, requested with the parameter names of other clients.
    by_other_name: Mapping[str, Sequence[str]]


def judge_list(reply: NovitaReply) -> LiveFinding:
    rows = rows_of(reply, "instances")
    if rows is None or reply.body is None:
        return live_assumptions.LIST.differs(unread(reply))
    total = whole(reply.body, "total")
    readable = sum(bool(text(row, "id")) for row in rows)
    seen = f"{len(rows)} rows, total {'missing' if total is None else total}"
    return live_assumptions.LIST.judged(total is not None and readable == len(rows), seen)


def judge_long_pages(long: NovitaReply, ordinary: NovitaReply) -> LiveFinding:
    """Compare a page of 1,000 with one of 100."""
    rows, usual = rows_of(long, "instances"), rows_of(ordinary, "instances")
    if rows is None:
        return live_assumptions.LONG_PAGES.differs(unread(long))
    if usual is not None and len(rows) < len(usual):
        return live_assumptions.LONG_PAGES.differs(f"{len(rows)} rows where a page of 100 has {len(usual)}")
    return live_assumptions.LONG_PAGES.holds(f"HTTP {long.status}, {len(rows)} rows")


def judge_page_parameter(pages: NumberedPages) -> LiveFinding:
    """Judge which parameter name selects the second page."""
    if pages.total < 2:
        return live_assumptions.PAGE_PARAMETER.not_seen(f"the account has fewer than 2 {pages.of_what}")
    first, second, zeroth = (pages.by_number.get(number, ()) for number in (1, 2, 0))
    where = f"on {pages.of_what}"
    if first and second and first != second:
        base = "0 and 1 are the first" if zeroth == first else "1 is the first"
        if zeroth and zeroth not in (first, second):
            base = "0 is the first"
        return live_assumptions.PAGE_PARAMETER.holds(f"`pageNum` works {where}; {base}", base=base)
    if zeroth and first and zeroth != first:
        return live_assumptions.PAGE_PARAMETER.holds(f"`pageNum` works {where}; 0 is the first", base="0")
    other = next((name for name, ids in pages.by_other_name.items() if ids and ids != first), None)
    seen = f"`pageNum` has no effect {where}" + (f", but `{other}` has" if other else "")
    return live_assumptions.PAGE_PARAMETER.differs(seen, parameter=other)


def judge_unknown_machine(reply: NovitaReply) -> LiveFinding:
    error = novita_failures.failure_of_read(reply, ResourceKind.MACHINE)
    return live_assumptions.NO_MACHINE.judged(
        isinstance(error, MachineGone), unread(reply), status=reply.status
    )


def ids_of(reply: NovitaReply, key: str, name: str) -> tuple[str, ...]:
    """Return the ids on a page, to compare pages."""
    return tuple(text(row, name) for row in rows_of(reply, key) or ())


def running_id(rows: Sequence[dict[str, Any]]) -> str | None:
    """Return a running machine, to read its metrics."""
    return next((text(row, "id") for row in rows if text(row, "status") == "running"), None)


# The maximum effect of rounding seconds and prices on an amount.
ROW_SLACK = Decimal("0.0005")


def judge_balance(reply: NovitaReply) -> LiveFinding:
    if not reply.is_success or reply.body is None:
        return live_assumptions.BALANCE.differs(unread(reply))
    value = reply.body.get("availableBalance")
    form = "missing" if value is None else f"a {type(value).__name__}"
    readable = whole(reply.body, "availableBalance") is not None
    return live_assumptions.BALANCE.judged(
        readable, f"availableBalance is {form}{'' if readable else ' that is no whole number'}"
    )


def judge_bill_rows(reply: NovitaReply) -> LiveFinding:
    """Judge the bill rows: all readable, each amount rounded down and equal to quantity times price."""
    rows = rows_of(reply, "bills")
    if rows is None:
        return live_assumptions.BILL_ROWS.differs(unread(reply))
    if not rows:
        return live_assumptions.BILL_ROWS.not_seen(
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
    return live_assumptions.BILL_ROWS.judged(not (unreadable or otherwise or off), seen, **facts)


def _misses_something(row: dict[str, Any]) -> bool:
    charge = read_charge(row, BillCategory.GPU)
    return charge is None or not charge.owner_id or not charge.quantity or charge.unit_usd is None


def _exact(row: dict[str, Any]) -> Decimal | None:
    # Without its exact form, an amount would be compared with itself.
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
        return live_assumptions.VOLUMES.differs(unread(reply))
    total = whole(reply.body, "total")
    readable = sum(bool(text(row, "storageId")) and whole(row, "storageSize") is not None for row in rows)
    seen = f"{len(rows)} rows, total {'missing' if total is None else total}, {readable} readable"
    return live_assumptions.VOLUMES.judged(total is not None and readable == len(rows), seen)


def judge_metrics(reply: NovitaReply | None) -> LiveFinding:
    if reply is None:
        return live_assumptions.METRICS.not_seen("no machine runs on the account")
    if not reply.is_success or reply.body is None:
        return live_assumptions.METRICS.differs(unread(reply))
    samples = read_samples(reply.body)
    if not samples and _has_no_points(reply.body):
        return live_assumptions.METRICS.not_seen(
            "a machine runs, but nothing was measured in the last ten minutes"
        )
    gpus = len(samples[0].gpus) if samples else 0
    return live_assumptions.METRICS.judged(
        bool(samples), f"{len(samples)} samples of the CPU and {gpus} GPUs"
    )


def _has_no_points(body: dict[str, Any]) -> bool:
    expected = ("cpuUtilization", "gpuUtilization")
    return all(name in body for name in expected) and not body["cpuUtilization"]


def judge_limit_headers(headers: dict[str, str], calls_per_minute: int) -> LiveFinding:
    """Judge the rate-limit headers. Only a number that is clearly per minute can be compared."""
    told = {name: value for name, value in headers.items() if name != "retry-after"}
    if not told:
        return live_assumptions.LIMITS.holds("no header tells of a limit")
    seen = ", ".join(f"{name}: {value}" for name, value in sorted(told.items()))
    limits = [int(value) for name, value in told.items() if name.endswith("limit") and value.isdigit()]
    lowest = min(limits, default=0)
    if lowest and (not calls_per_minute or lowest < calls_per_minute):
        return live_assumptions.LIMITS.differs(seen, f"NOVITA_RATE_LIMIT={lowest}", headers=told)
    return live_assumptions.LIMITS.holds(seen, headers=told)


def judge_throttling(throttled: Sequence[Throttled]) -> LiveFinding:
    if not throttled:
        return live_assumptions.THROTTLED.not_seen("no call was answered with 429, and none was provoked")
    without = sum(it.retry_after_s is None for it in throttled)
    seen = f"{len(throttled)} answers 429, {without} of them without Retry-After"
    return live_assumptions.THROTTLED.judged(not without, seen)


# Unused ids: a machine's id has 16 random hexadecimal digits.
NO_MACHINE_ID = "0" * 16


NO_TEMPLATE_ID = "0"
OTHER_PAGE_NAMES = ("pageNo", "page", "pageNumber")
METRICS_WINDOW = timedelta(minutes=10)
BILL_WINDOW = timedelta(days=1)


@dataclass(frozen=True)
class FreeLook:
    """The findings, and the choices for a rental."""

    findings: list[LiveFinding]
    offers: tuple[Offer, ...]
    template_id: str | None


async def look(calls: NovitaCalls, now: datetime, calls_per_minute: int) -> FreeLook:
    """Make all free checks; `CannotLook` if Novita does not answer or rejects the key."""
    clusters = await calls.get("/clusters")
    if clusters.status in (401, 403):
        raise CannotLook(f"Novita does not accept NOVITA_API_KEY ({unread(clusters)})", ExitCode.AUTH)
    products = await calls.get("/products", billingMethod=BillingMode.ON_DEMAND.value)
    spot = await calls.get("/products", billingMethod=BillingMode.SPOT.value)
    templates = await calls.get("/templates", pageSize=str(PAGE_SIZE), pageNum="1")
    findings = [
        judge_regions(clusters, products),
        judge_prices(products),
        judge_spot_prices(spot),
        judge_templates(templates),
        judge_unknown_template(await calls.get("/template", templateId=NO_TEMPLATE_ID)),
    ]
    findings += await _look_at_lists(calls, templates)
    findings += await _look_at_money(calls, now)
    findings.append(judge_limit_headers(calls.limit_headers, calls_per_minute))
    findings.append(judge_throttling(calls.throttled))
    regions = novita_json.read_regions(rows_of(clusters, "data") or ())
    return FreeLook(
        findings,
        novita_json.read_offers(rows_of(spot, "data") or (), regions),
        pick_template(rows_of(templates, "template") or ()),
    )


async def _look_at_lists(calls: NovitaCalls, templates: NovitaReply) -> list[LiveFinding]:
    ordinary = await calls.get("/gpu/instances", pageSize=str(PAGE_SIZE), pageNum="1")
    long = await calls.get("/gpu/instances", pageSize=str(LONG_PAGE_SIZE), pageNum="1")
    machines = _total(ordinary)
    if machines >= 2 or _total(templates) < 2:
        pages = await _numbered(calls, ("/gpu/instances", "instances", "id"), "machines", machines)
    else:
        # The account has too few machines for two pages; templates use the same parameters.
        pages = await _numbered(calls, ("/templates", "template", "Id"), "templates", _total(templates))
    unknown = await calls.get("/gpu/instance", instanceId=NO_MACHINE_ID)
    return [
        judge_list(ordinary),
        judge_long_pages(long, ordinary),
        judge_page_parameter(pages),
        judge_unknown_machine(unknown),
        judge_metrics(await _metrics(calls, rows_of(ordinary, "instances") or [])),
    ]


async def _numbered(
    calls: NovitaCalls, where: tuple[str, str, str], of_what: str, total: int
) -> NumberedPages:
    path, key, id_name = where
    if total < 2:
        return NumberedPages(of_what, total, {}, {})

    async def page(name: str, number: int) -> tuple[str, ...]:
        return ids_of(await calls.get(path, pageSize="1", **{name: str(number)}), key, id_name)

    by_number = {number: await page("pageNum", number) for number in (0, 1, 2)}
    works = len(set(by_number.values())) > 1
    others = {} if works else {name: await page(name, 2) for name in OTHER_PAGE_NAMES}
    return NumberedPages(of_what, total, by_number, others)


async def _metrics(calls: NovitaCalls, rows: list[dict[str, Any]]) -> NovitaReply | None:
    machine_id = running_id(rows)
    return None if machine_id is None else await read_metrics(calls, machine_id)


async def read_metrics(calls: NovitaCalls, machine_id: str) -> NovitaReply:
    """Read the last minutes of a machine's metrics."""
    now = calls.clock.now()
    return await calls.get(
        METRICS_PATH,
        instanceId=machine_id,
        startTime=str(int((now - METRICS_WINDOW).timestamp())),
        endTime=str(int(now.timestamp())),
        interval="60",
    )


async def _look_at_money(calls: NovitaCalls, now: datetime) -> list[LiveFinding]:
    return [
        judge_balance(await calls.get(f"{HOST_BILLING}/balance/detail")),
        judge_bill_rows(await read_bill(calls, now - BILL_WINDOW, now)),
        judge_volumes(await calls.get("/networkstorages/list", pageSize=str(PAGE_SIZE), pageNo="1")),
    ]


async def read_bill(calls: NovitaCalls, begin: datetime, end: datetime) -> NovitaReply:
    """Read the bill rows of machines in a period."""
    return await calls.get(
        f"{HOST_BILLING}/bill/list",
        cycleType="Hour",
        productCategory="gpu",
        startTime=str(int(begin.timestamp())),
        endTime=str(int(end.timestamp())),
    )


def _total(reply: NovitaReply) -> int:
    return whole(reply.body or {}, "total") or 0
