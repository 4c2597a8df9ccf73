"""What the meter adds to the observer's tick, with many machines of which some change from list to list.

With and without it in turn, in one process, by its CPU time. A list is decoded as it comes from the cloud,
but for the sockets: with these the meter's part would be smaller still.
"""

from __future__ import annotations

import gc
import json
import random
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.environment import BenchEnvironment
from bench.report import Line
from gpuherd.adapters.novita import novita_json
from gpuherd.domain.cloud.machine import Listing
from gpuherd.simulator.api.shapes import instance_shape
from gpuherd.simulator.create_request import read_create_request
from gpuherd.simulator.views.listing import show_machine
from gpuherd.simulator.world.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud

DEARER_MAX = 1.05
PAGE = 100
# One in a thousand machines changes between two lists half a minute apart: each lives for hours.
CHANGING = 1000
ROUNDS = 15
WISH = {
    "name": "job",
    "productId": "4090.16c62g",
    "gpuNum": 1,
    "rootfsSize": 200,
    "billingMode": "spot",
    "imageUrl": "docker.io/library/ubuntu:22.04",
    "ports": "22/tcp,8888/http",
}


class RecordedCloud(SimulatedCloud):
    """Shows many machines, page by page, as they come over the wire."""

    def __init__(self, world: World, count: int):
        super().__init__(world)
        machine_id = world.create(read_create_request(WISH))
        row = instance_shape(
            show_machine(world, machine_id), world.catalogue, world.addresses, with_secrets=False
        )
        self._rows: list[dict[str, Any]] = [
            {**row, "id": f"m{n:06d}", "name": f"job-{n}", "status": "running"} for n in range(count)
        ]
        self._pages: list[bytes] = []
        self.change(())

    def change(self, numbers: Any) -> None:
        """Stop these machines, or start them again."""
        for n in numbers:
            row = self._rows[n]
            row["status"] = "exited" if row["status"] == "running" else "running"
        self._pages = [json.dumps(self._rows[n : n + PAGE]).encode() for n in range(0, len(self._rows), PAGE)]

    async def list_machines(self) -> Listing:
        now = self._clock.now()
        found = [novita_json.read_machine(row) for page in self._pages for row in json.loads(page)]
        return Listing(tuple(it for it in found if it is not None), True, now, now)


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    count = bench_env.scale.many
    with tempfile.TemporaryDirectory() as directory:
        clock = FakeClock()
        cloud = RecordedCloud(World(clock, random.Random(5)), count)
        herd = Herd(Path(directory) / "herd.db", cloud.world, clock, cloud=cloud)
        try:
            with_meter_s, without_s = await _ticks(herd, cloud, count)
        finally:
            herd.close()
    ratio = with_meter_s / without_s
    return [
        Line(
            f"observer's tick with {count:,} machines, CPU",
            f"{with_meter_s * 1000:.0f} ms",
            f"{without_s * 1000:.0f} ms",
            ratio,
            f"≤ {DEARER_MAX}×",
            ratio <= DEARER_MAX,
            f"{max(1, count // CHANGING)} machines stop or start between two lists; least of {ROUNDS} ticks "
            "each, in turn; baseline: the same without the meter",
        )
    ]


async def _ticks(herd: Herd, cloud: RecordedCloud, count: int) -> tuple[float, float]:
    """Return the seconds of CPU that a tick takes, with the meter and without it."""
    observer, chance = herd.observer, random.Random(7)
    keep_meters = observer.metering.prepare
    assert await observer.look()
    took: dict[bool, list[float]] = {True: [], False: []}
    for n in range(2 * ROUNDS):
        is_metered = n % 2 == 0
        # Each way has machines of its own: what is not metered would confuse the meter.
        half = range(0, count, 2) if is_metered else range(1, count, 2)
        cloud.change(chance.sample(half, max(1, count // CHANGING)))
        await herd.clock.advance(timedelta(seconds=30).total_seconds())
        setattr(observer.metering, "prepare", keep_meters if is_metered else _no_meter)  # noqa: B010
        # Garbage collection would fall on every second tick, and so always on the same way.
        gc.collect()
        gc.disable()
        begun_s = time.process_time()
        assert await observer.look()
        took[is_metered].append(time.process_time() - begun_s)
        gc.enable()
    # The least disturbed of each: others use the machine too.
    return min(took[True]), min(took[False])


async def _no_meter(*_: Any) -> None:
    return None
