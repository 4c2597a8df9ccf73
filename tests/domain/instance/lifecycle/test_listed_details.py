"""How to connect is taken from the list where it surely tells; otherwise the cloud is asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.cloud.machine import NO_CONNECTION, ConnectionDetails, Phase, PortMapping
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.next_step import LISTED_DETAILS_FRESH, next_step
from gpuherd.domain.instance.operation import OperationKind
from gpuherd.domain.instance.step_types import Observation, ReadDetails, UseListedDetails
from tests.domain.instance.lifecycle.driver import EARLY, a_machine, an_instance, an_operation

HTTP = PortMapping(8888, "https://m-1-8888.example", "http")
MACHINE = replace(
    a_machine(Phase.RUNNING), ports=(HTTP,), connection=ConnectionDetails(ssh="ssh -p 1 root@example")
)
SEEN_AT = EARLY - timedelta(seconds=2)
LISTED = Observation(MACHINE, changed_at=SEEN_AT, is_listed=True)
BOOTING = an_instance(Status.STARTING, cloud_id="m-1")
AGAIN: dict[str, Any] = {
    "cloud_id": "m-1",
    "stopped_at": SEEN_AT,
    "operation": an_operation(OperationKind.START),
}


def test_a_first_run_that_the_list_shows_whole_needs_no_call() -> None:
    assert next_step(BOOTING, None, LISTED, EARLY) == UseListedDetails(MACHINE, SEEN_AT)


def test_what_the_list_does_not_surely_tell_is_asked_for(subtests: pytest.Subtests) -> None:
    for case, observation in [
        ("no ports", replace(LISTED, machine=replace(MACHINE, ports=()))),
        (
            "a port without endpoint",
            replace(LISTED, machine=replace(MACHINE, ports=(HTTP, replace(HTTP, endpoint="")))),
        ),
        ("no connection", replace(LISTED, machine=replace(MACHINE, connection=NO_CONNECTION))),
        ("missing from the last list", replace(LISTED, is_listed=False)),
        ("seen nobody knows when", replace(LISTED, changed_at=None)),
        ("seen long ago", replace(LISTED, changed_at=EARLY - LISTED_DETAILS_FRESH - timedelta(seconds=1))),
        ("seen by another clock", replace(LISTED, changed_at=EARLY + timedelta(seconds=1))),
    ]:
        with subtests.test(case):
            assert next_step(BOOTING, None, observation, EARLY) == ReadDetails()


@pytest.mark.parametrize(
    "instance",
    [
        pytest.param(an_instance(Status.STARTING, **AGAIN), id="a start"),
        pytest.param(an_instance(Status.STARTING, cloud_id="m-1", started_at=SEEN_AT), id="it ran before"),
        pytest.param(
            an_instance(Status.EXITED, cloud_id="m-1", started_at=SEEN_AT, ready_at=SEEN_AT),
            id="started past us",
        ),
    ],
)
def test_after_a_start_the_ports_have_changed_and_the_cloud_is_asked(instance: Instance) -> None:
    assert next_step(instance, None, LISTED, EARLY) == ReadDetails()
