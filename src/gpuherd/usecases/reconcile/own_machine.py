"""Whether what has the id of an instance's machine is still that machine, before it is stopped or removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.domain.errors import MachineGone
from gpuherd.domain.instance.lifecycle.conditions import is_machine_of_other_call
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.instances import LeasedInstance
from gpuherd.ports.observations import Observations

# A list of the last minute is as good as a question. No cloud gives an id away again that soon.
LISTED_LATELY = timedelta(seconds=60)


@dataclass(frozen=True)
class VerifyOwnMachine:
    """The cloud takes an id and not a tag. While it shows nothing, the id may become another machine's."""

    cloud: Cloud
    observations: Observations
    clock: Clock

    async def before_stop(self, leased: LeasedInstance) -> bool:
        """Tell whether a stop would not hit the machine of another call."""
        return await self._was_listed_lately(leased) or await self._is_shown_or_gone(leased)

    async def before_removal(self, leased: LeasedInstance) -> bool:
        """Tell whether a removal would not hit another one; a repeated one only if ours is still there."""
        if leased.instance.asked_at is None:
            return await self.before_stop(leased)
        try:
            return await self._is_shown(leased)
        except MachineGone:
            return False

    async def _was_listed_lately(self, leased: LeasedInstance) -> bool:
        it, bound = leased.instance, leased.bound_attempt
        shown = next((each for each in leased.observations if each.machine.cloud_id == it.cloud_id), None)
        if shown is None or shown.missing_since is not None:
            return False
        if bound is not None and is_machine_of_other_call(shown.machine, it, bound):
            return False
        last = await self.observations.last_believable_list()
        return last is not None and abs(self.clock.now() - last.started_at) <= LISTED_LATELY

    async def _is_shown_or_gone(self, leased: LeasedInstance) -> bool:
        try:
            return await self._is_shown(leased)
        except MachineGone:
            # One "not found" proves nothing, and to ask for what is gone does no harm.
            return True

    async def _is_shown(self, leased: LeasedInstance) -> bool:
        machine = await self.cloud.get_machine(leased.instance.cloud_id or "")
        bound = leased.bound_attempt
        return bound is None or not is_machine_of_other_call(machine, leased.instance, bound)
