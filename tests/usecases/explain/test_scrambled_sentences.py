"""No decision reads a sentence: with every sentence replaced by gibberish, everything happens as before."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Instance, WaitingFor
from gpuherd.domain.instance.operation import Failure
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.ports.instance_port import Change, InstanceLeases, LeasedInstance
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED
from gpuherd.usecases.services import Stores
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud

Rewrite = Callable[[str], str]


def gibberish(text: str) -> str:
    """Return other words; the same for the same, and none for none."""
    return text and f"zq {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def as_it_is(text: str) -> str:
    return text


def rewritten(change: Change, words: Rewrite) -> Change:
    """Return the change with every sentence in it in other words."""

    def failure(it: Failure | None) -> Failure | None:
        return it and replace(it, message=words(it.message))

    it = change.instance
    instance = replace(
        it,
        reason=words(it.reason),
        waiting_for=it.waiting_for and replace(it.waiting_for, message=words(it.waiting_for.message)),
        last_error=failure(it.last_error),
        operation=it.operation and replace(it.operation, error=failure(it.operation.error)),
    )
    events = tuple(
        replace(
            one,
            reason=words(one.reason),
            cause=one.cause and replace(one.cause, message=words(one.cause.message)),
        )
        for one in change.events
    )
    attempt = change.attempt and replace(change.attempt, error=words(change.attempt.error))
    return replace(change, instance=instance, events=events, attempt=attempt)


@dataclass
class RewritingLeases:
    """Any `InstanceLeases`, with other words in whatever is saved."""

    leases: InstanceLeases
    words: Rewrite
    saved: list[Instance]

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        return await self.leases.acquire(instance_id, job_id)

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        self.saved.append(change.instance)
        return await self.leases.save(leased, rewritten(change, self.words))

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        return await self.leases.refresh(leased)

    async def release(self, leased: LeasedInstance) -> None:
        await self.leases.release(leased)


class RewritingInstances(SqlInstances):
    """The instances, with other words in whatever is written."""

    words: Rewrite = staticmethod(as_it_is)

    async def add(self, change: Change, *claims: IdempotencyClaim) -> Instance:
        return await super().add(rewritten(change, self.words), *claims)

    async def update(self, change: Change, claim: IdempotencyClaim | None = None) -> Instance:
        return await super().update(rewritten(change, self.words), claim)


class RewritingCloud:
    """The simulated cloud, which says everything that it has to say of errors in other words."""

    def __init__(self, world: World, words: Rewrite):
        self._cloud, self._words = SimulatedCloud(world), words

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cloud, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await method(*args, **kwargs)
            except GpuherdError as error:
                error.message = self._words(error.message)
                raise

        return call


class RewritingHerd(Herd):
    """A herd whose sentences are all in other words."""

    def __init__(self, path: Path, world: World, clock: FakeClock, words: Rewrite):
        self.words = words
        self.saved: list[Instance] = []
        super().__init__(path, world, clock, cloud=RewritingCloud(world, words))

    def _open(self, path: Path) -> Stores:
        ports = super()._open(path)
        instances = RewritingInstances(self.database, self.clock, self.hub.changed)
        instances.words = self.words
        return replace(
            ports,
            instances=instances,
            instance_leases=RewritingLeases(ports.instance_leases, self.words, self.saved),
        )


def sell_out(world: World, units: int = 0) -> None:
    for product in world.catalogue.products:
        for cluster in world.catalogue.clusters:
            with suppress(ValueError):
                world.stock(product.id, cluster.id, units)


async def a_life(herd: Herd, world: World) -> Instance:
    """Rent, stop, start and delete, with one region sold out and a reply lost on the way."""
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1))
    world.faults.add(
        Fault(FaultKind.ERROR_AFTER_COMMIT, count=1, endpoints=(ApiEndpoint.CREATE,), status=502)
    )
    instance = await herd.settle(await herd.launch(webhook_url="https://example.com/hook"))
    await herd.stop(instance.id)
    await herd.settle(instance)
    await herd.start(instance.id)
    await herd.settle(instance)
    await herd.delete(instance.id)
    return await herd.settle(instance)


async def a_wait_for_capacity(herd: Herd, world: World) -> Instance:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=3600)
    await herd.run_for(timedelta(minutes=10))
    return instance


async def a_wait_that_is_given_up(herd: Herd, world: World) -> Instance:
    sell_out(world)
    return await herd.settle(await herd.launch(capacity_wait_s=300))


async def an_outage(herd: Herd, world: World) -> Instance:
    await herd.run_for(timedelta(seconds=5))
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=120))
    instance = await herd.launch()
    await herd.run_for(timedelta(minutes=1))
    return instance


async def an_outage_that_ends(herd: Herd, world: World) -> Instance:
    return await herd.settle(await an_outage(herd, world))


async def a_start_in_an_outage(herd: Herd, world: World) -> Instance:
    instance = await herd.settle(await herd.launch())
    await herd.stop(instance.id)
    await herd.settle(instance)
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=60))
    await herd.start(instance.id)
    return await herd.settle(instance)


async def blocked_creates(herd: Herd, world: World) -> Instance:
    await herd.flags.put(CREATES_BLOCKED, "tags get lost")
    instance = await herd.launch()
    await herd.run_for(timedelta(minutes=2))
    return instance


async def an_application_that_never_answers(herd: Herd, world: World) -> Instance:
    herd.prober.is_up = lambda _: False
    return await herd.settle(await herd.launch(health_check=HealthCheck()))


STORIES = [
    a_life,
    a_wait_for_capacity,
    a_wait_that_is_given_up,
    an_outage,
    an_outage_that_ends,
    a_start_in_an_outage,
    blocked_creates,
    an_application_that_never_answers,
]
Play = Callable[[Herd, World], Awaitable[Instance]]


async def played(story: Play, path: Path, words: Rewrite) -> tuple[RewritingHerd, Instance]:
    clock = FakeClock(auto=True)
    world = World(clock, random.Random(7))
    herd = RewritingHerd(path, world, clock, words)
    return herd, await story(herd, world)


async def decisions(herd: Herd, instance: Instance) -> dict[str, Any]:
    """Return all that was decided, and nothing that was said."""
    it = await herd.get(instance.id)
    why = (await herd.why(it)).model_dump(mode="json")
    return {
        "instance": (it.status, it.goal, it.settled, it.releasing, it.sequence, it.status_since),
        "error": it.last_error and it.last_error.code,
        "waiting_for": it.waiting_for and (it.waiting_for.what, it.waiting_for.since),
        "events": [
            (one.type, one.at, one.actor, one.before, one.after, one.cause and one.cause.code)
            for one in await herd.events(it.id)
        ],
        "attempts": [(one.n, one.state, one.region, one.error_code) for one in await herd.attempts(it.id)],
        "webhooks": herd.webhooks(),
        "waits": why["waits"] and {key: why["waits"][key] for key in why["waits"] if key != "sentence"},
        "advice": why["advice"],
        "phases": why["phases"],
        "rounds": [(one["at"], one["rounds"], one["rankedTotal"]) for one in why["considered"]],
        "story": [(one["at"], one["times"], one["lastAt"]) for one in why["story"]],
    }


@pytest.mark.parametrize("story", STORIES, ids=lambda it: it.__name__)
async def test_other_words_change_no_decision(story: Play, tmp_path: Path) -> None:
    plain = await decisions(*await played(story, tmp_path / "plain", as_it_is))
    scrambled_herd, instance = await played(story, tmp_path / "scrambled", gibberish)
    assert (await scrambled_herd.instances.get(instance.id)).reason.startswith("zq ")
    assert await decisions(scrambled_herd, instance) == plain


WAIT_WORDS = {
    WaitingFor.CLOUD: "waiting for the cloud",
    WaitingFor.CAPACITY: "waiting for capacity",
    WaitingFor.CREATES: "creates are blocked",
}


@pytest.mark.parametrize("story", STORIES, ids=lambda it: it.__name__)
async def test_what_is_waited_for_is_what_the_reason_says(story: Play, tmp_path: Path) -> None:
    """A new reason ends a wait, and a wait has its reason: whoever sets one sets the other."""
    herd, _ = await played(story, tmp_path / "plain", as_it_is)
    for it in herd.saved:
        said = next((what for what, words in WAIT_WORDS.items() if it.reason.startswith(words)), None)
        assert (it.waiting_for and it.waiting_for.what) == said, it.reason


async def test_the_stories_wait_for_everything_that_can_be_waited_for(tmp_path: Path) -> None:
    waits = set()
    for story in STORIES:
        herd, _ = await played(story, tmp_path / story.__name__, as_it_is)
        waits |= {it.waiting_for.what for it in herd.saved if it.waiting_for is not None}
    assert waits == {"cloud", "capacity", "creates"}
