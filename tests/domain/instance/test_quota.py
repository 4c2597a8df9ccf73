"""What an instance holds, and when one more is too much."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.api_key import Limits
from gpuherd.domain.errors import QuotaExceeded
from gpuherd.domain.instance.instance import Instance, SettledCost, Status
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.lease import EndAction, term_of
from gpuherd.domain.instance.quota import Usage, check_quota, cost_until_end, hourly_usd_now, usage_of
from gpuherd.domain.money.usage_span import nano_usd
from tests.support.builders import a_running_instance, an_instance
from tests.support.fake_clock import START

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
WAITING = an_instance()
RUNNING = a_running_instance()
FAILED = replace(RUNNING, status=Status.FAILED, ready_at=None)
KEPT = replace(FAILED, on_failure=OnFailure.KEEP)


def metered(instance: Instance, hourly_usd: str) -> Instance:
    """Return it as the meter knows it: what is paid an hour for its machine."""
    return replace(instance, cost=SettledCost(rate=nano_usd(Decimal(hourly_usd)), at=START))


def test_what_holds_gpus(subtests: pytest.Subtests) -> None:
    for instance, gpus in [
        (WAITING, 1),
        (RUNNING, 1),
        *((replace(RUNNING, status=it), 1) for it in (Status.STOPPING, Status.DELETING, Status.MIGRATING)),
        (replace(RUNNING, status=Status.EXITED), 0),
        (replace(RUNNING, status=Status.DELETED), 0),
        # Failed without ever having had a machine, and after having given it back.
        (replace(WAITING, status=Status.FAILED), 0),
        (replace(FAILED, releasing=False), 0),
        # Being given back, and kept.
        (replace(FAILED, releasing=True), 1),
        (KEPT, 1),
        (metered(KEPT, "0.35"), 1),
        # Its machine has stopped by itself: nothing but the disk is paid for.
        (metered(KEPT, "0"), 0),
    ]:
        with subtests.test(instance=instance, gpus=gpus):
            assert usage_of(instance).gpus == gpus


def test_the_price_is_the_rental_s_else_the_most_else_the_expected() -> None:
    it = replace(WAITING, wish=replace(WAITING.wish, gpu_num=2))
    assert usage_of(it).hourly_usd == 0
    it = replace(it, expected_hourly_usd=Decimal("0.7"))
    assert usage_of(it).hourly_usd == Decimal("0.7")
    it = replace(it, wish=replace(it.wish, hourly_usd_max=Decimal("0.9")))
    assert usage_of(it).hourly_usd == Decimal("0.9")
    assert RUNNING.rental is not None
    it = replace(it, rental=replace(RUNNING.rental, gpu_hourly_usd=Decimal("0.3")))
    assert usage_of(it).hourly_usd == Decimal("0.6")


BIG = replace(RUNNING, disk_hourly_usd=Decimal("0.05"))


def test_the_disk_is_a_part_of_what_a_key_spends() -> None:
    assert BIG.rental is not None
    assert usage_of(BIG).hourly_usd == BIG.rental.gpu_hourly_usd + Decimal("0.05")


def test_a_stopped_disk_is_still_spent_on() -> None:
    assert usage_of(replace(BIG, status=Status.EXITED)) == Usage(0, Decimal("0.05"))
    assert usage_of(replace(RUNNING, status=Status.EXITED)) == Usage()
    assert usage_of(replace(BIG, status=Status.DELETED)) == Usage()


def test_a_stopped_machine_costs_its_disk_and_no_machine_costs_nothing(subtests: pytest.Subtests) -> None:
    for instance, usd in [
        (BIG, BIG.hourly_usd),
        (replace(BIG, status=Status.STOPPING), BIG.hourly_usd),
        (replace(BIG, status=Status.EXITED), Decimal("0.05")),
        (replace(RUNNING, status=Status.EXITED), Decimal(0)),
        (replace(BIG, status=Status.DELETING), BIG.hourly_usd),
        (replace(BIG, status=Status.DELETED), Decimal(0)),
        (replace(BIG, status=Status.FAILED, ready_at=None), Decimal(0)),
        (replace(KEPT, disk_hourly_usd=Decimal("0.05")), BIG.hourly_usd),
        (metered(replace(KEPT, disk_hourly_usd=Decimal("0.05")), "0.05"), Decimal("0.05")),
        (replace(WAITING, disk_hourly_usd=Decimal("0.05")), Decimal(0)),
    ]:
        with subtests.test(instance=instance, usd=usd):
            assert hourly_usd_now(instance) == usd


def test_until_its_lease_ends_it_costs_what_it_costs_now_to_the_nano_dollar(
    subtests: pytest.Subtests,
) -> None:
    for instance, usd in [
        (replace(BIG, disk_hourly_usd=Decimal("0.208333")), Decimal("0.186111")),
        (replace(BIG, status=Status.EXITED), Decimal("0.016666666")),
        (replace(RUNNING, status=Status.EXITED), Decimal(0)),
        (replace(WAITING, expected_hourly_usd=Decimal("0.7")), Decimal("0.233333333")),
        (WAITING, None),
    ]:
        with subtests.test(instance=instance, usd=usd):
            leased = replace(instance, lease_term=term_of(1200, NOW, timedelta(minutes=1), EndAction.STOP))
            assert cost_until_end(leased, NOW) == usd


@given(
    st.integers(0, 20),
    st.integers(1, 8),
    st.integers(0, 20),
    st.decimals(0, 5, places=2),
    st.decimals(0, 5, places=2),
)
def test_the_limit_itself_may_be_reached_and_nothing_more(
    used: int, wanted: int, allowed: int, spent: Decimal, price: Decimal
) -> None:
    limits = Limits(max_gpus=allowed, max_hourly_usd=Decimal(5))
    fits = used + wanted <= allowed and spent + price <= 5
    try:
        check_quota(limits, Usage(used, spent), Usage(wanted, price))
    except QuotaExceeded as refused:
        assert not fits
        assert refused.details["gpus"] == {"used": used, "requested": wanted, "allowed": allowed}
        assert Decimal(refused.details["hourlyUsd"]["used"]) == spent
    else:
        assert fits


def test_without_limits_everything_fits() -> None:
    check_quota(Limits(), Usage(10**6, Decimal(10**6)), Usage(8, Decimal(8)))
    assert not Limits(requests_per_minute=1).on_rentals
