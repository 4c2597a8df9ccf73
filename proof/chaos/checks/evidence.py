"""What the checker reads: the cloud's truth, our memory, and what was seen from outside on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.world import World
from proof.chaos.ends.evidence import EndsEvidence
from tests.support.memory.tables import Tables


@dataclass(frozen=True)
class Accepted:
    """A request that the user got a yes for."""

    kind: str
    instance_id: str
    at_s: float
    key: str = ""


@dataclass(frozen=True)
class ObservedCreate:
    """A create call at the moment in which it reached the cloud."""

    at_s: float
    tag: str
    # Whether our memory held the intent for it, committed and open.
    intended: bool
    # How many open attempts the instance had then.
    open_attempts: int
    # What the machine costs an hour by the cloud's own tariff, and what it may cost.
    usd_per_hour: Fraction = Fraction(0)
    hourly_usd_max: Decimal | None = None


@dataclass(frozen=True)
class ReceivedWebhook:
    """A try to deliver a webhook, as the receiver saw it."""

    at_s: float
    event_id: str
    body: bytes
    accepted: bool
    # Whether our memory held this very delivery then.
    committed: bool


@dataclass(frozen=True)
class Window:
    """A span in which the process, or the cloud, could not be reached."""

    begin_s: float
    end_s: float
    calls: int = 0

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class SeenMachine:
    """A machine, when our memory first said that it is ours, and when a list first showed it."""

    machine: SimulatedMachine
    bound_s: float | None
    listed_s: float | None


@dataclass
class Evidence:
    """All of it, for one schedule."""

    world: World
    tables: Tables
    settle_s: float
    # Seconds of the schedule's clock at the world's zero.
    origin_s: float = 0.0
    accepted: list[Accepted] = field(default_factory=list)
    create_calls: list[ObservedCreate] = field(default_factory=list)
    received_webhooks: list[ReceivedWebhook] = field(default_factory=list)
    # When our memory first said of a machine that it is ours.
    bound_at_s: dict[str, float] = field(default_factory=dict)
    # When a list first showed a machine.
    listed_at_s: dict[str, float] = field(default_factory=dict)
    # The machines that had these ids before.
    former: list[SeenMachine] = field(default_factory=list)
    # When a list was finished, by the wall clock and in the schedule's seconds.
    list_ends_s: dict[datetime, float] = field(default_factory=dict)
    decoys: dict[str, str] = field(default_factory=dict)
    # Since when they have their ids, by the world's clock; before, others may have had them.
    decoys_since: dict[str, float] = field(default_factory=dict)
    # The account of somebody else that came into our sight, if one did.
    strangers: World | None = None
    # What was written down, or asked for, of a machine that was there and wanted.
    false_losses: list[str] = field(default_factory=list)
    wrong_deletes: list[str] = field(default_factory=list)
    down: list[Window] = field(default_factory=list)
    outages: list[Window] = field(default_factory=list)
    blind_windows: list[Window] = field(default_factory=list)
    # When the collector held back what it may remove, until a person had looked.
    braked: list[Window] = field(default_factory=list)
    crashes: int = 0
    clock_jumps: int = 0
    # When the wall clock jumped, and how far.
    jumps: list[tuple[float, float]] = field(default_factory=list)
    looks: int = 0
    ended_s: float = 0.0
    # The same moment by the wall clock, in which our own records are.
    ended_at: datetime | None = None
    quiet: bool = False
    # How often a name was said to mean several instances.
    ambiguous_names: int = 0
    unhandled: list[BaseException] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)
    ends: EndsEvidence = field(default_factory=EndsEvidence)

    def add_decoy(self, machine_id: str, name: str) -> None:
        """Note a machine that nobody of us may touch."""
        self.decoys[machine_id] = name
        self.decoys_since[machine_id] = self.world.now()


@dataclass(frozen=True)
class Violation:
    """One promise that was not kept."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"
