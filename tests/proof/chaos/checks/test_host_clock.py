"""A run in which the host's clock was set says so of everything that it seems to have broken."""

from __future__ import annotations

import pytest

from proof.chaos.checks.host_clock import HostClock


@pytest.mark.parametrize(("step_s", "remark"), [(0.1, ""), (185.0, "+185.0 s"), (-7.0, "-7.0 s")])
def test_what_is_broken_carries_the_step_of_the_clock(step_s: float, remark: str) -> None:
    offsets = iter((1000.0, 1000.0 + step_s))
    (said,) = HostClock(lambda: next(offsets)).marked(["ledger: off by a dollar"])
    assert said.startswith("ledger: off by a dollar")
    assert remark in said and (said.endswith("play it again)") or not remark)


def test_the_real_clock_stands_beside_the_time_since_the_boot() -> None:
    assert HostClock().marked(["x"]) == ["x"]
