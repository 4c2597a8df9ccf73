"""What the world will do by itself, in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from gpuherd.simulator.calls import Call
from gpuherd.simulator.create_request import CreateRequest


class Due(StrEnum):
    """What falls due."""

    FREE = "free"  # the GPU of a stopped, failed or removed machine is for sale again
    VANISH = "vanish"  # a removed machine is no longer listed
    RECLAIM = "reclaim"  # the eviction of a spot machine is over
    COMMIT = "commit"  # a call whose reply was lost takes effect late
    PRICE = "price"  # spot prices take a step
    STOCK = "stock"  # a product is sold out in a cluster, or can be had there again


@dataclass(frozen=True, slots=True, order=True)
class TimelineEvent:
    """One entry; those of the same moment happen in the order in which they were planned."""

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
        """Give up what was planned of these kinds."""
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
