"""Answers as another Novita might give them: the documented ones, changed on their way in and out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any

from gpuherd.simulator.api.routes import Values
from gpuherd.simulator.api.shapes import Json
from gpuherd.simulator.catalogue import PRICE_UNITS_PER_USD
from gpuherd.simulator.deviation import Deviation
from gpuherd.simulator.errors import SimulatedError, invalid

PAGE_SIZE_MAX = 100
LIMIT_HEADERS = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59"}

Change = Callable[[dict[str, Any]], None]


def question_as(deviations: Collection[Deviation], path: str, values: Values) -> Values:
    """Return the question as this Novita understands it."""
    if path not in ("/gpu/instances", "/templates"):
        return values
    if Deviation.SHORT_PAGES in deviations and int(str(values.get("pageSize") or 0)) > PAGE_SIZE_MAX:
        raise invalid("pageSize", f"must not be more than {PAGE_SIZE_MAX}")
    if Deviation.PAGE_NO in deviations:
        return {**values, "pageNum": values.get("pageNo", "1")}
    return values


def answer_as(deviations: Collection[Deviation], path: str, body: Json) -> Json:
    """Return the answer as this Novita words it."""
    for deviation in deviations:
        for row in _rows(path, body):
            if change := _CHANGES.get((deviation, path)):
                change(row)
    return body


def error_as(deviations: Collection[Deviation], error: SimulatedError) -> SimulatedError:
    """Return the refusal as this Novita words it."""
    if Deviation.OTHER_NOT_FOUND in deviations and error.status == 404:
        return SimulatedError(400, "INSTANCE_ABSENT", "nothing is known under this id")
    return error


def headers_as(deviations: Collection[Deviation]) -> Mapping[str, str]:
    return LIMIT_HEADERS if Deviation.LIMITS_TOLD in deviations else {}


def _rows(path: str, body: Json) -> list[dict[str, Any]]:
    if path == "/gpu/instance":
        return [body]
    return next((value for value in body.values() if isinstance(value, list)), [])


def _hide_envs(row: dict[str, Any]) -> None:
    row["envs"] = []


def _hide_endpoints(row: dict[str, Any]) -> None:
    row["portMappings"] = [{**it, "endpoint": ""} for it in row["portMappings"]]
    row["connectComponentSSH"] = {"sshCommand": "", "password": "", "isRunning": False}


def _price_in_usd(row: dict[str, Any]) -> None:
    for name in ("price", "spotPrice"):
        row[name] = str(Decimal(row[name]) / PRICE_UNITS_PER_USD)


def _rename_cluster(row: dict[str, Any]) -> None:
    row["name"] = f"Data center {row['id']}"


def _round_up(row: dict[str, Any]) -> None:
    if Decimal(row["amountDecimal"]) * 10_000 != int(row["amount"]):
        row["amount"] = row["payAmount"] = str(int(row["amount"]) + 1)


def _bill_minutes(row: dict[str, Any]) -> None:
    seconds = int(row["billNum0"])
    billed = -(-seconds // 60) * 60
    row["billNum0"] = str(billed)
    exact = Decimal(row["amountDecimal"]) * billed / max(1, seconds)
    row["amountDecimal"], row["amount"] = f"{exact:.12f}", str(int(exact * 10_000))


def _hide_price(row: dict[str, Any]) -> None:
    row.pop("instancePrice")


def _hide_stamps(row: dict[str, Any]) -> None:
    row["lastStartedAt"] = "0"


LIST, GET = "/gpu/instances", "/gpu/instance"
_CHANGES: Mapping[tuple[Deviation, str], Change] = {
    (Deviation.ENVS_HIDDEN, LIST): _hide_envs,
    (Deviation.ENVS_HIDDEN, GET): _hide_envs,
    (Deviation.ENDPOINTS_NOT_LISTED, LIST): _hide_endpoints,
    (Deviation.PRICES_IN_USD, "/products"): _price_in_usd,
    (Deviation.OTHER_LABELS, "/clusters"): _rename_cluster,
    (Deviation.BILL_ROUNDED_UP, "/billing/bill/list"): _round_up,
    (Deviation.BILL_BY_MINUTE, "/billing/bill/list"): _bill_minutes,
    (Deviation.NO_INSTANCE_PRICE, LIST): _hide_price,
    (Deviation.NO_INSTANCE_PRICE, GET): _hide_price,
    (Deviation.NO_STAMPS, LIST): _hide_stamps,
    (Deviation.NO_STAMPS, GET): _hide_stamps,
}
