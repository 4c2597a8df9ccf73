"""What our lists of the cloud showed, in the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.cloud.vanishing import Bound
from gpuherd.domain.costs.meter.metering import Metering, MeterState
from gpuherd.domain.instance.instance import Instance


class Observations(Protocol):
    """What our lists of the cloud showed."""

    async def all_known(self) -> Mapping[str, ObservedMachine]:
        """Return every machine that we ever saw and that is not known to be gone for good."""
        ...

    async def witnesses(self, older_than: datetime, limit: int) -> Collection[str]:
        """Return some machines that an honest list must show: bound, in use, and old enough."""
        ...

    async def record(
        self,
        record: ListRecord,
        changed: Sequence[ObservedMachine],
        forgotten: Sequence[str],
        metering: Metering | None = None,
    ) -> tuple[Instance, ...]:
        """Write down a list: what changed, what that costs, what can be forgotten.

        Every instance that this concerns is unsettled by it, so that none is overlooked after a crash, and
        returned, so that its job can be woken at once.
        """
        ...

    async def meter_state(self) -> MeterState:
        """Return what the meters need to know at a start."""
        ...

    async def unmetered(self) -> Collection[str]:
        """Return which machines were listed last and have no span of their GPUs that goes on."""
        ...

    async def any_unsettled(self) -> bool:
        """Tell whether some instance is not settled, and has a machine or may have one."""
        ...

    async def last_list(self) -> ListRecord | None:
        """Return the list that was written down last."""
        ...

    async def last_believable_list(self) -> ListRecord | None:
        """Return the latest list that proves anything."""
        ...

    async def last_vouched_list(self) -> ListRecord | None:
        """Return the latest of those that showed a machine which surely exists."""
        ...

    async def knows_any(self, machines: Sequence[Machine]) -> bool:
        """Tell whether one of these is known: seen before, or an instance's, or with the tag of a call."""
        ...

    async def bound_to(self, cloud_ids: Sequence[str]) -> Bound:
        """Count the instances that count on one of these machines, and those that count on any."""
        ...

    async def lists_since(self, moment: datetime) -> Sequence[ListRecord]:
        """Return the lists that were begun after this, oldest first; they are kept for a day."""
        ...
