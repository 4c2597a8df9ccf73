"""One simulated machine: its past and its planned future as a list of turns, and what follows from them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuherd.simulator.create_request import CreateRequest
from gpuherd.simulator.money.charge import Dated

BILLED_STATUSES = frozenset(
    {
        *("pulling", "running"),
        *("toStart", "starting", "toRestart", "restarting"),
        *("toReset", "resetting", "toStop", "stopping"),
    }
)
REMOVAL_STATUSES = frozenset({"toRemove", "removing", "removed"})


class StatusChange(NamedTuple):
    """From this moment on (Unix seconds) the machine has this status."""

    at: float
    status: str


class StatusError(NamedTuple):
    """What `statusError` says, from this moment on."""

    at: float
    state: str
    message: str


class Reclaim(NamedTuple):
    """A spot machine's eviction: told, begun, over."""

    notice_at: float
    begin_at: float
    end_at: float
    # The documents leave open whether the time is shown with the notice or when the reclaim begins.
    time_shown_at: float


@dataclass(slots=True)
class SimulatedMachine:
    """A machine and all that ever happened to it; times are the world's Unix seconds."""

    id: str
    request: CreateRequest
    name: str
    cluster_id: str
    created_at: float
    # Price units for one GPU and one hour (for the whole machine when it has no GPU), and since when.
    prices: list[Dated]
    product_name: str
    cpu_num: int
    memory_gb: int
    gpu_ids: list[int]
    ssh_password: str = field(repr=False)
    # The size of the root disk in GB, and since when.
    disks: list[Dated]
    turns: list[StatusChange] = field(default_factory=list)
    # Container port to the proxy's port; drawn anew on every start.
    proxy_ports: dict[int, int] = field(default_factory=dict)
    app_up_at: float | None = None
    failure: StatusError | None = None
    reclaim: Reclaim | None = None
    gone_at: float | None = None
    unlisted_until: float = 0.0
    holds_units: bool = False
    auto_migrate: bool = False

    @property
    def price(self) -> int:
        """Return the price that holds since its last change."""
        return self.prices[-1].value

    def status(self, now: float) -> str:
        """Return the status at `now`; for most machines the last turn is long past."""
        if self.turns[-1].at <= now:
            return self.turns[-1].status
        return self.turns[max(0, bisect_right(self.turns, now, key=lambda turn: turn.at) - 1)].status

    def is_gone(self, now: float) -> bool:
        """Return True if the cloud denies that there ever was such a machine."""
        return self.gone_at is not None and now >= self.gone_at

    def is_alive(self, now: float) -> bool:
        """Return True if the machine exists and its removal was not asked for."""
        return not self.is_gone(now) and self.status(now) not in REMOVAL_STATUSES

    def last(self, status: str, now: float) -> float | None:
        """Return when the machine last came into `status`."""
        return next(
            (turn.at for turn in reversed(self.turns) if turn.status == status and turn.at <= now), None
        )

    def replan(self, now: float, *turns: StatusChange) -> None:
        """Give up what was planned and plan this instead; the past stays."""
        self.turns = [turn for turn in self.turns if turn.at <= now]
        self.turns.extend(turns)

    def app_is_up(self, now: float) -> bool:
        """Return True if the program in the container answers yet."""
        return self.status(now) == "running" and self.app_up_at is not None and now >= self.app_up_at

    def error(self, now: float) -> tuple[str, str]:
        """Return `statusError`'s state and message."""
        if self.failure is None or now < self.failure.at:
            return "", ""
        return self.failure.state, self.failure.message

    def spot_status(self, now: float) -> str:
        """Return how safe a spot machine is; empty for any other and for one that is stopped."""
        if self.request.billing_mode != "spot":
            return ""
        if self.reclaim is not None and now >= self.reclaim.notice_at:
            if now >= self.reclaim.end_at:
                return "terminated"
            return "reclaiming" if now >= self.reclaim.begin_at else "notified"
        return "running" if self.status(now) in BILLED_STATUSES else ""

    def spot_reclaim_time(self, now: float) -> int:
        """Return the Unix second of the reclaim, 0 while there is none to tell of."""
        if self.reclaim is None or now < self.reclaim.time_shown_at:
            return 0
        return int(self.reclaim.begin_at)
