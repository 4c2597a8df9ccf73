"""Holds the ledger of a run of real processes against the bill of the simulated cloud.

Both run by the clock of this host, and the bill is the cloud's own: no code of the service touches it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from gpuherd.adapters.sql.sql_types import EPOCH, from_micros
from gpuherd.adapters.stores.usage_span_writes import span_of
from gpuherd.domain.instance.rent_attempt import parse_tag
from gpuherd.domain.money.span_rules import UNCLEAR
from gpuherd.domain.money.usage_span import NANO, CostSpan, doubt_nano

# What the checks need of a database, as it is stored there.
LEDGER_TABLES = ("meter", "ledger_day", "list_record", "instance", "installation")
MOMENTS = ("began_lo", "began_hi", "ended_lo", "ended_hi", "sure_until", "missed_at")
# Of one span: less than a nano-dollar each way, and a microsecond at each edge.
ROUNDING_NANO = 10
HOUR_S = 3600

Row = Mapping[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True)
class Bill:
    """What the simulated cloud says of all its machines, at one moment of its clock (Unix seconds)."""

    machines: Sequence[Row]
    now_s: float


def check_ledger(tables: Mapping[str, Sequence[Row]], bill: Bill) -> Iterator[str]:
    """Yield what is wrong: an amount beyond its doubt, a second in two spans, sums that do not add up."""
    spans: dict[Key, list[CostSpan]] = defaultdict(list)
    for row in sorted(tables["meter"], key=lambda it: it["id"]):
        it = _span(row)
        spans[it.cloud_id, it.kind.value].append(it)
    lists = sorted(
        (it for it in tables["list_record"] if it["complete"] and it["witness"] != "missing"),
        key=lambda it: it["id"],
    )
    if not lists:
        return
    first_s, last_seen = lists[0]["finished_at"] / 1e6, from_micros(lists[-1]["started_at"])
    charges: dict[Key, list[Row]] = defaultdict(list)
    installation = next(it["value"] for it in tables["installation"] if it["key"] == "installation")
    for machine in bill.machines:
        tag = parse_tag(machine["name"])
        is_ours = tag is not None and tag.installation == installation
        if not is_ours and not any(cloud_id == machine["id"] for cloud_id, _ in spans):
            # It came and went while nobody looked, and nobody here had asked for it.
            continue
        for charge in machine["charges"]:
            # Of what somebody else has started since the last list nobody here can know.
            if is_ours or EPOCH + timedelta(seconds=charge["from"]) <= last_seen:
                charges[machine["id"], charge["kind"]].append(charge)
    now = EPOCH + timedelta(seconds=bill.now_s)
    for key in sorted({*spans, *charges}):
        # What was there before anybody looked counts from that look.
        billed = _billed(charges[key], first_s)
        yield from _check_amount(key, spans[key], billed, now, last_seen)
        yield from _check_overlaps(key, spans[key])
    yield from _check_days(tables)
    yield from _check_instances(tables)


def _span(row: Row) -> CostSpan:
    moments = {name: None if row[name] is None else from_micros(row[name]) for name in MOMENTS}
    return span_of(SimpleNamespace(**{**row, **moments}))


def _billed(charges: Sequence[Row], since_s: float) -> Fraction:
    """Return nano-dollars."""
    paid = Fraction(0)
    for it in charges:
        seconds = max(Fraction(0), Fraction(it["to"]) - Fraction(max(it["from"], since_s)))
        paid += Fraction(it["hourlyUsd"]) * seconds / HOUR_S
    return paid * NANO


def _check_amount(
    key: Key, spans: Sequence[CostSpan], billed: Fraction, now: datetime, last_seen: datetime
) -> Iterator[str]:
    counted = sum(it.cost(now) for it in spans)
    stated = sum(it.uncertainty() + ROUNDING_NANO for it in spans)
    for it in spans:
        if it.ended is None:
            # Nobody can have told us what has happened since the last list.
            begin = it.began.lo if it.began_by == UNCLEAR else it.sure_until or last_seen
            stated += doubt_nano(it.rate.nano_usd, max(timedelta(0), now - begin))
    if abs(counted - billed) > stated:
        told = f"{counted / NANO:.9f} +- {stated / NANO:.9f}, the bill {float(billed) / NANO:.9f}"
        yield f"{key[1]} of {key[0]}: the ledger says {told} USD ({len(spans)} spans)"


def _check_overlaps(key: Key, spans: Sequence[CostSpan]) -> Iterator[str]:
    """No second of a machine is in two spans; those of no length only state a doubt."""
    lasting = [it for it in spans if it.ended is None or it.time(it.ended.hi)]
    for one, two in pairwise(lasting):
        if one.ended is None or one.ended.mid > two.began.mid + timedelta(seconds=1):
            yield f"{key[1]} of {key[0]} is counted twice, by the spans {one.id} and {two.id}"


def _check_days(tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """What was summed up by day is what the spans came to: both, or neither, were written."""
    by_kind: dict[str, int] = defaultdict(int)
    for row in tables["meter"]:
        by_kind[row["kind"]] += row["amount_nusd"] or 0
    for row in tables["ledger_day"]:
        by_kind[row["kind"]] -= row["amount_nusd"]
    for kind, rest in by_kind.items():
        if rest:
            yield f"the days of {kind} and its spans differ by {rest / NANO:.9f} USD"


def _check_instances(tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """What an instance says it costs an hour is what its spans that go on cost."""
    rates: dict[str, int] = defaultdict(int)
    for row in tables["meter"]:
        if row["ended_lo"] is None and row["instance_id"]:
            rates[row["instance_id"]] += row["rate_nusd_h"]
    for row in tables["instance"]:
        if (row["cost_rate_nusd_h"] or 0) != rates[row["id"]]:
            told = f"{(row['cost_rate_nusd_h'] or 0) / NANO} USD an hour, its spans {rates[row['id']] / NANO}"
            yield f"{row['name']} says it costs {told}"
