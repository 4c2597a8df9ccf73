"""Whether what has the id of an instance's machine is still that machine, before it is stopped or removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.errors import MachineGone
from gpuherd.domain.instance.lifecycle.conditions import is_machine_of_other_call
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.ports.observations import Observations

# A list begun in the last minute is as good as a question. No cloud gives an id away again that soon.
LISTED_LATELY = timedelta(seconds=60)


class Ownership(StrEnum):
    """Whose a machine is that has the id of an instance's own."""

    OURS = "ours"
    # Of another call: the cloud has given the id to it.
    ANOTHERS = "anothers"
    # The cloud says that nothing has the id. One such answer proves neither that, nor that it is still ours.
    DENIED = "denied"


@dataclass(frozen=True)
class VerifyOwnMachine:
    """The cloud takes an id and not a tag. While it shows nothing, the id may become another machine's."""

    cloud: Cloud
    instance_leases: InstanceLeases
    observations: Observations
    read_clocks: Callable[[], ClockReading]

    async def before_stop(self, leased: LeasedInstance) -> Ownership:
        """Tell whether a stop would hit the instance's own machine."""
        return Ownership.OURS if await self._was_listed_lately(leased) else await self._ask(leased)

    async def before_removal(self, leased: LeasedInstance) -> Ownership:
        """Tell whether a removal would hit the instance's own machine; a repeated one is always asked for."""
        is_repeated = leased.instance.asked_at is not None
        return await self._ask(leased) if is_repeated else await self.before_stop(leased)

    async def _was_listed_lately(self, leased: LeasedInstance) -> bool:
        last = await self.observations.last_believable_list()
        # What that list has shown, and not one before it: it may have come since the instance was leased.
        # guard: what stands for a question about a machine is what the last list has shown of it
        leased = await self.instance_leases.refresh(leased)
        shown, bound = listed_machine(leased), leased.bound_attempt
        if last is None or shown is None or shown.missing_since is not None:
            return False
        if bound is not None and is_machine_of_other_call(shown.machine, leased.instance, bound):
            return False
        age = last.age(self.read_clocks())
        # guard: a list that would not have missed a machine does not stand for it
        # guard: nothing is stopped or removed unseen under an id that may be another's
        return _has_shown(last, shown) and age is not None and age <= LISTED_LATELY

    async def _ask(self, leased: LeasedInstance) -> Ownership:
        try:
            machine = await self.cloud.get_machine(leased.instance.cloud_id or "")
        except MachineGone:
            # guard: nothing is stopped or removed under an id that the cloud has just denied
            return Ownership.DENIED
        bound = leased.bound_attempt
        is_anothers = bound is not None and is_machine_of_other_call(machine, leased.instance, bound)
        return Ownership.ANOTHERS if is_anothers else Ownership.OURS


def _has_shown(last: ListRecord, shown: ObservedMachine) -> bool:
    """Tell whether a list would have missed a machine. While our knowledge is of a clock that was ahead of
    the list's, what the list does not show is taken for newer than the list."""
    return shown.changed_at < last.started_at or shown.changed_at == last.finished_at


def listed_machine(leased: LeasedInstance) -> ObservedMachine | None:
    """Return what the lists have last shown under the id of the instance's machine."""
    cloud_id = leased.instance.cloud_id
    return next((it for it in leased.observations if it.machine.cloud_id == cloud_id), None)
