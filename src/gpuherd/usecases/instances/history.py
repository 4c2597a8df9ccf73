"""History: what happened to one instance, and which create calls were made for it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.domain.access.caller import Caller
from gpuherd.domain.instance.attempt import Attempt
from gpuherd.domain.instance.events import Event
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.instances import Instances
from gpuherd.usecases.instances.find import FindInstance


@dataclass(frozen=True)
class InstanceHistory:
    """An instance with all that is on record about it, oldest first."""

    instance: Instance
    events: tuple[Event, ...]
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class ReadHistory:
    """By id or name, among what the caller may see."""

    find: FindInstance
    instances: Instances

    async def __call__(self, word: str, caller: Caller) -> InstanceHistory:
        it = await self.find(word, caller)
        events = await self.instances.events(it.id)
        return InstanceHistory(it, events, await self.instances.attempts(it.id))

    async def events(self, word: str, caller: Caller) -> tuple[Event, ...]:
        """Return what happened, oldest first."""
        return await self.instances.events((await self.find(word, caller)).id)
