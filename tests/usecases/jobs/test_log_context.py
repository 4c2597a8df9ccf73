"""The caller's own id of what it does is in the log of whoever carries it out, in whatever process."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.contextvars import bind_contextvars, clear_contextvars, get_contextvars

from gpuherd.domain.access.caller import SYSTEM_CALLER
from gpuherd.domain.instance.health_check import HealthCheck
from gpuherd.domain.instance.instance import Status
from gpuherd.simulator.world.world import World
from gpuherd.usecases.instances.launch import LaunchRequest
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

CREATING, ENDING = (replace(SYSTEM_CALLER, correlation_id=it) for it in ("order-7", "order-8"))


def heard_in(monkeypatch: pytest.MonkeyPatch, target: Any, method: str) -> list[dict[str, Any]]:
    """Return the log contexts in which a method is called from now on."""
    contexts: list[dict[str, Any]] = []
    real = getattr(target, method)

    async def listening(*args: Any) -> Any:
        contexts.append(dict(get_contextvars()))
        return await real(*args)

    monkeypatch.setattr(target, method, listening)
    return contexts


async def test_the_turns_of_a_request_know_its_correlation_id_in_another_process_too(
    tmp_path: Path, world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_contextvars()
    first = Herd(tmp_path / "herd.db", world, clock)
    request = LaunchRequest("job", first.wish, health_check=HealthCheck(), caller=CREATING)
    instance = (await first.launch_instance(request)).instance
    first.close()

    worker = Herd(tmp_path / "herd.db", world, clock)
    creates = heard_in(monkeypatch, worker.cloud, "create_machine")
    looks = heard_in(monkeypatch, worker.prober, "probe")
    assert (await worker.settle(instance)).status is Status.READY
    assert [it["correlation_id"] for it in creates] == ["order-7"]
    assert {it["correlation_id"] for it in looks} == {"order-7"}
    assert creates[0]["instance_id"] == instance.id

    # Its job, if there is one, was made for the create.
    deletes = heard_in(monkeypatch, worker.cloud, "delete_machine")
    await worker.change_goal.delete(instance.id, caller=ENDING)
    await worker.settle(instance)
    assert {it["correlation_id"] for it in deletes} == {"order-8"}
    assert "correlation_id" not in get_contextvars()
    worker.close()


async def test_what_nobody_asked_for_has_none(herd: Herd, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_contextvars()
    creates = heard_in(monkeypatch, herd.cloud, "create_machine")
    await herd.settle(await herd.launch())
    assert "correlation_id" not in creates[0]


async def test_the_end_of_a_job_says_it_too_and_the_next_job_does_not(
    herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind_contextvars(unrelated="stays")
    ran: list[dict[str, Any]] = []
    monkeypatch.setattr(type(herd.run_job), "_record_run", lambda *_: ran.append(dict(get_contextvars())))
    request = LaunchRequest("job", herd.wish, caller=CREATING)
    mine = (await herd.launch_instance(request)).instance
    other = await herd.launch("other")
    await herd.run_for(timedelta(seconds=5))
    said = {it["instance_id"]: it.get("correlation_id") for it in ran}
    assert (said[mine.id], said[other.id]) == ("order-7", None)
    assert get_contextvars() == {"unrelated": "stays"}
    clear_contextvars()
