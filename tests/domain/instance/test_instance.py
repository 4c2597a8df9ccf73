"""What an instance, its attempts and its events say about themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.domain.cloud.machine import BOOTING, NO_CONNECTION, Phase
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import (
    TERMINAL_STATUSES,
    USABLE_STATUSES,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.instance_event import (
    CREATED,
    DELETING,
    GOAL_EVENTS,
    PLANNED,
    START_REFUSED,
    STATUS_EVENTS,
    WEBHOOK_TYPES,
    Event,
    goes_to_instance_webhook,
)
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.operation import Failure
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState, Tag, cloud_name, parse_tag

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "01kdvdna00sngxhwbavy8vep2a"


def an_instance(status: Status = Status.CREATING, **changes: Any) -> Instance:
    wish = LaunchSpec("RTX 4090 24GB", "101")
    return Instance(f"inst_{KEY}", "job", wish, Goal.RUNNING, status, NOW, NOW, NOW, **changes)


def test_the_key_of_an_instance_fits_into_a_tag() -> None:
    tag = Tag("a1b2c3d4", an_instance().key, 1)
    assert an_instance().key == KEY
    assert parse_tag(cloud_name("job", tag)) == tag


def test_without_a_check_usable_means_running_or_ready_and_that_somebody_said_so(
    subtests: pytest.Subtests,
) -> None:
    for status in Status:
        with subtests.test(status=status):
            assert an_instance(status, ready_at=NOW).usable is (status in USABLE_STATUSES)
            assert not an_instance(status).usable


def test_with_a_check_usable_means_that_the_application_answers(subtests: pytest.Subtests) -> None:
    for status in Status:
        with subtests.test(status=status):
            # It was ready in an earlier life already: that says nothing about this one.
            assert an_instance(status, ready_at=NOW, health_check=HealthCheck()).usable is (
                status is Status.READY
            )
            assert not an_instance(status, health_check=HealthCheck()).usable


def test_running_and_ready_are_the_statuses_that_can_be_usable() -> None:
    assert {Status.RUNNING, Status.READY} == USABLE_STATUSES


def test_only_failed_and_deleted_are_the_end() -> None:
    assert {Status.FAILED, Status.DELETED} == TERMINAL_STATUSES


def test_a_wish_that_says_nothing_more_is_one_spot_gpu_anywhere() -> None:
    wish = LaunchSpec("RTX 4090 24GB", "101")
    assert (wish.gpu_num, wish.disk_gb, wish.regions, wish.billing_mode) == (1, 60, (), "spot")
    assert (wish.hourly_usd_max, wish.optimize) == (None, "region")


def test_a_new_instance_has_nothing_and_owes_nothing() -> None:
    instance = an_instance()
    assert instance.cloud_id is None
    assert instance.connection == NO_CONNECTION
    assert not instance.releasing
    assert not instance.settled
    assert (instance.operation, instance.asked_at) == (None, None)
    assert (instance.health_check, instance.health, instance.last_error) == (None, None, None)
    assert instance.on_failure == "delete", "a machine that nobody can use costs money"


def test_an_attempt_is_open_while_its_machine_may_exist_unknown_to_us(subtests: pytest.Subtests) -> None:
    for state, is_open in [
        (AttemptState.SENT, True),
        (AttemptState.UNKNOWN, True),
        (AttemptState.BOUND, False),
        (AttemptState.REJECTED, False),
        (AttemptState.ABANDONED, False),
    ]:
        with subtests.test(state=state, is_open=is_open):
            attempt = Attempt(
                "inst", 1, "tag", state, "4090", "RTX 4090", "HK", "hk-1", Decimal(1), NOW, "boot"
            )
            assert attempt.is_open is is_open
            assert attempt.offer_key == ("4090", "HK", None)


def test_a_machine_boots_until_it_runs() -> None:
    assert {Phase.CREATING, Phase.PULLING, Phase.STARTING} == BOOTING


# --- events ---

URL = "https://example.com/hook"


def test_an_event_is_told_to_who_asked_for_it(subtests: pytest.Subtests) -> None:
    for case, kind, url, told in [
        ("told", CREATED, URL, True),
        ("nobody to tell", CREATED, None, False),
        ("nobody's business", PLANNED, URL, False),
        # The receiver hears how it ends: deleted, or exited again.
        ("on the way out", DELETING, URL, False),
        ("a refusal", START_REFUSED, URL, False),
        ("a warning", "instance.reclaim_notice", URL, True),
    ]:
        with subtests.test(case):
            assert goes_to_instance_webhook(Event("inst", 1, kind, NOW), an_instance(webhook_url=url)) is told


def test_every_status_that_is_announced_is_told_under_its_own_name(subtests: pytest.Subtests) -> None:
    for status in STATUS_EVENTS:
        with subtests.test(status=status):
            assert STATUS_EVENTS[status] == f"instance.{status}"
            # The contract has no webhook for a move; its end is told as a start is.
            assert (STATUS_EVENTS[status] in WEBHOOK_TYPES) is (status is not Status.MIGRATING)


def test_an_order_is_told_under_the_name_of_the_status_that_it_brings() -> None:
    assert {Status.STARTING, Status.STOPPING, Status.DELETING} == set(GOAL_EVENTS)
    assert all(type_ == f"instance.{status}" for status, type_ in GOAL_EVENTS.items())


def test_a_failure_needs_no_details_and_shares_none() -> None:
    one, other = Failure("X", "x", NOW), Failure("X", "x", NOW)
    assert one == other
    assert one.details == {}
    assert one.details is not other.details


def test_the_webhooks_are_those_of_the_contract() -> None:
    words = (
        "created starting running health_checking ready failed timeout stopping exited deleted "
        "reclaim_notice reclaim_withdrawn waiting granted lease_ending lease_ended silence_ended "
        "idle_warning idle_ended data_expiring "
        "replacing replaced replacement_refused replacement_gave_up "
        "orphan_detected"
    )
    assert {f"instance.{word}" for word in words.split()} == WEBHOOK_TYPES
