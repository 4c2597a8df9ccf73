"""Deliveries to rows and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row

from gpuherd.adapters.sql.engine.columns import Doc, dumps, from_micros, to_micros
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryState, DeliveryTry


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
