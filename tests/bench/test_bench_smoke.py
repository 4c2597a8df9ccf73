"""The benchmarks still run. How fast anything is, no test asserts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.environment import TINY, BenchEnvironment
from bench.report import CAUTION, Line, machine, markdown, terminal_table
from bench.rows import ROWS


async def test_the_cheapest_row_measures_ours_and_its_baseline(tmp_path: Path) -> None:
    lines = await ROWS["feel"](BenchEnvironment(tmp_path, TINY))
    assert [line.what for line in lines] == ["CPU of `gpuherd --help`", "CPU of `gpuherd ls, no server`"]
    assert all(line.ours and line.baseline and line.target for line in lines)
    assert lines[0].ratio is not None
    assert lines[0].ratio > 0


async def test_a_herd_is_prepared_whole(tmp_path: Path) -> None:
    bench_env = BenchEnvironment(tmp_path, TINY)
    seeded = await bench_env.seeded(12, moving=3)
    assert seeded is await bench_env.seeded(12, moving=3)
    assert (seeded.data_dir / "gpuherd.db").stat().st_size > 0
    assert seeded.world.read_text().count('"ssh_password"') == 12


@pytest.mark.long
@pytest.mark.postgres
async def test_two_workers_are_measured_beside_one(tmp_path: Path) -> None:
    lines = await ROWS["replicas"](BenchEnvironment(tmp_path, TINY))
    assert len(lines) == 3
    assert all(line.ours for line in lines)
    assert [line.ratio is not None and line.ratio > 0 for line in lines] == [True, True, False]


def test_the_page_shows_what_missed_its_target() -> None:
    lines = [
        Line("fast", "1 ms", "1 ms", 1.0, "< 2 ms", True),
        Line("slow", "3 ms", "1 ms", 3.0, "< 2 ms", False, "because"),
    ]
    page = markdown(lines, machine(), datetime(2026, 11, 15, tzinfo=UTC), 60.0, is_busy=True)
    assert "| slow | 3 ms | 1 ms | 3.00 | < 2 ms | NO |" in page
    assert "- **slow**: because" in page
    assert CAUTION in page
    assert "fast  1 ms  1 ms      1.00   < 2 ms  yes" in terminal_table(lines)


@pytest.mark.long
async def test_a_kill_is_followed_by_the_webhooks_of_all_that_moved(tmp_path: Path) -> None:
    first, last = await ROWS["recovery"](BenchEnvironment(tmp_path, TINY))
    assert first.ours
    assert "0 gets" in last.note
