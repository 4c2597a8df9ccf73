"""What one list says about one machine, with all that its cost depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.cloud.tag import machine_tag
from gpuherd.domain.costs.meter.tariff import NO_RATE, AgreedTerms, Tariff
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge, Rate

# Absence needs as many lists as it does everywhere else.
# guard: missing once ends no span
MISSING_LISTS_NEEDED = 2


@dataclass(frozen=True)
class ListTimes:
    """When a list was made."""

    started_at: datetime
    finished_at: datetime
    # Whether a machine that surely exists was in it. If not, it may be true, but nobody vouches for it.
    is_vouched: bool = True


@dataclass(frozen=True)
class MachineMeter:
    """The spans of one machine that go on, and where the last ones of each kind ended."""

    open: Mapping[CostKind, CostSpan] = field(default_factory=dict)
    last_ended: Mapping[CostKind, Edge] = field(default_factory=dict)
    # Those that ended before anybody knew a price.
    unpriced: tuple[CostSpan, ...] = ()


NO_METER = MachineMeter()


@dataclass(frozen=True)
class MeterReading:
    """What one list says about one machine, with all that its cost depends on."""

    # How the machine was known before this list (None: not at all), and how it is known now.
    before: ObservedMachine | None
    after: ObservedMachine
    # The last believable list before this one (None: we have only begun to look), and this one.
    previous: ListTimes | None
    this: ListTimes
    tariff: Tariff
    # When the cloud says that it was made, by the clock as it is now.
    created_at: datetime | None = None
    # Of a machine that a create call of ours has made.
    terms: AgreedTerms | None = None
    # When its stop, start or removal was last asked of us, if ever.
    ordered_at: datetime | None = None
    # The start of the last list before this one that something vouched for.
    vouched_at: datetime | None = None

    @property
    def is_new(self) -> bool:
        """Whether nobody has seen this machine before: the cloud may use an id again."""
        if self.before is None or self.before.first_seen_at != self.after.first_seen_at:
            return True
        # guard: another machine under the same id has a meter of its own
        return not self.is_missed and machine_tag(self.before.machine) != machine_tag(self.after.machine)

    @property
    def is_missed(self) -> bool:
        return self.after.missing_since is not None

    @property
    def missed_at(self) -> datetime | None:
        """When it was surely not there any more, where it is missed and the list can be trusted that far."""
        # guard: a list that nobody vouches for is no end
        return self.this.finished_at if self.is_missed and self.this.is_vouched else None

    @property
    def is_gone(self) -> bool:
        """Whether it is proven to be gone, so that nothing of it is paid for any more."""
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
        """Whether it was started since it was last seen: each start gives it other ports."""
        if self.before is None or self.is_new:
            return False
        before, after = self.before.machine.ports, self.after.machine.ports
        return bool(before and after) and before != after

    @property
    def last_seen_at(self) -> datetime | None:
        """When it surely was as it is known before this list."""
        return None if self.previous is None else self.previous.started_at

    def rate(self, kind: CostKind, *, again: bool) -> Rate:
        machine = self.after.machine
        if kind is CostKind.DISK:
            return self.tariff.disk_rate(machine)
        agreed = None if self.terms is None else self.terms.gpu_hourly_usd
        # guard: a start is paid at the price of today
        if not again:
            return self.tariff.gpu_rate(machine, agreed)
        # A start is a new agreement: it costs what such a machine costs today.
        today = self.tariff.gpu_rate(machine, None)
        return today if today is not NO_RATE else self.tariff.gpu_rate(machine, agreed)
