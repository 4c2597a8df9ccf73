"""Dollars by cause and seconds served, on machines whose life is written down by hand."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import pytest

from bench.month.measure import Cause, Figures, Played, Want, measure, union
from bench.month.users import HOUR_S, Habit, Rental
from bench.month.weather import MonthWorld, draw_weather
from gpuherd.simulator.simulated_bill import Dated
from gpuherd.simulator.simulated_machine import Reclaim, SimulatedMachine, StatusChange
from gpuherd.simulator.simulated_request import read_create_request
from proof.chaos.virtual_time import VirtualClock, VirtualLoop

REQUEST = read_create_request(
    {
        "name": "x",
        "productId": "4090.16c62g",
        "gpuNum": 1,
        "rootfsSize": 60,
        "billingMode": "spot",
        "imageUrl": "docker.io/library/ubuntu:22.04",
    }
)
RENTAL = Rental(0, 0.0, Habit.BATCH, 10 * HOUR_S, "RTX 4090 24GB", 60, (), Decimal(1), 0.0)
# A dollar an hour.
PRICE = 100_000
END_S = 20 * HOUR_S


class Stage:
    """A world at its end, and machines with lives of their own."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.world = MonthWorld(VirtualClock(self.loop), draw_weather(7, 3))
        self.loop._time_s = END_S

    def machine(self, *turns: tuple[float, str], notice_h: float | None = None) -> SimulatedMachine:
        origin = self.world.origin_s
        created = origin + turns[0][0] * HOUR_S
        it = SimulatedMachine(
            id=f"m{len(self.world.machines)}",
            request=REQUEST,
            name="x",
            cluster_id="us-ca-6",
            created_at=created,
            prices=[Dated(created, PRICE)],
            product_name="RTX 4090 24GB",
            cpu_num=1,
            memory_gb=1,
            gpu_ids=[0],
            ssh_password="",
            disks=[Dated(created, 60)],
            turns=[StatusChange(origin + hours * HOUR_S, status) for hours, status in turns],
        )
        if notice_h is not None:
            end = origin + (notice_h + 1) * HOUR_S
            it.reclaim = Reclaim(end - HOUR_S, end, end, end)
        self.world.machines[it.id] = it
        return it

    def figures(
        self, machines: Sequence[SimulatedMachine], end_h: float, *unbound: SimulatedMachine
    ) -> Figures:
        want = Want(RENTAL, end_h * HOUR_S, end_h * HOUR_S, machines)
        return measure(Played("test", self.world, END_S, [want], list(unbound)))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_boot_use_and_what_is_paid_for_after_the_end(stage: Stage) -> None:
    one = stage.machine((0, "pulling"), (1, "running"), (7, "toRemove"))
    figures = stage.figures([one], 5)
    assert figures.usd[Cause.BOOTS] == 1
    assert figures.usd[Cause.SERVING] == 4 + Fraction(1, 60)
    assert figures.usd[Cause.AFTER_END] == 2 - Fraction(1, 60)
    assert figures.paid_usd == stage.world.bill_usd()
    assert (figures.wanted_s, figures.served_s) == (4 * HOUR_S, 4 * HOUR_S)


def test_an_old_machine_beside_its_usable_heir_is_overlap_and_leaves_no_gap(stage: Stage) -> None:
    old = stage.machine((0, "running"), (5, "toRemove"), notice_h=3.5)
    heir = stage.machine((3.5, "pulling"), (4, "running"), (10, "toRemove"))
    figures = stage.figures([old, heir], 10)
    assert figures.usd[Cause.OVERLAP] == 1
    assert figures.usd[Cause.BOOTS] == Fraction(1, 2)
    assert figures.gaps_s == [0.0]
    assert figures.served_s == figures.wanted_s == 10 * HOUR_S


def test_a_loss_before_the_heir_runs_is_a_gap(stage: Stage) -> None:
    old = stage.machine((0, "running"), (3, "exited"), notice_h=2)
    heir = stage.machine((3, "pulling"), (4, "running"), (10, "toRemove"))
    figures = stage.figures([old, heir], 10)
    assert figures.gaps_s == [HOUR_S]
    assert figures.served_s == 9 * HOUR_S
    assert figures.missed[0][1] == [(3 * HOUR_S, 4 * HOUR_S)]


def test_what_nobody_knows_of_and_what_never_ran_are_told_apart(stage: Stage) -> None:
    never = stage.machine((0, "pulling"), (1, "toRemove"))
    unknown = stage.machine((2, "running"), (5, "toRemove"))
    figures = stage.figures([never], 10, unknown)
    assert figures.usd[Cause.FAILED_BOOTS] == 1
    assert figures.usd[Cause.UNBOUND] == figures.waste_usd == 3
    assert figures.started == 0


def test_spans_that_touch_or_overlap_are_one() -> None:
    assert union([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (3.0, 4.0)]) == [(0.0, 4.0), (5.0, 6.0)]


def test_what_is_paid_after_the_end_in_an_outage_is_known_by_itself(stage: Stage) -> None:
    stage.world.outages = ((4 * HOUR_S, 6.5 * HOUR_S), (8 * HOUR_S, 9 * HOUR_S))
    one = stage.machine((0, "pulling"), (1, "running"), (7, "toRemove"))
    figures = stage.figures([one], 5)
    late, in_outage = Fraction(7 - 5) - Fraction(1, 60), Fraction(3, 2) - Fraction(1, 60)
    assert figures.usd[Cause.AFTER_END] == late
    assert figures.outage_usd == in_outage
