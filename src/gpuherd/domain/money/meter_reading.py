"""What one list says about one machine: its tariff, its owner, and the state of its meter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.cloud.offer import NOVITA_DISK, BillingMode, DiskTariff
from gpuherd.domain.instance.instance import Goal, Instance
from gpuherd.domain.instance.instance_state import is_machine_of_other_call, was_machine_proven_gone
from gpuherd.domain.instance.rent_attempt import (
    Attempt,
    AttemptState,
    machine_tag,
    plain_name,
)
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    CostSubject,
    Edge,
    PriceSource,
    Rate,
    nano_usd,
)

# A loss needs as many lists here as everywhere else.
# guard: missing once ends no span
MISSING_LISTS_NEEDED = 2


@dataclass(frozen=True)
class ListTimes:
    """When a list was made."""

    started_at: datetime
    finished_at: datetime
    # True if the list shows a machine that certainly exists. Otherwise nothing confirms the list.
    is_vouched: bool = True


@dataclass(frozen=True)
class MachineMeter:
    """The open spans of one machine, and the end of the last span of each kind."""

    open: Mapping[CostKind, CostSpan] = field(default_factory=dict)
    last_ended: Mapping[CostKind, Edge] = field(default_factory=dict)
    # Spans that ended before their price was known.
    unpriced: tuple[CostSpan, ...] = ()


NO_METER = MachineMeter()


@dataclass(frozen=True)
class MeterReading:
    """What one list says about one machine, with all that its cost depends on."""

    # The record of the machine before this list (None: unknown), and after it.
    before: ObservedMachine | None
    after: ObservedMachine
    # The last credible list before this one (None: this is the first), and this one.
    previous: ListTimes | None
    this: ListTimes
    tariff: Tariff
    # When the cloud says it was made, by the present clock.
    created_at: datetime | None = None
    # Only for a machine that our create call made.
    terms: AgreedTerms | None = None
    # The last stop, start or removal order, if any.
    ordered_at: datetime | None = None
    # Start of the last earlier list that had a witness.
    vouched_at: datetime | None = None

    @property
    def is_new(self) -> bool:
        """True if no list has shown this machine before. The cloud may reuse an id."""
        if self.before is None or self.before.first_seen_at != self.after.first_seen_at:
            return True
        # guard: another machine under the same id has a meter of its own
        return not self.is_missed and machine_tag(self.before.machine) != machine_tag(self.after.machine)

    @property
    def is_missed(self) -> bool:
        return self.after.missing_since is not None

    @property
    def missed_at(self) -> datetime | None:
        """When the machine was certainly absent, if the list is credible."""
        # guard: a list that nobody vouches for is no end
        return self.this.finished_at if self.is_missed and self.this.is_vouched else None

    @property
    def is_gone(self) -> bool:
        """True if the machine is proven gone, so it costs nothing."""
        it = self.after
        return it.machine.phase is Phase.ABSENT or it.missing_lists >= MISSING_LISTS_NEEDED

    @property
    def was_gone(self) -> bool:
        it = self.before
        return it is not None and (
            it.machine.phase is Phase.ABSENT or it.missing_lists >= MISSING_LISTS_NEEDED
        )

    @property
    def was_started_anew(self) -> bool:
        """True if the machine was started since it was last seen. Each start gives it new ports."""
        if self.before is None or self.is_new:
            return False
        before, after = self.before.machine.ports, self.after.machine.ports
        return bool(before and after) and before != after

    @property
    def last_seen_at(self) -> datetime | None:
        """When its previous record was certainly true."""
        return None if self.previous is None else self.previous.started_at

    def rate(self, kind: CostKind, *, again: bool) -> Rate:
        machine = self.after.machine
        if kind is CostKind.DISK:
            return self.tariff.disk_rate(machine)
        agreed = None if self.terms is None else self.terms.gpu_hourly_usd
        # guard: a start is paid at the price of today
        if not again:
            return self.tariff.gpu_rate(machine, agreed)
        # A start is a new agreement, at today's price.
        today = self.tariff.gpu_rate(machine, None)
        return today if today is not NO_RATE else self.tariff.gpu_rate(machine, agreed)


# Billing mode, product and cluster.
PriceKey = tuple[str, str, str]


PAID_BY_TIME = frozenset(it.value for it in BillingMode)
NO_RATE = Rate(0, PriceSource.UNKNOWN)


# Prices change by at most this share while a machine is rented.
PRICE_MOVE_MAX = Decimal("0.25")


@dataclass(frozen=True)
class AgreedTerms:
    """The agreed price of the create call that made a machine, and when the call was sent."""

    sent_at: datetime
    gpu_hourly_usd: Decimal | None
    # The clock readings at that time, if recorded.
    sent_reading: ClockReading | None = None


@dataclass(frozen=True)
class Tariff:
    """Today's known prices: one GPU per hour, and the disk above the free part."""

    gpu_hourly_usd: Mapping[PriceKey, Decimal] = field(default_factory=dict)
    disk: DiskTariff = NOVITA_DISK

    def gpu_rate(self, machine: Machine, agreed: Decimal | None) -> Rate:
        """Return the hourly rate of the GPUs: the agreed price, otherwise today's price."""
        # A machine without a GPU is priced as a whole. A monthly subscription costs nothing per hour.
        cards = max(machine.gpu_num, 1)
        if machine.billing_mode and machine.billing_mode not in PAID_BY_TIME:
            return Rate(0, PriceSource.CATALOGUE)
        if agreed is not None:
            return Rate(nano_usd(_rented_at(machine, agreed * cards)), PriceSource.RENTAL)
        price = self.gpu_hourly_usd.get((machine.billing_mode, machine.product_id, machine.cluster_id))
        return NO_RATE if price is None else Rate(nano_usd(price * cards), PriceSource.CATALOGUE)

    def disk_rate(self, machine: Machine) -> Rate:
        if machine.billing_mode and machine.billing_mode not in PAID_BY_TIME:
            return Rate(0, PriceSource.CATALOGUE)
        return Rate(nano_usd(self.disk.hourly_usd(machine.disk_gb)), PriceSource.CATALOGUE)


def _rented_at(machine: Machine, agreed: Decimal) -> Decimal:
    """Return the rate of a machine that was rented at this price.

    The price may change between the catalogue and the create call, and the cloud uses its own. Its field is
    undocumented: it is used only if it is close to the agreed price, and it may be for one GPU or for all.
    """
    shown = machine.hourly_usd
    # guard: a price on a machine that is far from what was agreed is not believed
    return shown if shown is not None and abs(shown - agreed) <= agreed * PRICE_MOVE_MAX else agreed


@dataclass(frozen=True)
class MachineRecord:
    """The instance that has a machine, or whose open create call made it; and the call."""

    instance: Instance | None
    attempt: Attempt | None

    @property
    def open_call(self) -> Attempt | None:
        """The call that made it, while the outcome is open and no instance has the machine."""
        made_by = self.attempt
        return made_by if made_by is not None and made_by.is_open and self.instance is None else None

    @property
    def ordered_at(self) -> datetime | None:
        """When the instance was last asked to stop, start or delete."""
        it = self.instance
        return None if it is None or it.operation is None else it.operation.requested_at

    def terms_of(self, machine: Machine) -> AgreedTerms | None:
        """The terms of its attempt, if the machine found by its tag is of the ordered kind."""
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
    """Return the record of a machine. The cloud may have reused the id of an earlier one."""
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
    """Return whose span it is, if another machine took the id: it stays with its instance."""
    if it is not None:
        return subject_of_instance(it)
    return CostSubject(span.cloud_id, instance_id, owner=None, created_at=span.began.lo)


def unseen_spans(it: Instance, sent_at: datetime, now: datetime) -> list[CostSpan]:
    """Return spans of no length for a machine that no list has shown, from `sent_at` until now."""
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
    """Return whose a machine of this instance is now."""
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
