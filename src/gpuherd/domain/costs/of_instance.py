"""The subject of an instance's machine."""

from __future__ import annotations

from gpuherd.domain.costs.subject import CostSubject
from gpuherd.domain.instance.instance import Goal, Instance


def subject_of_instance(it: Instance, cloud_id: str, region: str = "", product_name: str = "") -> CostSubject:
    """Return whose a machine of this instance is, as things stand."""
    rented = it.rental
    asked_at = it.operation.requested_at if it.operation is not None else None
    return CostSubject(
        cloud_id=cloud_id,
        instance_id=it.id,
        owner=it.owner,
        created_at=it.created_at,
        name=it.name,
        product_name=product_name or (rented.product_name if rented else it.wish.product_name),
        region=region or (rented.region if rented else ""),
        billing_mode=it.wish.billing_mode.value,
        labels=it.labels,
        usable_at=it.ready_at,
        stop_wanted_at=asked_at if it.goal is Goal.STOPPED else None,
        delete_wanted_at=asked_at if it.goal is Goal.DELETED else None,
    )
