"""What others do with the same users on the same days: models of our own, not anybody's code.

Where something is not known it is decided in their favour: a reply that is lost costs only the one of them
that is known to repeat its creates, and whoever leaves machines behind is told of them after a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from bench.month.measure import Played, Want
from bench.month.users import DAY_S, HOUR_S, Habit, Rental
from bench.month.weather import MonthWorld, WeatherPlan, set_faults
from gpuherd.domain.cloud.offer import BillingMode, Offer
from gpuherd.domain.cloud.template import CreateCall, Template
from gpuherd.domain.errors import CloudRefused, GpuherdError, OutcomeUnknown
from gpuherd.simulator.simulated_machine import SimulatedMachine
from proof.chaos.virtual_time import VirtualClock, VirtualLoop
from tests.support.herd import TEMPLATE
from tests.support.simulated_cloud import SimulatedCloud

LATENCY_S = 0.2
RETRY_S = 60.0
# A person comes so long after the end; of what nobody thinks of, somebody hears after a day.
BY_HAND_S, HEARD_OF_S = 300.0, DAY_S
# A create that got no answer is repeated so often, with pauses.
REPEATS, REPEAT_S = 12, 2.0
ALL = frozenset(Habit)


@dataclass(frozen=True)
class Policy:
    """How a strategy rents, heals and ends."""

    name: str
    is_spot: bool = True
    # Whether the limit of the user's wish holds, and whether it does for another machine after a loss.
    keeps_cap: bool = True
    keeps_cap_later: bool = True
    # How often it looks for machines that were lost; None: nobody does.
    look_s: float | None = None
    # Between two recoveries of one rental, at least.
    rest_s: float = 0.0
    # How often another one is tried for; None: as long as it is wanted.
    tries_max: int | None = None
    avoids_place: bool = False
    falls_back: bool = False
    # Creates are repeated whatever became of them, and what was under way in a crash is forgotten.
    forgets: bool = False
    # Whose rentals it ends by itself, and how long after their end.
    ends: frozenset[Habit] = frozenset()
    lag_s: float = 0.0


POLICIES = (
    Policy("always on demand, stopped by hand", is_spot=False, keeps_cap=False),
    Policy("spot, nobody recovers"),
    Policy("cold recovery every 15 min, at most one in 4 h", look_s=900.0, rest_s=4 * HOUR_S),
    Policy("predecessor as it behaves", keeps_cap=False, forgets=True),
    Policy(
        "SkyPilot-like",
        keeps_cap_later=False,
        look_s=60.0,
        avoids_place=True,
        falls_back=True,
        ends=ALL - {Habit.FORGOTTEN},
    ),
    # What a run has used is kept for the next one for a while, five minutes by default.
    Policy("dstack-like", look_s=120.0, tries_max=15, ends=ALL, lag_s=300.0),
)


def play_baseline(policy: Policy, plan: WeatherPlan, rentals: Sequence[Rental]) -> Played:
    """Play a month with another strategy."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run(_Baseline(policy, plan, loop).play(rentals))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run(asyncio.sleep(0))
        loop.close()
        asyncio.set_event_loop(None)


class _Baseline:
    def __init__(self, policy: Policy, plan: WeatherPlan, loop: VirtualLoop):
        self.policy, self.plan = policy, plan
        self.clock = VirtualClock(loop)
        self.world = MonthWorld(self.clock, plan)
        self.cloud = SimulatedCloud(self.world, latency_s=LATENCY_S)
        self.played = Played(policy.name, self.world, plan.end_s, [])
        self.rng = Random(f"baseline {plan.seed}")
        self.heard_of: list[asyncio.Future[None]] = []

    async def play(self, rentals: Sequence[Rental]) -> Played:
        self.template = await self.cloud.get_template(TEMPLATE)
        set_faults(self.world, self.plan)
        tasks = [asyncio.ensure_future(self._rent(it)) for it in rentals]
        await self.clock.sleep(self.plan.end_s - self.clock.elapsed_s)
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error
        return self.played

    async def _rent(self, rental: Rental) -> None:
        await self.clock.sleep(max(0.0, rental.at_s - self.clock.elapsed_s))
        machine = await self._acquire(rental, rental.at_s + rental.wait_s, self.policy.keeps_cap)
        if machine is None:
            self.played.refused["no offer"] += 1
            return
        end_s = self._running_s(machine) + rental.wanted_s
        made = [machine]
        self.played.wants.append(Want(rental, end_s, end_s + rental.stopped_s, made))
        recovered_s = -self.policy.rest_s
        while (lost_s := self._loss_s(machine)) is not None and lost_s < end_s:
            await self._until(lost_s)
            if self.policy.look_s is None or not rental.replaces:
                break
            found_s = max(
                lost_s + self.rng.uniform(0.0, self.policy.look_s), recovered_s + self.policy.rest_s
            )
            await self._until(min(found_s, end_s))
            recovered_s = self.clock.elapsed_s
            following = await self._acquire(rental, end_s, self.policy.keeps_cap_later, machine)
            await self._delete(machine)
            if following is None:
                return
            machine = following
            made.append(machine)
        await self._end(rental, machine, end_s)

    async def _end(self, rental: Rental, machine: SimulatedMachine, end_s: float) -> None:
        if rental.habit in self.policy.ends:
            end_s += self.policy.lag_s
        else:
            unattended = rental.habit in (Habit.FORGOTTEN, Habit.AGENT)
            end_s += HEARD_OF_S if unattended else BY_HAND_S
        lost_s = self._loss_s(machine)
        if lost_s is not None and lost_s < end_s:
            # Whoever is there sees that it is gone.
            end_s = min(end_s, lost_s + BY_HAND_S)
        await self._until(end_s)
        await self._delete(machine)

    async def _acquire(
        self, rental: Rental, until_s: float, keeps_cap: bool, before: SimulatedMachine | None = None
    ) -> SimulatedMachine | None:
        """Try all offers, best first, until one is had; return its machine once it runs."""
        tries = 0
        while True:
            begin_s = self.clock.elapsed_s
            for offer, mode in await self._ranked(rental, keeps_cap, before):
                machine = await self._create(rental, offer, mode)
                if machine is None:
                    continue
                await self._until(self._running_s(machine))
                if not self.policy.forgets or not self._was_killed(begin_s):
                    return machine
                self._forget(machine)
                begin_s = self.clock.elapsed_s
            tries += 1
            gave_up = before is not None and tries == self.policy.tries_max
            if gave_up or self.clock.elapsed_s + RETRY_S > until_s:
                return None
            await self.clock.sleep(RETRY_S)

    async def _ranked(
        self, rental: Rental, keeps_cap: bool, before: SimulatedMachine | None
    ) -> list[tuple[Offer, BillingMode]]:
        modes = [BillingMode.SPOT if rental.is_spot and self.policy.is_spot else BillingMode.ON_DEMAND]
        if before is not None and self.policy.falls_back:
            modes.append(BillingMode.ON_DEMAND)
        found = []
        for mode in dict.fromkeys(modes):
            try:
                offers = await self.cloud.list_offers(mode)
            except GpuherdError:
                continue
            found += [(it, mode) for it in offers if self._fits(it, mode, rental, keeps_cap)]
        old = before.cluster_id if before is not None and self.policy.avoids_place else ""
        return sorted(
            found, key=lambda it: (modes.index(it[1]), it[0].cluster_id == old, it[0].gpu_hourly_usd(it[1]))
        )

    def _fits(self, offer: Offer, mode: BillingMode, rental: Rental, keeps_cap: bool) -> bool:
        usd = offer.hourly_usd(mode, 1, rental.disk_gb)
        is_named = not rental.clusters or offer.cluster_id in rental.clusters
        if usd is None or not offer.available or not is_named or offer.product_name != rental.product_name:
            return False
        return not keeps_cap or usd <= rental.hourly_usd_max

    async def _create(self, rental: Rental, offer: Offer, mode: BillingMode) -> SimulatedMachine | None:
        template: Template = self.template
        order = CreateCall(rental.name, "", offer, template, 1, rental.disk_gb, mode)
        for _ in range(REPEATS):
            known = set(self.world.machines)
            try:
                return self.world.machines[await self.cloud.create_machine(order)]
            except CloudRefused:
                return None
            except OutcomeUnknown:
                made = [it for key, it in self.world.machines.items() if key not in known]
                mine = [it for it in made if it.request.name == rental.name]
                if mine and not self.policy.forgets:
                    return mine[0]
                for it in mine:
                    self._forget(it)
            except GpuherdError:
                pass
            if not self.policy.forgets:
                return None
            await self.clock.sleep(REPEAT_S)
        return None

    def _forget(self, machine: SimulatedMachine) -> None:
        """Lose the id of a machine: it runs until somebody hears of it."""
        self.played.unbound.append(machine)
        self.heard_of.append(asyncio.ensure_future(self._hear_of(machine)))

    async def _hear_of(self, machine: SimulatedMachine) -> None:
        await self.clock.sleep(HEARD_OF_S)
        await self._delete(machine)

    def _was_killed(self, since_s: float) -> bool:
        return any(since_s <= at_s <= self.clock.elapsed_s for at_s in self.plan.kills)

    async def _delete(self, machine: SimulatedMachine) -> None:
        while True:
            try:
                await self.cloud.delete_machine(machine.id)
            except GpuherdError:
                await self.clock.sleep(RETRY_S)
            else:
                return

    def _running_s(self, machine: SimulatedMachine) -> float:
        return self.world.elapsed(next(it.at for it in machine.turns if it.status == "running"))

    def _loss_s(self, machine: SimulatedMachine) -> float | None:
        return None if machine.reclaim is None else self.world.elapsed(machine.reclaim.end_at)

    async def _until(self, at_s: float) -> None:
        await self.clock.sleep(max(0.0, at_s - self.clock.elapsed_s))
