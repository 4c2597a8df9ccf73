"""Stages and how long they took."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.render.instances import usd_an_hour
from gpuherd.entrypoints.cli.render.stages import RentalStage, StageTimeline, stage_of
from tests.entrypoints.cli.support import NOW, details


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat()


def see(timeline: StageTimeline, seconds: float, status: str, **more: Any) -> None:
    timeline.observe(
        Instance.of(details(status, **more)), monotonic=1000 + seconds, now=NOW + timedelta(seconds=seconds)
    )


@pytest.mark.parametrize(
    ("status", "more", "stage"),
    [
        ("creating", {}, RentalStage.RENTING),
        ("creating", {"cloudInstanceId": "c1"}, RentalStage.STARTING),
        ("starting", {"cloudInstanceId": "c1"}, RentalStage.STARTING),
        ("running", {"startedAt": at(0)}, RentalStage.RUNNING),
        ("health_checking", {}, RentalStage.RUNNING),
        ("running", {"usable": True}, RentalStage.READY),
        ("ready", {}, RentalStage.READY),
        ("failed", {}, RentalStage.RENTING),
        ("failed", {"cloudInstanceId": "c1"}, RentalStage.STARTING),
        ("failed", {"cloudInstanceId": "c1", "startedAt": at(0)}, RentalStage.RUNNING),
        ("migrating", {}, RentalStage.STARTING),
    ],
)
def test_the_status_tells_the_stage(status: str, more: dict[str, Any], stage: RentalStage) -> None:
    assert stage_of(Instance.of(details(status, **more))) is stage


def test_each_stage_lasts_from_its_begin_to_the_begin_of_the_next() -> None:
    timeline = StageTimeline(1000)
    see(timeline, 1, "creating", createdAt=at(1))
    see(timeline, 4, "starting", cloudInstanceId="c1", createdAt=at(1))
    see(timeline, 30, "running", cloudInstanceId="c1", createdAt=at(1), startedAt=at(29))
    see(timeline, 40, "ready", cloudInstanceId="c1", createdAt=at(1), startedAt=at(29), readyAt=at(39))
    took = [timeline.took(stage, monotonic=1100) for stage in RentalStage]
    assert took[:4] == [1, 3, 25, 10]
    assert timeline.total(monotonic=1100) == 39


def test_a_stage_that_is_under_way_runs_with_the_clock() -> None:
    timeline = StageTimeline(1000)
    see(timeline, 1, "creating", createdAt=at(1))
    assert timeline.took(RentalStage.RENTING, monotonic=1011) == 10
    assert timeline.took(RentalStage.STARTING, monotonic=1011) is None


def test_a_failure_stops_the_clock() -> None:
    timeline = StageTimeline(1000)
    see(timeline, 1, "creating", createdAt=at(1))
    see(timeline, 5, "failed", createdAt=at(1))
    see(timeline, 9, "failed", createdAt=at(1))
    assert timeline.took(RentalStage.RENTING, monotonic=2000) == 4
    assert timeline.total(monotonic=2000) == 5


def test_who_comes_late_counts_from_the_creation() -> None:
    timeline = StageTimeline(1000)
    see(timeline, 0, "creating", createdAt=at(-20))
    assert timeline.took(RentalStage.RENTING, monotonic=1000) == 20
    assert timeline.took(RentalStage.ACCEPTED, monotonic=1000) is None


def test_a_server_whose_clock_is_ahead_does_not_bend_the_times() -> None:
    timeline = StageTimeline(1000)
    see(timeline, 1, "creating", createdAt=at(500))
    see(timeline, 2, "ready", createdAt=at(500), readyAt=at(400))
    assert timeline.took(RentalStage.RENTING, monotonic=1002) == 1
    assert timeline.total(monotonic=1002) == 2


def test_a_second_start_is_not_timed_by_the_stamps_of_the_first_life() -> None:
    timeline = StageTimeline(1000)
    old: dict[str, Any] = {
        "createdAt": at(-90000),
        "startedAt": at(-89000),
        "readyAt": at(-88000),
        "cloudInstanceId": "c1",
    }
    see(timeline, 1, "starting", **old)
    see(timeline, 8, "running", usable=True, **old)
    assert timeline.total(monotonic=1008) == 8


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Decimal("0.35"), "$0.35/h"),
        (Decimal("0.7"), "$0.70/h"),
        (Decimal(2), "$2.00/h"),
        (Decimal("0.12345"), "$0.12345/h"),
        (Decimal("0.208333333"), "$0.20834/h"),
        (None, ""),
    ],
)
def test_prices_show_cents_and_lose_nothing(value: Decimal | None, words: str) -> None:
    assert usd_an_hour(value) == words
