"""The lists that the API and the dashboard both show: their filters and pages."""

from __future__ import annotations

from enum import StrEnum

from gpuherd.domain.instance.instance import ID_PREFIX, Status
from gpuherd.domain.webhooks.delivery import DELIVERY_ID_PREFIX
from gpuherd.entrypoints.query import Query, choice, id_cursor, limit, pair, position_cursor, text
from gpuherd.jobs.job import JOB_ID_PREFIX, JobStatus
from gpuherd.ports.instances import InstanceQuery
from gpuherd.ports.jobs import JobQuery
from gpuherd.ports.webhooks import DeliveryFilter, DeliveryQuery


class Order(StrEnum):
    ASC = "asc"
    DESC = "desc"


LIMIT, NAME, LABEL, TYPE = limit(), text("name"), pair("label"), text("type")
INSTANCE_ID, ENDPOINT_ID = text("instanceId"), text("endpointId")
INSTANCE_STATUS, JOB_STATUS, STATE = (
    choice("status", Status),
    choice("status", JobStatus),
    choice("state", DeliveryFilter),
)
INSTANCE_CURSOR, JOB_CURSOR = id_cursor(ID_PREFIX), id_cursor(JOB_ID_PREFIX)
DELIVERY_CURSOR, POSITION_CURSOR = id_cursor(DELIVERY_ID_PREFIX), position_cursor()
ORDER = choice("order", Order)

INSTANCE_LIST = (INSTANCE_STATUS, NAME, LABEL, LIMIT, INSTANCE_CURSOR)
JOB_LIST = (TYPE, JOB_STATUS, INSTANCE_ID, LIMIT, JOB_CURSOR)
DELIVERY_LIST = (STATE, INSTANCE_ID, ENDPOINT_ID, TYPE, LIMIT, DELIVERY_CURSOR)
AUDIT_LIST = (LIMIT, POSITION_CURSOR, ORDER)


def instance_query(query: Query, owner: str | None) -> InstanceQuery:
    """Return which instances a request asks for, of those that `owner` may see."""
    status = query(INSTANCE_STATUS)
    return InstanceQuery(
        statuses=() if status is None else (status,),
        name=query(NAME),
        label=query(LABEL),
        owner=owner,
        limit=query(LIMIT),
        cursor=query(INSTANCE_CURSOR),
    )


def job_query(query: Query, owner: str | None) -> JobQuery:
    """Return which jobs a request asks for, of those that `owner` may see."""
    return JobQuery(
        kind=query(TYPE),
        status=query(JOB_STATUS),
        instance_id=query(INSTANCE_ID),
        owner=owner,
        limit=query(LIMIT),
        cursor=query(JOB_CURSOR),
    )


def delivery_query(query: Query, owner: str | None) -> DeliveryQuery:
    """Return which deliveries a request asks for, of those that `owner` may see."""
    return DeliveryQuery(
        state=query(STATE),
        instance_id=query(INSTANCE_ID),
        endpoint_id=query(ENDPOINT_ID),
        type=query(TYPE),
        owner=owner,
        limit=query(LIMIT),
        cursor=query(DELIVERY_CURSOR),
    )
