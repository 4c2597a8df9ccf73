"""What a failover may lose: an order to delete that was carried out, and nothing else."""

from __future__ import annotations

import pytest

from proof.replicas.failover_checks import _is_rented_again, _order_was_lost
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


def machine(created_at: float, gone_at: float | None) -> dict:
    return {"createdAt": created_at, "goneAt": gone_at}


def test_a_wish_whose_machine_was_deleted_in_the_lost_moments_may_be_served_again():
    assert _is_rented_again([machine(5.0, None), machine(1.0, 2.0)])


@pytest.mark.parametrize(
    "machines",
    [
        [machine(1.0, None), machine(5.0, 9.0)],
        [machine(1.0, 6.0), machine(5.0, None)],
        [machine(1.0, 2.0), machine(3.0, 4.0), machine(5.0, None)],
    ],
)
def test_two_at_once_or_a_third_is_a_broken_promise(machines):
    assert not _is_rented_again(machines)
