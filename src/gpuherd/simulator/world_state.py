"""The state of the simulated world: time, stock, machines, and the true facts for tests."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from random import Random

from gpuherd.ports.clock_port import Clock
from gpuherd.simulator.faults import (
    ApiEndpoint,
    Call,
    CallLog,
    FaultKind,
    Faults,
    LoggedCall,
)
from gpuherd.simulator.market import CALM, Stock
from gpuherd.simulator.simulated_account import Account, Prewarms, Volumes
from gpuherd.simulator.simulated_bill import (
    Charge,
    UseTraces,
    millionths,
    total_usd,
)
from gpuherd.simulator.simulated_catalogue import CloudCatalogue, default_catalogue
from gpuherd.simulator.simulated_machine import (
    Addresses,
    NovitaAddresses,
    SimulatedMachine,
    Times,
    billed_gpu_s,
    machine_charges,
)
from gpuherd.simulator.simulated_request import CreateRequest, SimulatedError, instance_not_found


class Due(StrEnum):
    """The kinds of planned events."""

    FREE = "free"  # the GPU of a stopped, failed or removed machine is for sale again
    VANISH = "vanish"  # a removed machine is no longer listed
    RECLAIM = "reclaim"  # the eviction of a spot machine is over
    COMMIT = "commit"  # a call whose reply was lost takes effect late
    PRICE = "price"  # spot prices take a step
    STOCK = "stock"  # a product is sold out in a cluster, or can be had there again


@dataclass(frozen=True, slots=True, order=True)
class TimelineEvent:
    """One planned event. Events of the same moment happen in the order of planning."""

    at: float
    number: int
    due: Due = field(compare=False)
    machine_id: str = field(default="", compare=False)
    endpoint: str = field(default="", compare=False)
    request: CreateRequest | None = field(default=None, compare=False)
    product_id: str = field(default="", compare=False)
    cluster_id: str = field(default="", compare=False)


class Timeline:
    """A heap of events."""

    def __init__(self) -> None:
        self.events: list[TimelineEvent] = []
        self._number = 0

    def add(
        self, at: float, due: Due, machine_id: str, *, product_id: str = "", cluster_id: str = ""
    ) -> None:
        self._number += 1
        event = TimelineEvent(at, self._number, due, machine_id, product_id=product_id, cluster_id=cluster_id)
        heapq.heappush(self.events, event)

    def drop(self, dues: Collection[Due]) -> None:
        """Drop the planned events of these kinds."""
        self.events = [event for event in self.events if event.due not in dues]
        heapq.heapify(self.events)

    def add_commit(self, at: float, call: Call) -> None:
        self._number += 1
        event = TimelineEvent(
            at,
            self._number,
            Due.COMMIT,
            call.machine_id,
            endpoint=call.endpoint.value,
            request=call.request,
        )
        heapq.heappush(self.events, event)

    def pop_due(self, now: float) -> Iterator[TimelineEvent]:
        while self.events and self.events[0].at <= now:
            yield heapq.heappop(self.events)

    def restore(self, events: list[TimelineEvent]) -> None:
        self.events = sorted(events)
        self._number = max((event.number for event in events), default=0)


DEFAULT_UNITS = 50
DEPOSIT_USD = Fraction(10_000)
WEATHER_SEED = 20_26


class WorldState(ABC):
    """All state; nothing here changes a machine by itself, see `World`.

    Time is anchored to the wall clock once and then follows the monotonic clock. A step of our wall clock
    does not move the cloud's time.
    """

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        catalogue: CloudCatalogue | None = None,
        speed: float = 1.0,
        *,
        units: int = DEFAULT_UNITS,
    ) -> None:
        self.clock = clock
        self.rng = rng
        self.catalogue = catalogue or default_catalogue()
        self.speed = speed
        self.times = Times().at_speed(speed)
        self.faults = Faults(self.now, rng)
        self.scenario = "calm"
        self.stock_levels = Stock(self.catalogue, units)
        self.account = Account(self.catalogue, rng)
        self.addresses: Addresses = NovitaAddresses()
        self.machines: dict[str, SimulatedMachine] = {}
        self.listed: dict[str, SimulatedMachine] = {}
        # When the last late machine will be listed.
        self.all_listed_at = 0.0
        # Longer pages of machines are cut to this. Novita's own limit is not documented.
        self.page_size_max: int | None = None
        self.volumes = Volumes(self.catalogue, rng)
        self.prewarms = Prewarms(self.catalogue)
        self.uses = UseTraces()
        self.weather = CALM
        self.weather_rng = Random(WEATHER_SEED)
        # A separate generator, so that prices and stock do not depend on rentals.
        self.reclaim_rng = Random(WEATHER_SEED + 1)
        # The start values of the spot prices.
        self.first_prices: dict[str, int] = {}
        # The paid-in USD; without it the account is never empty.
        self.deposit: Fraction | None = None
        self.record = CallLog()
        self.timeline = Timeline()
        self._origin = clock.now().timestamp() - clock.monotonic()
        self._replaying_at: float | None = None

    def now(self) -> float:
        """Return the world's time in Unix seconds; inside a late event, the moment at which it was due."""
        if self._replaying_at is not None:
            return self._replaying_at
        return self._origin + self.clock.monotonic()

    def fast_forward_to(self, moment: float) -> None:
        """Set the time forward to `moment` if it is behind. A reloaded world never goes back."""
        self._origin += max(0.0, moment - self.now())

    def tick(self) -> None:
        """Execute all events that are due."""
        if self._replaying_at is not None:
            return
        for event in self.timeline.pop_due(self.now()):
            self._replaying_at = event.at
            try:
                self.handle_event(event)
            finally:
                self._replaying_at = None

    @abstractmethod
    def handle_event(self, event: TimelineEvent) -> None:
        """Execute a planned event."""

    @property
    def calls(self) -> Counter[str]:
        """How often each endpoint was called, by the names of `ApiEndpoint`."""
        return self.record.counts

    @property
    def log(self) -> list[LoggedCall]:
        """The latest calls with their outcomes, oldest first."""
        return list(self.record.lines)

    def find(self, machine_id: str) -> SimulatedMachine:
        """Return a machine that the cloud still knows."""
        self.tick()
        machine = self.listed.get(machine_id)
        if machine is None:
            raise instance_not_found(machine_id)
        return machine

    def newest_first(self) -> Iterator[SimulatedMachine]:
        """Return the existing machines, in the order of the list."""
        self.tick()
        return reversed(self.listed.values())

    def alive(self) -> list[SimulatedMachine]:
        """Return the machines whose removal was not requested, stopped ones included."""
        self.tick()
        now = self.now()
        return [machine for machine in self.listed.values() if machine.is_alive(now)]

    def billed_gpu_s(self) -> float:
        """Return the GPU-seconds of all machines, also of removed ones."""
        return self.wasted_gpu_s(known=())

    def wasted_gpu_s(self, known: Collection[str]) -> float:
        """Return the billed GPU-seconds of machines whose ids are not in `known`."""
        self.tick()
        now = self.now()
        return sum(
            billed_gpu_s(machine, now) for machine in self.machines.values() if machine.id not in known
        )

    def charges(self) -> list[Charge]:
        """Return the charges so far for machines and volumes, also for removed ones."""
        self.tick()
        now = self.now()
        machines = (charge for it in self.machines.values() for charge in machine_charges(it, now))
        volumes = (charge for it in self.volumes.all.values() for charge in it.charges(now))
        return [*machines, *volumes]

    def bill_usd(self) -> Fraction:
        """Return the total cost so far, exactly."""
        return total_usd(self.charges())

    def cost_usd(self) -> Decimal:
        """Return the bill to the millionth."""
        return millionths(self.bill_usd())

    def balance_usd(self) -> Fraction:
        """Return the remaining balance."""
        return (DEPOSIT_USD if self.deposit is None else self.deposit) - self.bill_usd()

    def check_balance(self) -> None:
        """Reject what costs money if the balance is used up."""
        if self.deposit is not None and self.balance_usd() <= 0:
            raise SimulatedError(400, "BALANCE_NOT_ENOUGH", "the balance is not enough")

    def mounted_volumes(self) -> set[str]:
        """Return the volumes that a machine mounts, stopped machines included."""
        return {storage.id for machine in self.alive() for storage in machine.request.network_storages}

    def stock(self, product_id: str, cluster_id: str, units: int) -> None:
        """Set how many GPUs are free in a cluster."""
        self.tick()
        self.stock_levels.set_units(product_id, cluster_id, units)

    def free_units(self, product_id: str, cluster_id: str) -> int:
        """Return how many GPUs can be rented in a cluster now."""
        self.tick()
        call = Call(ApiEndpoint.CREATE, product_id=product_id, cluster_id=cluster_id)
        return (
            0
            if self.faults.always_strikes(FaultKind.SOLD_OUT, call)
            else self.stock_levels.free(product_id, cluster_id)
        )

    def commit_later(self, seconds: float, call: Call) -> None:
        """Execute a call later whose reply is lost."""
        self.timeline.add_commit(self.now() + seconds, call)

    def call_about(self, endpoint: ApiEndpoint, machine: SimulatedMachine) -> Call:
        """Return the call about a machine, for faults and logs."""
        return Call(endpoint, machine.name, machine.request.product_id, machine.cluster_id, machine.id)
