"""In calm the ledger is the bill to a thousandth (`python -m proof.chaos.calm` plays a month)."""

from __future__ import annotations

import pytest

from proof.chaos.calm import RELATIVE_ERROR_MAX, run_calm
from proof.chaos.runner import silence_logs


@pytest.mark.proves("L2")
def test_in_calm_the_ledger_is_the_bill_to_a_thousandth() -> None:
    silence_logs()
    found = run_calm(seed=7, days=0.25, rentals_a_day=40)
    assert found.violations == ()
    assert found.machine_hours > 10
    assert found.relative_error <= RELATIVE_ERROR_MAX
