"""What the paid checks see of one machine, in the order in which it happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuherd.adapters.novita.novita_call import NovitaReply


@dataclass(frozen=True)
class Sighting:
    """A status as a GET showed it, and when we asked."""

    at: datetime
    status: str


@dataclass
class MachineStory:
    """Everything that was seen. What is None was not seen, for the reason in `broke_off`."""

    sent_at: datetime
    cloud_id: str | None = None
    # As the offer said, for one GPU and hour.
    gpu_usd: Decimal | None = None
    sightings: list[Sighting] = field(default_factory=list)
    # Seconds after the wish was sent.
    listed_after_s: float | None = None
    unlisted_after_s: float = 0.0
    # The machine while it runs for the first time: by GET, and the same in the list.
    row: dict[str, Any] | None = None
    listed_row: dict[str, Any] | None = None
    row_stopped: dict[str, Any] | None = None
    row_restarted: dict[str, Any] | None = None
    asked: dict[str, datetime] = field(default_factory=dict)
    refused_create: NovitaReply | None = None
    refused_start: NovitaReply | None = None
    metrics: NovitaReply | None = None
    gone: NovitaReply | None = None
    deleted_again: NovitaReply | None = None
    # What the server makes of it: why it rents nothing more, if so.
    creates_blocked: str | None = None
    broke_off: str = ""

    def first(self, status: str, since: datetime | None = None) -> datetime | None:
        """Return when a status was seen first, or first since a moment."""
        return next(
            (it.at for it in self.sightings if it.status == status and (since is None or it.at >= since)),
            None,
        )

    @property
    def runs(self) -> list[Mapping[str, str]]:
        """When each run began to cost, came to run, was asked to end, and had ended."""
        stop, start, delete = (self.asked.get(it) for it in ("stop", "start", "delete"))
        first = {
            "paid": self.first("pulling"),
            "running": self.first("running"),
            "ended": stop or delete,
            "exited": stop and self.first("exited", stop),
        }
        second = {"paid": start, "running": start and self.first("running", start), "ended": delete}
        runs = [first, second] if start else [first]
        return [{name: at.isoformat() for name, at in run.items() if at is not None} for run in runs]

    @property
    def machine(self) -> Mapping[str, Any] | None:
        """What a later look at the bill needs, as JSON."""
        if self.cloud_id is None:
            return None
        price = None if self.gpu_usd is None else str(self.gpu_usd)
        return {
            "cloudInstanceId": self.cloud_id,
            "sentAt": self.sent_at.isoformat(),
            "gpuHourlyUsd": price,
            "runs": self.runs,
        }
