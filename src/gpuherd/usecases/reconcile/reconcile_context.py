"""What the steps of one pass share: the pass itself, and the two ways in which a pass ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import Instance, Waiting
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.domain.instance.step_types import Observation
from gpuherd.domain.job import Job
from gpuherd.ports.instance_port import Change, LeasedInstance
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.instances.tell_timeline import EventDetails
from gpuherd.usecases.services import Services

RECHECK_SOON = timedelta(seconds=1)


@dataclass(frozen=True)
class Pause:
    """Nothing to do for a while, and the reason if users should see one."""

    delay: timedelta
    reason: str = ""
    # What has to change first, where gpuherd cannot change it.
    waiting: Waiting | None = None
    # The details of the event that begins such a wait.
    record: EventDetails | None = None


@dataclass(frozen=True)
class Rest:
    """Nothing to do until the goal or the machine changes, or until `look_at`."""

    look_at: datetime | None = None


@dataclass
class InstancePass:
    """One run of the reconciler over one instance. This is the only mutable object of a pass."""

    services: Services
    job: Job
    # Each save replaces it. It carries the token of the lease and the version that was read.
    locked: LeasedInstance
    observation: Observation = field(default_factory=Observation)

    @property
    def instance(self) -> Instance:
        return self.locked.instance

    async def save(self, instance: Instance, *new_events: NewEvent, attempt: Attempt | None = None) -> None:
        """Write the instance, its events and their deliveries in one transaction.

        `StaleWrite` if the row has changed or the lease was lost: then nothing was written.
        """
        change = self.services.event_recorder.change(instance, *new_events, attempt=attempt)
        if change.ends_machine:
            # guard: what no list has shown is placed by the time since its call, however the clock was set
            change = replace(change, reading=self.services.observer.metering.read_clocks())
        await self.write(change)

    async def write(self, change: Change) -> None:
        """Write a change under the lease."""
        self.locked = await self.services.stores.instance_leases.save(self.locked, change)

    async def save_outcome(
        self, edit: Callable[[Instance], Instance], *new_events: NewEvent, attempt: Attempt | None
    ) -> None:
        """Write how a call went, whatever goal the user has set while the call was under way."""
        while True:
            try:
                await self.save(edit(self.instance), *new_events, attempt=attempt)
            except StaleWrite:
                # Raises if the lease is lost. Else only the goal has changed, and the outcome still holds.
                await self.reread()
            else:
                return

    async def reread(self) -> None:
        """Read the instance and everything about it again; `StaleWrite` if the lease was lost."""
        self.locked = await self.services.stores.instance_leases.refresh(self.locked)
