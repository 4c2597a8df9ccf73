"""Named secrets: kept sealed for one key, given to the machine and to nobody else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuherd.adapters.sealer import AesGcmSealer
from gpuherd.domain.api_key import ADMIN, Caller, Scope
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.launch_spec import GivenEnv
from gpuherd.domain.secret import Secret
from gpuherd.usecases.access.manage_secrets import Rotated
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from gpuherd.usecases.views.instance_view import describe
from tests.support.herd import SECRETS_KEY, Herd

CANARY = "canary-of-a-named-secret"
MINE, OTHER = Caller("mine", Scope.WRITE), Caller("other", Scope.WRITE)
NEW_KEY = Secret("a new key " * 4)
ENVS = (GivenEnv("PLAIN", secret="hf"),)


async def test_a_secret_reaches_the_machine_and_nothing_else(herd: Herd) -> None:
    await herd.put_secret("hf", Secret(CANARY), MINE)
    it = await herd.settle(await herd.launch(envs=ENVS, caller=MINE))
    (machine,) = herd.world.alive()
    assert dict(machine.request.envs)["PLAIN"] == CANARY
    assert describe(it).envs == {"PLAIN": {"secret": "hf"}}
    assert CANARY not in repr((it, describe(it), await herd.list_secrets(MINE)))
    kept = herd.stored_bytes()
    assert CANARY.encode() not in kept


async def test_a_key_uses_and_sees_only_its_own(herd: Herd) -> None:
    await herd.put_secret("hf", Secret(CANARY), MINE)
    assert await herd.list_secrets(OTHER) == ()
    with pytest.raises(NotFound) as caught:
        await herd.launch(envs=ENVS, caller=OTHER)
    assert caught.value.code == "SECRET_NOT_FOUND"
    with pytest.raises(NotFound):
        await herd.remove_secret("hf", OTHER)


async def test_a_shared_secret_is_for_all_and_a_key_s_own_counts_more(herd: Herd) -> None:
    await herd.put_secret("hf", Secret("everybody's"), ADMIN, shared=True)
    await herd.put_secret("hf", Secret(CANARY), MINE)
    assert [it.shared for it in await herd.list_secrets(MINE)] == [False, True]
    assert [it.shared for it in await herd.list_secrets(OTHER)] == [True]
    for caller, value in ((MINE, CANARY), (OTHER, "everybody's")):
        it = await herd.settle(await herd.launch(envs=ENVS, caller=caller))
        assert dict(herd.world.machines[it.cloud_id or ""].request.envs)["PLAIN"] == value
    # Each removes its own only.
    with pytest.raises(NotFound):
        await herd.remove_secret("hf", OTHER)
    await herd.remove_secret("hf", MINE)
    assert (await herd.get_secret("hf", MINE)).shared


async def test_an_heir_has_the_present_value(herd: Herd) -> None:
    await herd.put_secret("hf", Secret("old"), MINE)
    it = await herd.settle(await herd.launch(envs=ENVS, caller=MINE))
    await herd.put_secret("hf", Secret(CANARY), MINE)
    await herd.replace(it.id, caller=MINE)
    await herd.run_for(timedelta(minutes=10))
    heir = max(herd.world.machines.values(), key=lambda machine: machine.created_at)
    assert dict(heir.request.envs)["PLAIN"] == CANARY


async def test_after_a_change_of_the_key_all_is_sealed_again_and_what_is_left_is_told(
    herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotate = herd.rotate_secrets
    await herd.put_secret("hf", Secret(CANARY), MINE)
    it = await herd.settle(await herd.launch(envs=(*ENVS, GivenEnv("A", Secret("x"))), caller=MINE))
    assert await rotate(ADMIN) == Rotated(0, (), 0)
    monkeypatch.setattr(herd.sealer, "_keys", AesGcmSealer([NEW_KEY, SECRETS_KEY])._keys)
    assert await rotate(ADMIN) == Rotated(1, (), 1)
    assert await rotate(ADMIN) == Rotated(0, (), 1)
    monkeypatch.setattr(herd.sealer, "_keys", AesGcmSealer([NEW_KEY])._keys)
    kept = await herd.get_secret("hf", MINE)
    assert herd.sealer.unseal(kept.sealed, kept.about) == Secret(CANARY)
    assert it.wish.envs[1].sealed not in (None, "")
    monkeypatch.setattr(herd.sealer, "_keys", AesGcmSealer([SECRETS_KEY])._keys)
    assert await rotate(ADMIN) == Rotated(0, ("hf",), 0)


async def test_a_secret_that_goes_before_the_create_ends_the_instance_unrented(herd: Herd) -> None:
    await herd.put_secret("hf", Secret(CANARY), MINE)
    made = await herd.launch(envs=ENVS, caller=MINE)
    await herd.remove_secret("hf", MINE)
    it = await herd.settle(made)
    assert it.status is Status.FAILED
    assert it.last_error is not None
    assert it.last_error.code == "SECRET_NOT_FOUND"
    assert not list(herd.world.alive())


async def test_the_value_at_the_moment_of_the_create_counts(herd: Herd) -> None:
    first = await herd.put_secret("hf", Secret("old"), MINE)
    made = await herd.launch(envs=ENVS, caller=MINE)
    await herd.clock.advance(1)
    changed = await herd.put_secret("hf", Secret(CANARY), MINE)
    assert (changed.created_at, changed.changed_at > first.changed_at) == (first.created_at, True)
    await herd.settle(made)
    (machine,) = herd.world.alive()
    assert dict(machine.request.envs)["PLAIN"] == CANARY


async def test_a_plan_says_that_a_secret_is_missing(herd: Herd) -> None:
    plan = await herd.plan(LaunchRequest("plan", herd.wish, envs=ENVS, caller=MINE))
    assert [it.code for it in plan.obstacles] == ["SECRET_NOT_FOUND"]
