"""Operations, attempts, events and deliveries as rows, and rows as records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sqlalchemy import Row

from gpuherd.adapters.sql.sql_types import (
    Doc,
    at,
    dumps,
    from_micros,
    moment,
    reading_doc,
    reading_of,
    to_micros,
)
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.instance_event import Cause, CauseCode, Event
from gpuherd.domain.instance.operation import (
    Failure,
    Operation,
    OperationKind,
    OperationPhase,
    OperationState,
)
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState, DeliveryTry


def billing_mode_of(value: str | None) -> BillingMode | None:
    return None if value is None else BillingMode(value)


def operation_doc(it: Operation) -> Doc:
    return {
        "id": it.id,
        "kind": it.kind.value,
        "requested_at": to_micros(it.requested_at),
        "state": it.state.value,
        "phases": [[phase.value, to_micros(at)] for phase, at in it.phases],
        "ended_at": at(it.ended_at),
        "error": failure_doc(it.error),
    }


def operation_of(doc: Doc) -> Operation:
    return Operation(
        id=doc["id"],
        kind=OperationKind(doc["kind"]),
        requested_at=from_micros(doc["requested_at"]),
        state=OperationState(doc["state"]),
        phases=tuple((OperationPhase(phase), from_micros(at)) for phase, at in doc["phases"]),
        ended_at=moment(doc["ended_at"]),
        error=failure_of(doc["error"]),
    )


def failure_doc(it: Failure | None) -> Doc | None:
    if it is None:
        return None
    return {"code": it.code, "message": it.message, "at": to_micros(it.at), "details": it.details}


def failure_of(doc: Doc | None) -> Failure | None:
    return None if doc is None else Failure(**{**doc, "at": from_micros(doc["at"])})


def attempt_row(it: Attempt) -> Doc:
    doc = {
        "product_id": it.product_id,
        "product_name": it.product_name,
        "region": it.region,
        "cluster_id": it.cluster_id,
        "gpu_hourly_usd": str(it.gpu_hourly_usd),
        "boot_id": it.boot_id,
        "image_url": it.image_url,
        "closed_at": at(it.closed_at),
        "error_code": it.error_code,
        "error": it.error,
    }
    return {
        "instance_id": it.instance_id,
        "n": it.n,
        "tag": it.tag,
        "state": it.state.value,
        "sent_at": it.sent_at,
        "cloud_id": it.cloud_id,
        "doc": dumps(doc),
        # A column, for the reason that an event's cause has one.
        "billing_mode": None if it.billing_mode is None else it.billing_mode.value,
        "sent_reading": reading_doc(it.sent_reading),
    }


def attempt_of(row: Row[Any]) -> Attempt:
    doc = json.loads(row.doc)
    return Attempt(
        instance_id=row.instance_id,
        n=row.n,
        tag=row.tag,
        state=AttemptState(row.state),
        sent_at=row.sent_at,
        cloud_id=row.cloud_id,
        billing_mode=billing_mode_of(row.billing_mode),
        sent_reading=reading_of(row.sent_reading),
        **{
            **doc,
            "gpu_hourly_usd": Decimal(doc["gpu_hourly_usd"]),
            "closed_at": moment(doc["closed_at"]),
        },
    )


def event_row(it: Event) -> Doc:
    doc = {
        "actor": it.actor,
        "reason": it.reason,
        "before": it.before,
        "after": it.after,
        "details": it.details,
    }
    return {
        "instance_id": it.instance_id,
        "sequence": it.sequence,
        "type": it.type,
        "at": it.at,
        "doc": dumps(doc),
        "cause": None if it.cause is None else dumps(vars(it.cause)),
    }


def event_of(row: Row[Any]) -> Event:
    doc = json.loads(row.doc)
    cause = None if row.cause is None else _cause_of(row.cause)
    return Event(row.instance_id, row.sequence, row.type, row.at, cause=cause, **doc)


def _cause_of(text: str) -> Cause:
    doc = json.loads(text)
    return Cause(CauseCode(doc["code"]), doc["message"])


def delivery_row(it: Delivery) -> Doc:
    log = [[to_micros(one.at), one.outcome, one.status, one.duration_ms] for one in it.log]
    return {**vars(it), "state": it.state.value, "log": dumps(log) if log else None}


def delivery_of(row: Row[Any]) -> Delivery:
    return delivery_from(row._asdict())


def delivery_from(values: Mapping[Any, Any]) -> Delivery:
    """Return the delivery that has these values in its columns, and no others."""
    tries = json.loads(values["log"]) if values["log"] else ()
    return Delivery(
        **{
            **values,
            "state": DeliveryState(values["state"]),
            "replays": values["replays"] or 0,
            "log": tuple(DeliveryTry(from_micros(at), *rest) for at, *rest in tries),
        }
    )
