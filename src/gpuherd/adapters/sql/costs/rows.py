"""Spans and subjects, to rows and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuherd.adapters.sql.engine.columns import Doc, dumps
from gpuherd.domain.costs.period import Period, cost_within
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge, PriceSource, Rate
from gpuherd.domain.costs.subject import CostSubject


def span_of(row: Any) -> CostSpan:
    return CostSpan(
        cloud_id=row.cloud_id,
        kind=CostKind(row.kind),
        rate=Rate(row.rate_nusd_h, PriceSource(row.price_from)),
        began=Edge(row.began_lo, row.began_hi),
        began_by=row.began_by,
        ended=None if row.ended_lo is None else Edge(row.ended_lo, row.ended_hi),
        ended_by=row.ended_by,
        sure_until=row.sure_until,
        missed_at=row.missed_at,
        id=row.id,
    )


def span_row(it: CostSpan, subject: CostSubject) -> Doc:
    """Return all of a span but its number and the numbers of its subject; what it came to once it ends."""
    row: Doc = {
        "cloud_id": it.cloud_id,
        "kind": it.kind.value,
        "instance_id": subject.instance_id,
        "rate_nusd_h": it.rate.nano_usd,
        "price_from": it.rate.source.value,
        "began_lo": it.began.lo,
        "began_hi": it.began.hi,
        "began_by": it.began_by,
        "ended_lo": None if it.ended is None else it.ended.lo,
        "ended_hi": None if it.ended is None else it.ended.hi,
        "ended_by": it.ended_by,
        "sure_until": it.sure_until,
        "missed_at": it.missed_at,
        "amount_nusd": None,
        "doubt_nusd": None,
        "after_end_nusd": None,
    }
    if it.ended is not None:
        whole = cost_within(
            it,
            Period(it.began.lo, max(it.began.hi, it.ended.hi)),
            it.ended.hi,
            None,
            subject.end_wanted_at(it.kind),
        )
        row |= {
            "amount_nusd": whole.amount,
            "doubt_nusd": whole.doubt,
            "after_end_nusd": whole.after_end,
        }
    return row


def centre_row(it: CostSubject) -> Doc:
    row: Doc = {
        "owner": it.owner,
        "product_name": it.product_name,
        "region": it.region,
        "billing_mode": it.billing_mode,
    }
    return {**row, "key": dumps([*row.values(), sorted(it.labels.items())])}


def subject_key(it: CostSubject) -> str:
    return f"machine {it.cloud_id}" if it.instance_id is None else it.instance_id


def subject_row(it: CostSubject, centre_id: int) -> Doc:
    return {
        "key": subject_key(it),
        "cloud_id": it.cloud_id,
        "instance_id": it.instance_id,
        "lineage": it.lineage,
        "name": it.name,
        "centre_id": centre_id,
        "created_at": it.created_at,
        "usable_at": it.usable_at,
    }


def subject_of(row: Any, labels: Mapping[str, str]) -> CostSubject:
    return CostSubject(
        cloud_id=row.cloud_id,
        instance_id=row.subject_instance_id,
        owner=row.owner,
        created_at=row.created_at,
        lineage=row.lineage,
        name=row.name,
        product_name=row.product_name,
        region=row.region,
        billing_mode=row.billing_mode,
        labels=labels,
        usable_at=row.usable_at,
    )
