"""What an instance runs with: remembered sealed, given to the machine as it was asked for."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from gpuherd.adapters.sql.rental_tables import attempt
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.launch_spec import GivenEnv
from gpuherd.domain.secret import Secret
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.usecases.service.make_jobs import create_payload
from gpuherd.usecases.views.instance_view import describe
from tests.support.herd import Herd

CANARY = "canary-of-a-variable"
ENVS = (GivenEnv("HF_TOKEN", Secret(CANARY)), GivenEnv("MODE", Secret("fast")))
IMAGE = "docker.io/pytorch/pytorch:2.4.0"


async def launched(herd: Herd, **wish: Any) -> Instance:
    return await herd.launch(template_id="", image_url=IMAGE, envs=ENVS, **wish)


async def test_an_image_is_rented_without_a_template(herd: Herd) -> None:
    made = await launched(herd, command="train", ports=("8000/http",), min_cuda_version="12.4")
    it = await herd.settle(made)
    assert it.status is Status.RUNNING
    (machine,) = herd.world.alive()
    request = machine.request
    assert (request.image_url, request.command, request.min_cuda_version) == (IMAGE, "train", "12.4")
    assert [(port.number, port.protocol) for port in request.ports] == [(8000, "http")]
    assert dict(request.envs).items() >= {("HF_TOKEN", CANARY), ("MODE", "fast")}
    assert it.rental is not None
    assert it.rental.image_url == IMAGE


async def test_variables_beside_a_template_are_merged(herd: Herd) -> None:
    template = herd.world.account.template("101")
    it = await herd.settle(await herd.launch(envs=ENVS, command="mine"))
    (machine,) = herd.world.alive()
    assert dict(machine.request.envs).items() >= {*template.envs, ("MODE", "fast")}
    assert (machine.request.image_url, machine.request.command) == (template.image, "mine")
    assert it.tag_verified


async def test_no_value_is_kept_or_shown(herd: Herd) -> None:
    made = await launched(herd)
    it = await herd.settle(made)
    shown = repr((it, describe(it), create_payload(it)))
    assert CANARY not in shown
    assert describe(it).envs == {"HF_TOKEN": "***", "MODE": "***"}
    assert json.loads(json.dumps(create_payload(it)))["envs"] == describe(it).envs
    assert all(CANARY.encode() not in body for _, body in herd.receiver.tried)
    kept = herd.stored_bytes()
    assert b"HF_TOKEN" in kept
    assert CANARY.encode() not in kept


async def test_a_create_that_is_made_again_has_the_same_variables(herd: Herd) -> None:
    busy = Fault(
        FaultKind.REFUSE, endpoints=(ApiEndpoint.CREATE,), status=429, reason="RATE_LIMIT_EXCEEDED", count=1
    )
    herd.world.faults.add(busy)
    await herd.settle(await launched(herd))
    (machine,) = herd.world.alive()
    assert dict(machine.request.envs)["HF_TOKEN"] == CANARY


async def test_with_another_key_nothing_is_rented_and_the_reason_is_told(herd: Herd) -> None:
    made = await launched(herd)
    herd.rent_with_key(Secret("another key" * 4))
    it = await herd.settle(made, timedelta(minutes=5))
    assert it.status is Status.FAILED
    assert it.last_error is not None
    assert it.last_error.code == "SECRET_UNREADABLE"
    assert "HF_TOKEN" in it.last_error.message
    assert "GPUHERD_SECRETS_KEY" in it.last_error.message
    # Not even the intent of a call.
    assert not herd.rows(attempt)
    assert not list(herd.world.alive())
