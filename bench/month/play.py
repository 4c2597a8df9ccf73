"""Our own month: the real use cases on virtual time, with the users and the weather of one seed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from bench.month.archive import Archive
from bench.month.process import MonthProcess
from bench.month.users import SILENCE_S, Habit, Rental
from bench.month.weather import MonthWorld, WeatherPlan, set_faults
from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.errors import GpuherdError, NotFound
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Instance, Status
from gpuherd.domain.instance.launch_spec import LaunchSpec, Optimize
from gpuherd.domain.instance.lineage import OnReclaim
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.simulator.simulated_bill import Use
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from proof.chaos.cloud.reused_ids import IdReuse, ReusingWorld
from proof.chaos.ends.evidence import WatchedTables
from proof.chaos.harness import Harness
from proof.chaos.process import Pace, Process
from tests.support.herd import TEMPLATE
from tests.support.memory.tables import InstanceRow

# As the service has them by default: every few seconds while something moves, else every half minute.
PACE = Pace(look_s=2.0, idle_s=30.0, latency_s=0.2, keeps_ends=True)
POLL_S = 5.0
BEAT_S = SILENCE_S / 3
# Whoever is told that a machine was taken back, and has not asked for another, gives back what is left of it.
NOTICED_S = 600.0
ENDING_CALLS = frozenset({"stop_machine", "delete_machine"})
TIDY_S = 900.0
IDLE = (0.0, 1.0)


@dataclass
class UserLog:
    """What became of one rental, as its user saw it; in seconds from the beginning."""

    rental: Rental
    refused: str = ""
    usable_s: float | None = None
    # When its user asked for its end, stopped using it, or was last heard.
    ended_s: float | None = None
    instance_ids: list[str] = field(default_factory=list)


class MonthHarness(Harness):
    """The harness of chaos on the market of a month; it keeps only the evidence that is measured."""

    crashes_max = 10**6
    process_type = MonthProcess

    def __init__(self, plan: WeatherPlan, rentals: Sequence[Rental], pace: Pace):
        self.plan = plan
        self.logs = {it.name: UserLog(it) for it in rentals}
        super().__init__(plan.seed, pace, lambda life: plan.kill_policy(life, lambda: self.clock.elapsed_s))
        assert isinstance(self.evidence.tables, WatchedTables)
        self.tables = self.evidence.tables
        self.archive = Archive(self.tables, self.evidence.ends)

    def _make_world(self, seed: int, id_reuse: IdReuse) -> ReusingWorld:
        return MonthWorld(self.clock, self.plan)

    def say(self, line: str) -> None:
        """A month has millions of lines, and nobody reads them."""

    def note_list_end(self, listing: Listing) -> None:
        """Nobody asks for the ends of all the lists of a month."""

    def _note_call(self, method: str, cloud_id: str, begin: float, error: BaseException | None) -> None:
        if method in ENDING_CALLS:
            super()._note_call(method, cloud_id, begin, error)

    def _note_commit(self, table: str, row: object) -> None:
        super()._note_commit(table, row)
        self.stir()
        if isinstance(row, InstanceRow):
            known = self.logs[row.instance.name].instance_ids
            if row.instance.id not in known:
                known.append(row.instance.id)

    def stir(self) -> None:
        """Wake the loops of the process that rest because there was nothing to do."""
        if isinstance(self.process, MonthProcess):
            self.process.stir()

    def newest(self, name: str) -> Instance | None:
        """Return the newest instance of a rental, if there is one."""
        rows = self.evidence.tables.instances
        return next((rows[it].instance for it in reversed(self.logs[name].instance_ids) if it in rows), None)


def play_month(plan: WeatherPlan, rentals: Sequence[Rental], pace: Pace = PACE) -> MonthHarness:
    """Play a month to its end."""
    harness = MonthHarness(plan, rentals, pace)
    harness.run(_Month(harness).play())
    harness.finish()
    return harness


class _Month:
    def __init__(self, harness: MonthHarness):
        self.harness, self.clock = harness, harness.clock

    async def play(self) -> None:
        harness, plan = self.harness, self.harness.plan
        supervisor = asyncio.ensure_future(harness.supervise())
        set_faults(harness.world, plan)
        work = [self._rent(log) for log in harness.logs.values()]
        work += [self._jump(*it) for it in plan.jumps]
        work += [self._tidy()]
        tasks = [asyncio.ensure_future(it) for it in work]
        await self.clock.sleep(plan.end_s)
        # Whatever is still there goes on, and is in all sums.
        for task in (*tasks, supervisor):
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error

    async def _jump(self, at_s: float, seconds: float) -> None:
        await self.clock.sleep(at_s)
        self.clock.jump_wall(seconds)
        self.harness.note_jump(seconds)
        self.harness.tables.changes += 1
        self.harness.stir()

    async def _tidy(self) -> None:
        while True:
            await self.clock.sleep(TIDY_S)
            self.harness.archive.tidy(self.clock.elapsed_s)

    async def _rent(self, log: UserLog) -> None:
        await self.clock.sleep(log.rental.at_s)
        if not await self._launch(log) or not await self._until_usable(log):
            return
        rental, begin_s = log.rental, self.clock.elapsed_s
        log.usable_s = begin_s
        match rental.habit:
            case Habit.INTERACTIVE:
                self._plan_use(rental.name, rental.needed_s)
                log.ended_s = begin_s + rental.needed_s
                await self._until_lost_or(log, rental.wanted_s)
            case Habit.FORGOTTEN:
                return
            case Habit.AGENT:
                await self._beat(log, begin_s + rental.needed_s)
            case _:
                await self._until_lost_or(log, rental.needed_s)
                log.ended_s = self.clock.elapsed_s
                await self._delete(rental.name)

    async def _launch(self, log: UserLog) -> bool:
        rental = log.rental
        wish = LaunchSpec(
            product_name=rental.product_name,
            template_id=TEMPLATE,
            disk_gb=rental.disk_gb,
            billing_mode=BillingMode.SPOT if rental.is_spot else BillingMode.ON_DEMAND,
            hourly_usd_max=rental.hourly_usd_max,
            optimize=Optimize.PRICE,
            capacity_wait_s=int(rental.wait_s),
        )
        request = LaunchRequest(
            name=rental.name,
            wish=wish,
            regions=rental.clusters or None,
            terms=rental.terms,
            on_reclaim=OnReclaim.REPLACE if rental.replaces else OnReclaim.NONE,
            claim=IdempotencyClaim("month", rental.name, rental.name),
        )

        async def launch(process: Process) -> Instance:
            return (await process.launch_request(request)).instance

        try:
            await self.harness.ask(launch)
        except GpuherdError as refused:
            log.refused = refused.code
            return False
        return True

    async def _until_usable(self, log: UserLog) -> bool:
        while (it := self.harness.newest(log.rental.name)) is not None and not it.usable:
            if it.status in TERMINAL_STATUSES:
                log.refused = it.status.value
                return False
            await self.clock.sleep(POLL_S)
        return it is not None

    def _plan_use(self, name: str, needed_s: float) -> None:
        it, world = self.harness.newest(name), self.harness.world
        if it is not None and it.cloud_id is not None:
            world.uses.set(it.cloud_id, Use(world.now() + needed_s, *IDLE))

    async def _until_lost_or(self, log: UserLog, seconds: float) -> None:
        """Wait until it is not needed any more; whoever does not ask for replacement is told of a loss."""
        end_s = self.clock.elapsed_s + seconds
        while (left_s := end_s - self.clock.elapsed_s) > 0:
            await self.clock.sleep(min(left_s, NOTICED_S))
            it = self.harness.newest(log.rental.name)
            if not log.rental.replaces and (it is None or it.status is Status.EXITED):
                if self.clock.elapsed_s < end_s:
                    await self._delete(log.rental.name)
                return

    async def _beat(self, log: UserLog, until_s: float) -> None:
        """Say that it is in use until the agent dies; a machine that was taken back is given back."""
        while self.clock.elapsed_s < until_s:
            it = self.harness.newest(log.rental.name)
            if it is None or not it.usable:
                await self._delete(log.rental.name)
                return
            with suppress(GpuherdError):
                await self.harness.ask(partial(_note_use, it.id))
                log.ended_s = self.clock.elapsed_s
            await self.clock.sleep(min(BEAT_S, max(0.0, until_s - self.clock.elapsed_s)))

    async def _delete(self, name: str) -> None:
        """Give back whatever has this name."""

        async def delete(process: Process) -> None:
            it = await process.find_named(name)
            await process.delete(it.id)

        while True:
            try:
                await self.harness.ask(delete)
            except NotFound:
                return
            except GpuherdError:
                await self.clock.sleep(POLL_S)
            else:
                return


async def _note_use(instance_id: str, process: Process) -> None:
    await process.heartbeat(instance_id)
