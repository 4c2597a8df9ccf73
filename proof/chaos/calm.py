"""A long calm: people rent, stop, start and give back, and nothing goes wrong. How far is the ledger off?

The real use cases on the simulator's clock; the bill is the simulated cloud's own, which they never see.

    python -m proof.chaos.calm --days 30
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.simulator.simulated_bill import GPU
from gpuherd.simulator.simulated_machine import machine_charges
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from proof.chaos.checks.ledger_sums import LedgerSums, ledger_sums
from proof.chaos.crash_injection import never_crash
from proof.chaos.harness import Harness
from proof.chaos.output import tell
from proof.chaos.process import Pace, Process
from proof.chaos.runner import silence_logs
from tests.support.herd import Herd

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
# As the service has them by default: every few seconds while something moves, else every half minute.
PACE = Pace(look_s=2.0, idle_s=30.0, latency_s=0.2)
RELATIVE_ERROR_MAX = Fraction(1, 1000)
WANTED_MEDIAN_S = 4 * HOUR_S
WANTED_SIGMA = 0.8
DISKS_GB = (60, 60, 60, 200, 500)
POLL_S = 30.0
# Old lists go, as they do in the service: nobody asks for them again.
LISTS_KEPT = 50


@dataclass(frozen=True)
class CalmResult:
    """Both sums, in dollars, and what was wrong beyond what the ledger states."""

    sums: LedgerSums
    machines: int
    machine_hours: float
    looks: int
    violations: tuple[str, ...]

    @property
    def relative_error(self) -> Fraction:
        return self.sums.relative_error

    @property
    def holds(self) -> bool:
        return not self.violations and self.relative_error <= RELATIVE_ERROR_MAX

    def __str__(self) -> str:
        return (
            f"{self.machines} machines, {self.machine_hours:,.0f} machine hours, {self.looks:,} lists: "
            f"the ledger says ${float(self.sums.ledger_usd):.6f} ± {float(self.sums.stated_usd):.6f}, "
            f"the bill ${float(self.sums.billed_usd):.6f}: {float(self.relative_error):.5%} apart"
        )


def run_calm(seed: int, days: float, rentals_a_day: float) -> CalmResult:
    """Play so many days in virtual time."""
    harness = Harness(seed, PACE, lambda _life: never_crash)
    harness.run(_Users(harness, Random(f"users {seed}"), days, rentals_a_day).play())
    return _compare(harness)


@dataclass
class _Users:
    harness: Harness
    rng: Random
    days: float
    rentals_a_day: float

    async def play(self) -> None:
        supervisor = asyncio.ensure_future(self.harness.supervise())
        housekeeper = asyncio.ensure_future(self._forget_lists())
        await self.harness.clock.sleep(60.0)
        rentals = []
        at_s, n = 0.0, 0
        while (at_s := at_s + self.rng.expovariate(self.rentals_a_day / DAY_S)) < self.days * DAY_S:
            rentals.append(asyncio.ensure_future(self._rent(n, at_s, Random(f"{self.harness.seed}/{n}"))))
            n += 1
        await self.harness.clock.sleep(self.days * DAY_S)
        # Whatever is still there goes on, and is in both sums.
        for task in (*rentals, supervisor, housekeeper):
            task.cancel()
        for error in await asyncio.gather(*rentals, return_exceptions=True):
            assert error is None or isinstance(error, asyncio.CancelledError), error

    async def _rent(self, n: int, at_s: float, rng: Random) -> None:
        """One rental: wanted for some hours, now and then stopped for the night, in the end given back."""
        await self.harness.clock.sleep(at_s)
        wish = replace(Herd.wish, disk_gb=rng.choice(DISKS_GB))
        request = LaunchRequest(name=f"rental-{n}", wish=wish, webhook_url=None)

        async def launch(process: Process) -> Instance:
            return (await process.launch_request(request)).instance

        it = await self.harness.ask(launch)
        for sitting in range(1 + (rng.random() < 0.3)):
            if sitting:
                await self._change("stop", it.id)
                await self._until(it.id, Status.EXITED)
                await self.harness.clock.sleep(rng.uniform(HOUR_S, 12 * HOUR_S))
                await self._change("start", it.id)
            await self._until(it.id, Status.RUNNING)
            await self.harness.clock.sleep(rng.lognormvariate(0, WANTED_SIGMA) * WANTED_MEDIAN_S)
        if rng.random() < 0.9:
            await self._change("delete", it.id)

    async def _change(self, verb: str, instance_id: str) -> None:
        while True:
            try:
                await self.harness.ask(lambda process: getattr(process, verb)(instance_id))
            except GpuherdError:
                await self.harness.clock.sleep(POLL_S)
            else:
                return

    async def _until(self, instance_id: str, status: Status) -> None:
        rows = self.harness.evidence.tables.instances
        while rows[instance_id].instance.status is not status:
            await self.harness.clock.sleep(POLL_S)

    async def _forget_lists(self) -> None:
        tables = self.harness.evidence.tables
        while True:
            await self.harness.clock.sleep(HOUR_S)
            for number in sorted(tables.lists)[:-LISTS_KEPT]:
                tables.lists.pop(number)


def _compare(harness: Harness) -> CalmResult:
    evidence = harness.finish()
    world, tables = evidence.world, evidence.tables
    seen_at = max(it.started_at for it in tables.lists.values())
    spans = [row.span for row in tables.spans.values()]
    sums = ledger_sums(spans, world, harness.clock.now(), seen_at)
    charges = [it for machine in world.machines.values() for it in machine_charges(machine, world.now())]
    gpu_s = sum(it.span.end - it.span.begin for it in charges if it.kind == GPU)
    return CalmResult(
        sums=sums,
        machines=len(world.machines),
        machine_hours=gpu_s / HOUR_S,
        looks=evidence.looks,
        violations=(*sums.beyond.values(), *map(repr, evidence.unhandled)),
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.calm", description=__doc__)
    parser.add_argument("--days", type=float, default=30.0, help="virtual days (30)")
    parser.add_argument("--rentals", type=float, default=8.0, help="rentals a day, on average (8)")
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args(argv)
    silence_logs(for_good=True)
    begun_s = time.monotonic()
    found = run_calm(chosen.seed, chosen.days, chosen.rentals)
    tell(f"  seed {chosen.seed}, {chosen.days:g} days in {time.monotonic() - begun_s:.0f} s: {found}")
    for it in found.violations:
        tell(f"  {it}")
    return int(not found.holds)


if __name__ == "__main__":
    sys.exit(main())
