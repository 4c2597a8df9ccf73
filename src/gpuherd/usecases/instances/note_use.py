"""Note use: the user says that an instance is in use, so that silence does not end it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import SYSTEM_CALLER, Caller
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Instance
from gpuherd.ports.instances import Change, Instances
from gpuherd.usecases.instances.change_goal import WRITE_TRIES_MAX
from gpuherd.usecases.instances.find import FindInstance

# Whoever beats faster writes no more; where nothing ends by silence it only has to look right.
WRITE_INTERVAL = timedelta(seconds=1)
WRITE_INTERVAL_UNWATCHED = timedelta(minutes=1)


@dataclass(frozen=True)
class NoteUse:
    """The use case."""

    instances: Instances
    find: FindInstance
    clock: Clock

    async def __call__(self, word: str, caller: Caller = SYSTEM_CALLER) -> None:
        """Write down that it is in use now."""
        instance_id = (await self.find(word, caller)).id
        for _ in range(WRITE_TRIES_MAX):
            it = await self.instances.get(instance_id)
            now = self.clock.now()
            if it.status in TERMINAL_STATUSES or _is_fresh(it, now):
                return
            try:
                await self.instances.update(Change(replace(it, used_at=now)))
            except StaleWrite:
                continue
            return
        raise StaleWrite(f"instance {instance_id} is changing too fast; try again")


def _is_fresh(it: Instance, now: datetime) -> bool:
    is_watched = it.terms.silence is not None or it.terms.idle is not None
    interval = WRITE_INTERVAL if is_watched else WRITE_INTERVAL_UNWATCHED
    # Both ways: after a wall clock that stepped back, the last word seems to lie in the future.
    return it.used_at is not None and abs(now - it.used_at) < interval
