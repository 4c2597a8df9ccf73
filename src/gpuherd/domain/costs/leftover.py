"""What still costs money, or will, and what could be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class LeftoverKind(StrEnum):
    """Why something costs, or will."""

    RUNNING = "running"
    STOPPED = "stopped"
    VOLUME = "volume"
    ORPHAN = "orphan"
    WAITING = "waiting"


SUGGESTIONS = {
    LeftoverKind.RUNNING: "stop it while nobody uses it, or delete it: its GPUs are paid for by the second",
    LeftoverKind.STOPPED: "delete it if its data is not needed: its disk costs as long as it is there",
    LeftoverKind.VOLUME: "delete it if its data is not needed (gpuherd volumes rm): it costs, mounted or not",
    LeftoverKind.ORPHAN: "no instance has it: adopt it, stop it or delete it (gpuherd orphans)",
    LeftoverKind.WAITING: "it is rented as soon as there is room; delete it if it is not wanted any more",
}


@dataclass(frozen=True)
class Leftover:
    """One thing; amounts in nano-dollars."""

    kind: LeftoverKind
    id: str
    name: str
    instance_id: str | None = None
    cloud_id: str | None = None
    product_name: str = ""
    region: str = ""
    hourly: int = 0
    # None where it was never metered.
    so_far: int | None = None
    since: datetime | None = None

    @property
    def suggestion(self) -> str:
        return SUGGESTIONS[self.kind]
