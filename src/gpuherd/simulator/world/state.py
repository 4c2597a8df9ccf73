"""The state of the simulated world: time, stock, machines, and the truth about them for tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from decimal import Decimal
from random import Random

from gpuherd.clock import Clock
from gpuherd.simulator.calls import ApiEndpoint, Call, CallLog, LoggedCall
from gpuherd.simulator.catalogue import CloudCatalogue, default_catalogue
from gpuherd.simulator.errors import instance_not_found
from gpuherd.simulator.faults.fault import FaultKind, Faults
from gpuherd.simulator.world.account import Account
from gpuherd.simulator.world.addresses import Addresses, NovitaAddresses
from gpuherd.simulator.world.lifecycle import Times
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.stock import Stock
from gpuherd.simulator.world.timeline import Timeline, TimelineEvent

DEFAULT_UNITS = 50


class WorldState(ABC):
    """All state; nothing here changes a machine by itself, see `World`.

    Time is anchored to the wall clock once and then follows the monotonic one: a step of our
    wall clock does not move the cloud's time.
    """

    def __init__(
        self,
        clock: Clock,
        chance: Random,
        catalogue: CloudCatalogue | None = None,
        speed: float = 1.0,
        *,
        units: int = DEFAULT_UNITS,
    ) -> None:
        self.clock = clock
        self.chance = chance
        self.catalogue = catalogue or default_catalogue()
        self.speed = speed
        self.times = Times().at_speed(speed)
        self.faults = Faults(self.now, chance)
        self.scenario = "calm"
        self.stock_levels = Stock(self.catalogue, units)
        self.account = Account(self.catalogue, chance)
        self.addresses: Addresses = NovitaAddresses()
        self.machines: dict[str, SimulatedMachine] = {}
        self.listed: dict[str, SimulatedMachine] = {}
        # When the last machine whose listing lags will be listed.
        self.all_listed_at = 0.0
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
        """Set the time forward to `moment` if it is behind: a world that was kept never goes back."""
        self._origin += max(0.0, moment - self.now())

    def tick(self) -> None:
        """Do what has fallen due since the last look."""
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
        """Carry out an entry of the agenda."""

    @property
    def calls(self) -> Counter[str]:
        """How often each endpoint was called, by the names of `ApiEndpoint`."""
        return self.record.counts

    @property
    def log(self) -> list[LoggedCall]:
        """The latest calls with their outcomes, oldest first."""
        return list(self.record.lines)

    def find(self, machine_id: str) -> SimulatedMachine:
        """Return a machine that the cloud still admits to."""
        self.tick()
        machine = self.listed.get(machine_id)
        if machine is None:
            raise instance_not_found(machine_id)
        return machine

    def newest_first(self) -> Iterator[SimulatedMachine]:
        """Return what exists, in the order of the list."""
        self.tick()
        return reversed(self.listed.values())

    def alive(self) -> list[SimulatedMachine]:
        """Return the machines that exist and whose removal was not asked for, stopped ones included."""
        self.tick()
        now = self.now()
        return [machine for machine in self.listed.values() if machine.is_alive(now)]

    def billed_gpu_s(self) -> float:
        """Return the GPU-seconds of all machines, also of those that are gone."""
        return self.wasted_gpu_s(known=())

    def wasted_gpu_s(self, known: Collection[str]) -> float:
        """Return the GPU-seconds paid for machines whose ids are not among `known`."""
        self.tick()
        now = self.now()
        return sum(machine.billed_gpu_s(now) for machine in self.machines.values() if machine.id not in known)

    def cost_usd(self) -> Decimal:
        """Return the bill for all GPUs so far."""
        self.tick()
        now = self.now()
        return sum((machine.cost_usd(now) for machine in self.machines.values()), Decimal(0))

    def stock(self, product_id: str, cluster_id: str, units: int) -> None:
        """Set how many GPUs are free there."""
        self.tick()
        self.stock_levels.set_units(product_id, cluster_id, units)

    def free_units(self, product_id: str, cluster_id: str) -> int:
        """Return how many GPUs can be rented there now."""
        self.tick()
        call = Call(ApiEndpoint.CREATE, product_id=product_id, cluster_id=cluster_id)
        return (
            0
            if self.faults.always_strikes(FaultKind.SOLD_OUT, call)
            else self.stock_levels.free(product_id, cluster_id)
        )

    def call_about(self, endpoint: ApiEndpoint, machine: SimulatedMachine) -> Call:
        """Describe a call about a machine, for faults and logs."""
        return Call(endpoint, machine.name, machine.request.product_id, machine.cluster_id, machine.id)
