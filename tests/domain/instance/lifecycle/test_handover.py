"""How a handover went: was there always something to use, and if not, for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.lineage import ReplacementOutcome
from gpuherd.domain.instance.operation import Failure
from gpuherd.domain.instance.replacement import outcome_of_handover
from tests.domain.instance.lifecycle.driver import DEADLINE, an_instance

MINUTE = timedelta(minutes=1)


def test_the_gap_counts_from_the_last_loss_to_the_heir() -> None:
    # It had been stopped once before.
    ready = replace(an_instance(), status=Status.READY, stopped_at=DEADLINE - timedelta(days=1))
    assert outcome_of_handover(ready, DEADLINE) == (ReplacementOutcome.WARM, 0.0)
    exited = replace(ready, status=Status.EXITED, stopped_at=DEADLINE - MINUTE)
    assert outcome_of_handover(exited, DEADLINE) == (ReplacementOutcome.COLD, 60.0)
    error = Failure("SPOT_RECLAIMED", "", DEADLINE - 2 * MINUTE)
    failed = replace(ready, status=Status.FAILED, last_error=error)
    assert outcome_of_handover(failed, DEADLINE) == (ReplacementOutcome.COLD, 120.0)
    # The heir was usable before the loss was seen.
    assert outcome_of_handover(exited, DEADLINE - 5 * MINUTE) == (ReplacementOutcome.COLD, 0.0)
