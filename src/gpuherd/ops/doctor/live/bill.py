"""The bill of the doctor's machine beside what was seen of it; rows come late, so it is asked for again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from gpuherd.adapters.novita.novita_billing import read_charge
from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_json import text
from gpuherd.domain.money.bill import BillCategory
from gpuherd.ops.doctor.live import assumptions
from gpuherd.ops.doctor.live.calls import NovitaCalls
from gpuherd.ops.doctor.live.catalogue import rows_of, unread
from gpuherd.ops.doctor.live.look import read_bill
from gpuherd.ops.doctor.results import CannotLook, LiveFinding

ASK_AGAIN = "no rows yet; ask again tomorrow: gpuherd doctor --live --report FILE"
# A poll at each edge of each run.
SLACK_S = 8.0


async def look_at_bill(calls: NovitaCalls, machine: Mapping[str, Any]) -> LiveFinding:
    """Ask for the rows of the hours in which the machine was there."""
    sent_at = _moment(machine.get("sentAt"))
    if sent_at is None or not machine.get("cloudInstanceId"):
        return assumptions.BILL_SPAN.not_seen("the report does not say which machine")
    begin = sent_at.replace(minute=0, second=0, microsecond=0)
    try:
        reply = await read_bill(calls, begin, begin + timedelta(hours=3))
    except CannotLook as cannot:
        # What else was found must not be lost for it.
        return assumptions.BILL_SPAN.not_seen(str(cannot))
    return judge_bill(machine, reply)


def judge_bill(machine: Mapping[str, Any], reply: NovitaReply) -> LiveFinding:
    """Compare the billed seconds and the price with the runs that were seen."""
    rows = rows_of(reply, "bills")
    if rows is None:
        return assumptions.BILL_SPAN.differs(unread(reply))
    mine = [row for row in rows if text(row, "ownerID") == machine["cloudInstanceId"]]
    charges = [it for row in mine if (it := read_charge(row, BillCategory.GPU)) is not None]
    if not charges:
        return assumptions.BILL_SPAN.not_seen(ASK_AGAIN)
    billed_s = sum(it.quantity for it in charges)
    runs = [run for run in machine.get("runs") or () if isinstance(run, Mapping)]
    seen = {name: _seconds(runs, name) for name in ("paid", "running")}
    # Until the stop was asked for, or until it was done.
    longest_s = _seconds(runs, "paid", "exited")
    prices = {it.unit_usd for it in charges if it.unit_usd is not None}
    agreed = _decimal(machine.get("gpuHourlyUsd"))
    told = ", ".join(map(str, sorted(prices))) or "no price"
    words = (
        f"{billed_s} s billed in {len(charges)} rows at {told} USD; "
        f"seen {seen['paid']:.0f} to {longest_s:.0f} s from pulling, {seen['running']:.0f} s running"
    )
    fits = seen["paid"] - SLACK_S <= billed_s <= longest_s + SLACK_S
    facts = {"billedSeconds": billed_s, "fromPullingSeconds": round(longest_s), "rows": len(charges)}
    return assumptions.BILL_SPAN.judged(fits and prices == {agreed}, words, **facts)


def _seconds(runs: Iterable[Mapping[str, Any]], begin: str, end: str = "ended") -> float:
    total = 0.0
    for run in runs:
        since, until = _moment(run.get(begin)), _moment(run.get(end)) or _moment(run.get("ended"))
        if since is not None and until is not None:
            total += (until - since).total_seconds()
    return total


def _moment(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None
