"""Change the goal: start, stop or delete. Writes down what is wanted, and leaves the doing to a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from gpuherd.clock import Clock, Ids
from gpuherd.domain import events, goals
from gpuherd.domain.errors import CircuitOpen, StaleWrite
from gpuherd.domain.estimate import time_to_ready
from gpuherd.domain.goals import StartOrder
from gpuherd.domain.health import HealthCheck
from gpuherd.domain.instance import Instance
from gpuherd.ports.store import Instances, JobBook
from gpuherd.usecases.activity import Activities
from gpuherd.usecases.chronicle import Chronicle, News
from gpuherd.usecases.find_instance import FindInstance

# Each try loses only against somebody else's success, so a handful is plenty.
TRIES = 20


@dataclass(frozen=True)
class ChangeGoal:
    """The use case. The last goal that was accepted wins; an earlier one under way ends as superseded."""

    instances: Instances
    jobs: JobBook
    find: FindInstance
    chronicle: Chronicle
    activities: Activities
    clock: Clock
    ids: Ids
    max_wait: timedelta
    breaker_state: Callable[[], str]

    async def start(
        self,
        word: str,
        *,
        health_check: HealthCheck | None = None,
        webhook_url: str | None = None,
        by_name: bool = False,
        actor: str = "gpuherd",
    ) -> Instance:
        """Start what has exited; `Conflict` otherwise. Known at once to be in vain: `CircuitOpen`."""
        instance = await self._found(word, by_name)
        history = await self.instances.ready_times_s(instance.wish.product_name)
        order = StartOrder(health_check, webhook_url, self.max_wait, time_to_ready(history))

        def wanted(it: Instance) -> Instance:
            started = goals.start(it, order, self.ids.new("op_"), self.clock.now())
            if self.breaker_state() == "OPEN":
                raise CircuitOpen("Novita has not answered lately; try the start again in a while")
            return started

        return await self._change(instance.id, wanted, actor)

    async def stop(self, word: str, *, by_name: bool = False, actor: str = "gpuherd") -> Instance:
        """Stop what runs."""
        instance = await self._found(word, by_name)
        return await self._change(
            instance.id, lambda it: goals.stop(it, self.ids.new("op_"), self.clock.now()), actor
        )

    async def delete(self, word: str, *, by_name: bool = False, actor: str = "gpuherd") -> Instance:
        """Delete, whatever the state: a create under way is resolved first, then its machine removed."""
        instance = await self._found(word, by_name)
        return await self._change(
            instance.id, lambda it: goals.delete(it, self.ids.new("op_"), self.clock.now()), actor
        )

    async def _found(self, word: str, by_name: bool) -> Instance:
        return await (self.find.named(word) if by_name else self.find(word))

    async def _change(self, instance_id: str, wanted: Callable[[Instance], Instance], actor: str) -> Instance:
        for _ in range(TRIES):
            before = await self.instances.get(instance_id)
            after = wanted(before)
            if after is before:
                return before
            put_aside = goals.superseded(before, self.clock.now())
            type_ = events.GOAL_EVENTS[after.status]
            news = News(type_, after.reason, {}, before.status.value, after.status.value)
            change = self.chronicle.change(after, news, actor=actor)
            if put_aside is not None:
                change = replace(change, operations=(put_aside, *change.operations))
            try:
                saved = await self.instances.update(change)
            except StaleWrite:
                continue
            await self.jobs.ring([self.activities.turn(saved)])
            return saved
        raise StaleWrite(f"instance {instance_id} is changing too fast; try again")
