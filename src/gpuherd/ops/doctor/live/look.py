"""The free checks: reads only, about twenty of them, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuherd.adapters.novita import novita_json
from gpuherd.adapters.novita.novita_billing import HOST_BILLING, METRICS_PATH
from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_json import whole
from gpuherd.adapters.novita.paged_list import LONG_PAGE_SIZE, PAGE_SIZE
from gpuherd.domain.cloud.offer import BillingMode, Offer
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.ops.doctor.live import catalogue, lists, money
from gpuherd.ops.doctor.live.calls import NovitaCalls
from gpuherd.ops.doctor.live.lists import NumberedPages
from gpuherd.ops.doctor.results import CannotLook, LiveFinding

# Ids that nobody has: a machine's are 16 hexadecimal digits, drawn at random.
NO_MACHINE_ID = "0" * 16
NO_TEMPLATE_ID = "0"
OTHER_PAGE_NAMES = ("pageNo", "page", "pageNumber")
METRICS_WINDOW = timedelta(minutes=10)
BILL_WINDOW = timedelta(days=1)


@dataclass(frozen=True)
class FreeLook:
    """What was found, and what a rental can be chosen from."""

    findings: list[LiveFinding]
    offers: tuple[Offer, ...]
    template_id: str | None


async def look(calls: NovitaCalls, now: datetime, calls_per_minute: int) -> FreeLook:
    """Make all free checks; `CannotLook` where Novita does not answer, or does not take the key."""
    clusters = await calls.get("/clusters")
    if clusters.status in (401, 403):
        raise CannotLook(
            f"Novita does not accept NOVITA_API_KEY ({catalogue.unread(clusters)})", ExitCode.AUTH
        )
    products = await calls.get("/products", billingMethod=BillingMode.ON_DEMAND.value)
    spot = await calls.get("/products", billingMethod=BillingMode.SPOT.value)
    templates = await calls.get("/templates", pageSize=str(PAGE_SIZE), pageNum="1")
    findings = [
        catalogue.judge_regions(clusters, products),
        catalogue.judge_prices(products),
        catalogue.judge_spot_prices(spot),
        catalogue.judge_templates(templates),
        catalogue.judge_unknown_template(await calls.get("/template", templateId=NO_TEMPLATE_ID)),
    ]
    findings += await _look_at_lists(calls, templates)
    findings += await _look_at_money(calls, now)
    findings.append(money.judge_limit_headers(calls.limit_headers, calls_per_minute))
    findings.append(money.judge_throttling(calls.throttled))
    regions = novita_json.read_regions(catalogue.rows_of(clusters, "data") or ())
    return FreeLook(
        findings,
        novita_json.read_offers(catalogue.rows_of(spot, "data") or (), regions),
        catalogue.pick_template(catalogue.rows_of(templates, "template") or ()),
    )


async def _look_at_lists(calls: NovitaCalls, templates: NovitaReply) -> list[LiveFinding]:
    ordinary = await calls.get("/gpu/instances", pageSize=str(PAGE_SIZE), pageNum="1")
    long = await calls.get("/gpu/instances", pageSize=str(LONG_PAGE_SIZE), pageNum="1")
    machines = _total(ordinary)
    if machines >= 2 or _total(templates) < 2:
        pages = await _numbered(calls, ("/gpu/instances", "instances", "id"), "machines", machines)
    else:
        # The account has too few machines to turn a page; templates are paged by the same words.
        pages = await _numbered(calls, ("/templates", "template", "Id"), "templates", _total(templates))
    unknown = await calls.get("/gpu/instance", instanceId=NO_MACHINE_ID)
    return [
        lists.judge_list(ordinary),
        lists.judge_long_pages(long, ordinary),
        lists.judge_page_parameter(pages),
        lists.judge_unknown_machine(unknown),
        money.judge_metrics(await _metrics(calls, catalogue.rows_of(ordinary, "instances") or [])),
    ]


async def _numbered(
    calls: NovitaCalls, where: tuple[str, str, str], of_what: str, total: int
) -> NumberedPages:
    path, key, id_name = where
    if total < 2:
        return NumberedPages(of_what, total, {}, {})

    async def page(name: str, number: int) -> tuple[str, ...]:
        return lists.ids_of(await calls.get(path, pageSize="1", **{name: str(number)}), key, id_name)

    by_number = {number: await page("pageNum", number) for number in (0, 1, 2)}
    works = len(set(by_number.values())) > 1
    others = {} if works else {name: await page(name, 2) for name in OTHER_PAGE_NAMES}
    return NumberedPages(of_what, total, by_number, others)


async def _metrics(calls: NovitaCalls, rows: list[dict[str, Any]]) -> NovitaReply | None:
    machine_id = lists.running_id(rows)
    return None if machine_id is None else await read_metrics(calls, machine_id)


async def read_metrics(calls: NovitaCalls, machine_id: str) -> NovitaReply:
    """Ask for the last minutes of a machine."""
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
        money.judge_balance(await calls.get(f"{HOST_BILLING}/balance/detail")),
        money.judge_bill_rows(await read_bill(calls, now - BILL_WINDOW, now)),
        money.judge_volumes(await calls.get("/networkstorages/list", pageSize=str(PAGE_SIZE), pageNo="1")),
    ]


async def read_bill(calls: NovitaCalls, begin: datetime, end: datetime) -> NovitaReply:
    """Ask for the rows of machines in a time."""
    return await calls.get(
        f"{HOST_BILLING}/bill/list",
        cycleType="Hour",
        productCategory="gpu",
        startTime=str(int(begin.timestamp())),
        endTime=str(int(end.timestamp())),
    )


def _total(reply: NovitaReply) -> int:
    return whole(reply.body or {}, "total") or 0
