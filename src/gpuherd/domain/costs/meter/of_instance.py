"""Whose a machine is, and what was agreed for it, from what we have on record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.tag import machine_tag, plain_name
from gpuherd.domain.costs.amount import nano_usd
from gpuherd.domain.costs.meter.tariff import AgreedTerms
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge, PriceSource, Rate
from gpuherd.domain.costs.subject import CostSubject
from gpuherd.domain.instance.attempt import Attempt, AttemptState
from gpuherd.domain.instance.instance import Goal, Instance
from gpuherd.domain.instance.lifecycle.conditions import is_machine_of_other_call, was_machine_proven_gone


@dataclass(frozen=True)
class MachineRecord:
    """The instance that has a machine, or whose open create call has made it; and the call."""

    instance: Instance | None
    attempt: Attempt | None

    @property
    def open_call(self) -> Attempt | None:
        """The call that made it, while its outcome is open and no instance has the machine."""
        made_by = self.attempt
        return made_by if made_by is not None and made_by.is_open and self.instance is None else None

    @property
    def ordered_at(self) -> datetime | None:
        """When the instance was last asked to stop, start or go."""
        it = self.instance
        return None if it is None or it.operation is None else it.operation.requested_at

    def terms_of(self, machine: Machine) -> AgreedTerms | None:
        """A machine that is found by its tag costs what its attempt agreed, unless it is of another kind."""
        made_by = self.attempt
        if made_by is None:
            return None
        is_same = machine.product_id in ("", made_by.product_id)
        # guard: a machine that is found by its tag costs what its attempt agreed
        price = made_by.gpu_hourly_usd if is_same else None
        return AgreedTerms(made_by.sent_at, price, made_by.sent_reading)


def record_of(
    machine: Machine, bound: Instance | None, by_tag: Attempt | None, by_id: Attempt | None
) -> MachineRecord:
    """Return what is on record about a machine: the cloud may have given the id of an earlier one to it."""
    made_by = by_tag
    if made_by is None and by_id is not None and machine_tag(machine) in (None, by_id.tag):
        made_by = by_id
    if bound is not None and (made_by is None or made_by.instance_id != bound.id):
        if made_by is not None:
            is_anothers = made_by.is_open or made_by.state is AttemptState.BOUND
        else:
            # guard: what a copy of the database has made costs our instance nothing
            is_anothers = by_id is not None and is_machine_of_other_call(machine, bound, by_id)
        bound = None if is_anothers or was_machine_proven_gone(bound) else bound
    return MachineRecord(bound, made_by)


def subject_of(machine: Machine, first_seen_at: datetime, record: MachineRecord | None) -> CostSubject:
    """Return whose a machine is."""
    if record is not None and record.instance is not None:
        return subject_of_instance(record.instance, machine)
    return CostSubject(
        cloud_id=machine.cloud_id,
        instance_id=None,
        owner=None,
        created_at=machine.created_at or first_seen_at,
        name=plain_name(machine.name),
        product_name=machine.product_name,
        region=machine.region,
        billing_mode=machine.billing_mode,
    )


def subject_of_former(span: CostSpan, instance_id: str | None, it: Instance | None) -> CostSubject:
    """Return whose a span is that ends because another machine has the id: it stays with its instance."""
    if it is not None:
        return subject_of_instance(it)
    return CostSubject(span.cloud_id, instance_id, owner=None, created_at=span.began.lo)


def unseen_spans(it: Instance, sent_at: datetime, now: datetime) -> list[CostSpan]:
    """Return spans of no length for a machine that no list has shown, from some time since then."""
    cloud_id = it.last_cloud_id
    if cloud_id is None or it.rental is None:
        return []
    rates = {
        CostKind.GPU: it.rental.gpu_hourly_usd * it.wish.gpu_num,
        CostKind.DISK: it.disk_hourly_usd,
    }
    edge = Edge(min(sent_at, now), now)
    return [
        CostSpan(cloud_id, kind, Rate(nano_usd(usd), PriceSource.RENTAL), edge, "unseen", edge, "removed")
        for kind, usd in rates.items()
        if usd
    ]


def subject_of_instance(it: Instance, machine: Machine | None = None) -> CostSubject:
    """Return whose a machine of this instance is, as things stand."""
    rented = it.rental
    region, product_name = (rented.region, rented.product_name) if rented else ("", it.wish.product_name)
    if machine is not None:
        region, product_name = machine.region or region, machine.product_name or product_name
    asked_at = it.operation.requested_at if it.operation is not None else None
    return CostSubject(
        cloud_id=it.last_cloud_id or "" if machine is None else machine.cloud_id,
        instance_id=it.id,
        owner=it.owner,
        created_at=it.created_at,
        lineage=None if it.chain is None else it.chain.lineage,
        name=it.name,
        product_name=product_name,
        region=region,
        billing_mode=it.billing_mode.value,
        labels=it.labels,
        usable_at=it.ready_at,
        stop_wanted_at=asked_at if it.goal is Goal.STOPPED else None,
        delete_wanted_at=asked_at if it.goal is Goal.DELETED else None,
    )
