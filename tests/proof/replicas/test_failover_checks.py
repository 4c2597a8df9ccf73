"""What a failover may lose: an order to delete that was carried out, and nothing else."""

from __future__ import annotations

import pytest

from proof.replicas.failover_checks import _order_was_lost
from proof.replicas.users import UserOutcome

VANISHED = {"lastError": {"code": "INSTANCE_VANISHED"}}


def user(failed: dict | None = VANISHED, *, accepted: bool = True) -> UserOutcome:
    return UserOutcome(1, failed=failed, delete_accepted=accepted)


def test_a_machine_that_is_gone_by_a_lost_order_is_no_broken_promise():
    assert _order_was_lost(user(), "failed", {"instance.failed"})


@pytest.mark.parametrize(
    ("outcome", "status", "told"),
    [
        (user(accepted=False), "failed", {"instance.failed"}),
        (user({"lastError": {"code": "INSTANCE_TIMEOUT"}}), "failed", {"instance.failed"}),
        (user(None), "failed", {"instance.failed"}),
        (user(), "running", {"instance.failed"}),
        (user(), "failed", set()),
    ],
)
def test_any_other_end_is_one(outcome, status, told):
    assert not _order_was_lost(outcome, status, told)
