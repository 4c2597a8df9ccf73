"""Merging, entry by entry: who belongs to whom."""

from __future__ import annotations

from typing import Any

from gpuherd.contract.codec.model import encode
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.ports.instances import LiveInstance
from gpuherd.usecases.instances.comprehensive import local_only, merge_machines
from tests.support.builders import (
    INSTALLATION,
    a_machine,
    a_running_instance,
    a_tag,
    a_tagged_machine,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import START


def merge(local: list[LiveInstance], *machines: Machine, complete: bool = True) -> list[dict[str, Any]]:
    listing = Listing(machines, complete, START, START)
    return [encode(it) for it in merge_machines(local, listing, INSTALLATION)]


def live(instance: Instance, open_tag: str | None = None) -> LiveInstance:
    return LiveInstance(instance, open_tag)


def test_instances_come_first_in_their_order_and_then_the_rest() -> None:
    entries = merge(
        [live(a_running_instance(3)), live(a_running_instance(1))], *(a_machine(n) for n in (1, 2, 3, 4))
    )
    assert [(it["source"], it["cloudInstanceId"]) for it in entries] == [
        ("merged", "machine-3"),
        ("merged", "machine-1"),
        ("novita", "machine-2"),
        ("novita", "machine-4"),
    ]


def test_the_tag_counts_only_while_the_outcome_of_its_create_call_is_open() -> None:
    machine = a_tagged_machine(1)
    (found,) = merge([live(an_instance(1), str(a_tag(1)))], machine)
    assert (found["source"], found["id"], found["cloudInstanceId"]) == (
        "merged",
        instance_id(1),
        "machine-1",
    )
    # The call was given up, so its machine is surplus.
    given_up = merge([live(an_instance(1))], machine)
    assert [(it["source"], it["ownership"]) for it in given_up] == [("local", "ours"), ("novita", "ours")]


def test_the_tag_of_another_attempt_is_not_this_ones() -> None:
    entries = merge([live(an_instance(1), str(a_tag(1, attempt=2)))], a_tagged_machine(1, attempt=1))
    assert [it["source"] for it in entries] == ["local", "novita"]


def test_a_bound_instance_goes_by_the_id_and_not_by_the_tag() -> None:
    entries = merge([live(a_running_instance(1, cloud_id="machine-9"))], a_tagged_machine(1))
    assert [(it["source"], it["cloudInstanceId"]) for it in entries] == [
        ("local", "machine-9"),
        ("novita", "machine-1"),
    ]


def test_a_machine_is_ours_by_the_tag_in_its_environment_too() -> None:
    (found,) = merge([], a_machine(1, name="", env_tag=str(a_tag(1))))
    assert found["ownership"] == "ours"
    (found,) = merge([], a_machine(1, env_tag="not a tag at all"))
    assert found["ownership"] == "foreign"


def test_what_the_cloud_calls_removed_is_not_shown_by_it() -> None:
    entries = merge([live(a_running_instance(1))], a_machine(1, phase=Phase.ABSENT), a_machine(2))
    assert [(it["source"], it["cloudInstanceId"]) for it in entries] == [
        ("local", "machine-1"),
        ("novita", "machine-2"),
    ]


def test_the_cloud_decides_the_status_and_ours_is_told_beside_it() -> None:
    (found,) = merge(
        [live(a_running_instance(1, status=Status.READY))],
        a_machine(1, phase=Phase.STOPPED, raw_status="exited"),
    )
    assert (found["status"], found["localStatus"], found["cloudStatus"]) == ("exited", "ready", "exited")
    # Finer than the cloud's word is not different from it.
    (found,) = merge([live(a_running_instance(1, status=Status.READY))], a_machine(1))
    assert (found["status"], found["cloudStatus"]) == ("ready", "running")


def test_spot_news_of_the_cloud_are_shown() -> None:
    machine = a_machine(1, spot_status="notified", spot_reclaim_at=START, error="no such image")
    for entry in (merge([live(a_running_instance(1))], machine)[0], merge([], machine)[0]):
        assert (entry["spotStatus"], entry["cloudError"]) == ("notified", "no such image")
        assert entry["spotReclaimTime"] == "2026-01-01T00:00:00.000000Z"


def test_a_machine_with_an_unknown_word_has_no_status_of_ours() -> None:
    (found,) = merge([], a_machine(1, phase=Phase.UNKNOWN, raw_status="hibernating"))
    assert (found["status"], found["cloudStatus"]) == (None, "hibernating")


def test_without_a_list_nothing_is_claimed_about_the_cloud() -> None:
    (found,) = local_only([live(a_running_instance(1))])
    assert (found.source, found.consistency) == ("local", "local-newer")
    assert (found.cloud_status, found.cloud_instance_id) == (None, "machine-1")
    assert "could not be asked" in found.consistency_reason
