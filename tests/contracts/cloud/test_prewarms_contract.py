"""What every port of image prewarm promises, run on the real adapter over HTTP and on the simulated face."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from gpuherd.adapters.novita.novita_images import NovitaPrewarms
from gpuherd.domain.cloud.template import (
    Prewarm,
    PrewarmOrder,
    PrewarmProduct,
    PrewarmQuota,
    PrewarmState,
)
from gpuherd.domain.errors import CloudRefused, CloudUnavailable, KeyRefused, NotFound, OutcomeUnknown
from gpuherd.ports.cloud_port import ImagePrewarms
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World
from tests.adapters.novita.builders import open_transport
from tests.support.fake_clock import FakeClock

NOW = datetime(2026, 11, 2, tzinfo=UTC)
RTX = PrewarmProduct("4090.16c62g", "RTX 4090 24GB")
ORDER = PrewarmOrder("docker.io/a/b:1", "us-ca-6", products=(RTX,), note="for the night")
PRIVATE = PrewarmOrder("registry.example.com/team/trainer:1.4", "us-ca-6")
CREATE = (ApiEndpoint.PREWARM_CREATE,)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW, auto=True)


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock, Random(7))


class PrewarmContract:
    """Needs a fixture `prewarms` that reaches `world`."""

    async def test_a_task_is_made_and_listed_until_it_is_done(self, prewarms, clock):
        made = await prewarms.create_prewarm(ORDER)
        (task,) = await prewarms.list_prewarms()
        assert task == Prewarm(
            prewarm_id=made,
            image="docker.io/a/b:1",
            region="US-CA-06",
            cluster_id="us-ca-6",
            state=PrewarmState.PENDING,
            products=(RTX,),
            note="for the night",
            created_at=NOW,
        )
        assert ORDER.is_done_by(task)
        await clock.advance(5)
        assert [it.state for it in await prewarms.list_prewarms()] == [PrewarmState.RUNNING]
        await clock.advance(60)
        (task,) = await prewarms.list_prewarms()
        assert task.state is PrewarmState.SUCCEEDED
        assert task.size_bytes > 10**8
        # Novita says something about a success there, too.
        assert task.reasons == ()
        assert task.completed_at == NOW + timedelta(seconds=32)

    async def test_a_failure_has_a_reason_and_no_size(self, prewarms, clock):
        await prewarms.create_prewarm(PRIVATE)
        await clock.advance(60)
        (task,) = await prewarms.list_prewarms()
        assert (task.state, task.size_bytes) == (PrewarmState.FAILED, None)
        assert "pull access denied" in task.reasons[0]

    async def test_a_credential_is_shown_by_its_id(self, prewarms, clock):
        await prewarms.create_prewarm(replace(PRIVATE, registry_auth_id=TEAM_REGISTRY.id))
        await clock.advance(60)
        (task,) = await prewarms.list_prewarms()
        assert (task.registry_auth_id, task.state) == (TEAM_REGISTRY.id, PrewarmState.SUCCEEDED)

    async def test_the_quota_counts_and_one_too_many_is_refused(self, prewarms, world):
        assert await prewarms.prewarm_quota() == PrewarmQuota(0, 5, 100)
        for n in range(5):
            await prewarms.create_prewarm(replace(ORDER, image=f"a:{n}"))
        quota = await prewarms.prewarm_quota()
        assert (quota.used, quota.is_used_up) == (5, True)
        with pytest.raises(CloudRefused):
            await prewarms.create_prewarm(ORDER)
        assert len(world.prewarms.listed()) == 5

    @pytest.mark.parametrize(
        "wrong",
        [{"cluster_id": "mars"}, {"products": (PrewarmProduct("odd", ""),)}, {"registry_auth_id": "nobody"}],
    )
    async def test_what_an_order_names_must_be_there(self, prewarms, world, wrong):
        with pytest.raises(CloudRefused):
            await prewarms.create_prewarm(replace(ORDER, **wrong))
        assert world.prewarms.listed() == []

    async def test_a_task_is_removed_once(self, prewarms, world):
        made = await prewarms.create_prewarm(ORDER)
        await prewarms.delete_prewarm(made)
        assert await prewarms.list_prewarms() == ()
        with pytest.raises(NotFound) as caught:
            await prewarms.delete_prewarm(made)
        assert caught.value.code == "PREWARM_NOT_FOUND"

    @pytest.mark.parametrize(
        ("kind", "there"),
        [
            (FaultKind.LOST_REPLY_BEFORE_COMMIT, 0),
            (FaultKind.LOST_REPLY_AFTER_COMMIT, 1),
            (FaultKind.ERROR_AFTER_COMMIT, 1),
            (FaultKind.GARBAGE, 1),
        ],
    )
    async def test_a_create_is_sent_once_and_without_an_answer_its_outcome_is_unknown(
        self, prewarms, world, kind, there
    ):
        world.faults.add(Fault(kind, endpoints=CREATE))
        with pytest.raises(OutcomeUnknown):
            await prewarms.create_prewarm(ORDER)
        assert world.calls["prewarm_create"] == 1
        assert len(world.prewarms.listed()) == there

    async def test_a_removal_without_an_answer_is_unknown_too(self, prewarms, world):
        made = await prewarms.create_prewarm(ORDER)
        lost = Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, endpoints=(ApiEndpoint.PREWARM_DELETE,))
        world.faults.add(lost)
        with pytest.raises(OutcomeUnknown):
            await prewarms.delete_prewarm(made)
        assert world.calls["prewarm_delete"] == 1

    async def test_many_are_listed_over_all_pages(self, prewarms, world):
        world.prewarms.tasks_max = 200
        made = {await prewarms.create_prewarm(replace(ORDER, image=f"a:{n}")) for n in range(130)}
        assert {it.prewarm_id for it in await prewarms.list_prewarms()} == made

    @pytest.mark.parametrize("endpoint", [ApiEndpoint.PREWARMS, ApiEndpoint.PREWARM_QUOTA])
    async def test_an_outage_is_an_error_and_never_an_empty_answer(self, prewarms, world, endpoint):
        ask = prewarms.list_prewarms if endpoint is ApiEndpoint.PREWARMS else prewarms.prewarm_quota
        world.faults.replace([Fault(FaultKind.OUTAGE, endpoints=(endpoint,))])
        with pytest.raises(CloudUnavailable):
            await ask()
        refused = Fault(FaultKind.REFUSE, status=403, reason="FORBIDDEN", endpoints=(endpoint,))
        world.faults.replace([refused])
        with pytest.raises(KeyRefused):
            await ask()


class TestNovitaOverHttp(PrewarmContract):
    """The adapter that talks to Novita, on the simulator's HTTP API."""

    @pytest.fixture
    async def prewarms(self, world: World, clock: FakeClock) -> AsyncIterator[ImagePrewarms]:
        server = await start_simulator(world)
        async with open_transport(server.base_url, clock=clock, request_timeout_s=10.0) as transport:
            yield NovitaPrewarms(transport)
        await server.close()

    async def test_no_reason_quotes_the_password_of_a_credential(self, prewarms, world, clock):
        said = f"cannot log in as demo-robot:{TEAM_REGISTRY.password}"
        world.faults.add(Fault(FaultKind.PULL_FAILURE, endpoints=CREATE, message=said))
        await prewarms.create_prewarm(replace(PRIVATE, registry_auth_id=TEAM_REGISTRY.id))
        await clock.advance(60)
        (task,) = await prewarms.list_prewarms()
        assert task.reasons == ("cannot log in as demo-robot:***",)
