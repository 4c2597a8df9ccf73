"""Other people's Novita clients must work against the simulator: proof that it is not our idea of Novita."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result
from novita import BadRequestError, NotFoundError, NovitaClient
from novita.generated.models import (
    BillingMode,
    Channel,
    CreateImagePrewarmRequest,
    CreateInstanceRequest,
    CreateTemplateRequest,
    EditInstanceRequest,
    Env,
    Kind,
    NetworkVolume,
    Port,
    TemplateCreatePayload,
    UpgradeInstanceRequest,
)
from novita.generated.models import Type as Protocol
from novita_cli.core import client as official
from novita_cli.novita_cli import cli

from gpuherd.adapters.novita import novita_json
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from gpuherd.simulator.simulator_app import SimulatorServer, start_simulator
from gpuherd.simulator.world import World
from tests.adapters.novita.builders import ORDER

T = TypeVar("T")
REGISTRY_AUTH = TEAM_REGISTRY.id

SPEED = 1000.0
PATIENCE_S = 20.0


@pytest.fixture
async def server() -> AsyncIterator[SimulatorServer]:
    # These clients block and know no clock but the real one, so here real time passes, only a thousandfold.
    server = await start_simulator(World(SystemClock(), Random(3), speed=SPEED))
    yield server
    await server.close()


def until(wanted: str, status: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (shown := status()) != wanted:
        assert time.monotonic() < deadline, f"still {shown}, not {wanted}"
        time.sleep(0.002)


async def test_the_unofficial_sdk_lives_through_a_whole_life(server: SimulatorServer) -> None:
    def use(gpu: Any) -> str:
        clusters = gpu.clusters.list()
        assert "CN-HK-01 (Hong Kong)" in {cluster.name for cluster in clusters}
        product = gpu.products.list(product_name="4090", billing_method="spot")[0]
        assert (product.price, product.spot_price) == (0.35, 0.175)
        assert gpu.products.list_cpu()[0].cpu_num == 4

        request = CreateInstanceRequest(
            name="sdk-job",
            product_id=product.id,
            gpu_num=2,
            rootfs_size=60,
            image_url="docker.io/library/ubuntu:22.04",
            kind=Kind.gpu,
            ports="8080/http,22/tcp",
            envs=[Env(key="A", value="1")],
            command="serve",
            image_auth_id=REGISTRY_AUTH,
            cluster_id="us-ca-6",
            billing_mode=BillingMode.spot,
        )
        instance_id: str = gpu.instances.create(request).id
        assert gpu.instances.get(instance_id).status in (
            "pending",
            "toCreate",
            "creating",
            "pulling",
            "running",
        )

        def status() -> str:
            return str(gpu.instances.get(instance_id).status.value)

        until("running", status)
        instance = gpu.instances.get(instance_id)
        assert (instance.image_url, instance.command) == (request.image_url, "serve")
        assert {port.port for port in instance.port_mappings} == {8080, 22}
        with pytest.raises(BadRequestError, match="ports"):
            gpu.instances.create(request.model_copy(update={"ports": "8080/udp"}))
        with pytest.raises(BadRequestError, match="envs"):
            gpu.instances.create(request.model_copy(update={"envs": [Env(key="A", value="1")] * 101}))
        assert (instance.cpu_num, instance.memory, instance.gpu_num) == ("32", "124", "2")
        assert instance.spot_status == "running"
        assert [row.id for row in gpu.instances.list(page_size=5, page_num=0, name="sdk")] == [instance_id]
        gpu.instances.edit(
            EditInstanceRequest(
                instance_id=instance_id, ports=[Port(port=9000, type=Protocol.http)], expand_root_disk=5
            )
        )
        assert gpu.instances.get(instance_id).rootfs_size == 65
        gpu.instances.upgrade(
            UpgradeInstanceRequest(
                instance_id=instance_id,
                image_url="docker.io/library/debian:12",
                envs=[],
                command="",
                save=True,
                network_volume=NetworkVolume(volume_mounts=[]),
            )
        )
        until("running", status)
        assert gpu.instances.get(instance_id).image_url.endswith("debian:12")
        gpu.instances.restart(instance_id)
        until("running", status)
        gpu.instances.stop(instance_id)
        until("exited", status)
        gpu.instances.start(instance_id)
        until("running", status)
        gpu.instances.migrate(instance_id)
        assert gpu.jobs.list()[0].instance_id == instance_id
        until("running", status)
        gpu.instances.delete(instance_id)
        deadline = time.monotonic() + PATIENCE_S
        while gpu.instances.list(name="sdk-job"):
            assert time.monotonic() < deadline
        with pytest.raises(NotFoundError):
            gpu.instances.get(instance_id)
        return instance_id

    machine_id = await in_a_thread(server, use)
    assert list(server.world.machines) == [machine_id]
    assert server.world.alive() == []


def test_a_create_of_ours_is_one_that_the_unofficial_sdk_could_send() -> None:
    template = replace(ORDER.template, registry_auth_id="r3g1stry", command="serve", envs=(("A", "1"),))
    body = novita_json.create_request(replace(ORDER, template=template))
    theirs = CreateInstanceRequest.model_validate(body).model_dump(
        by_alias=True, mode="json", exclude_none=True
    )
    assert theirs == body


async def test_the_unofficial_sdk_prewarms_an_image(server: SimulatorServer) -> None:
    def use(gpu: Any) -> None:
        request = CreateImagePrewarmRequest(
            image_url="registry.example.com/team/trainer:1.4",
            cluster_id="us-ca-6",
            repository_auth=REGISTRY_AUTH,
            product_ids=["4090.16c62g"],
            note="sdk",
        )
        made = gpu.image_prewarm.create(request).id
        until("Succeeded", lambda: str(gpu.image_prewarm.list()[0].state.value))
        (task,) = gpu.image_prewarm.list()
        assert (task.id, task.image_name, task.note) == (made, "trainer", "sdk")
        assert task.products[0].product_name == "RTX 4090 24GB"
        assert int(task.image_size) > 10**8
        assert int(task.complete_time) >= int(task.create_time)
        assert gpu.image_prewarm.get_quota() == {"total": 1, "limit": 5, "perImageSize": 100}
        with pytest.raises(BadRequestError, match="ids"):
            # It says `task_id`, which no document knows.
            gpu.image_prewarm.delete(made)
        with pytest.raises(BadRequestError, match="cluster"):
            gpu.image_prewarm.create(request.model_copy(update={"cluster_id": "mars"}))

    await in_a_thread(server, use)


async def test_the_unofficial_sdk_manages_templates_registries_and_the_rest(server: SimulatorServer) -> None:
    def use(gpu: Any) -> None:
        assert {"101", "105", "106"} <= {template.id for template in gpu.templates.list()}
        payload = TemplateCreatePayload(
            name="mine",
            readme="",
            type="instance",
            channel=Channel("private"),
            image="docker.io/library/ubuntu:22.04",
            start_command="",
            rootfs_size=20,
            ports=[],
            volumes=[],
            envs=[],
        )
        template_id = gpu.templates.create(CreateTemplateRequest(template=payload)).template_id
        assert gpu.templates.get(template_id).name == "mine"
        gpu.templates.delete(template_id)
        with pytest.raises(BadRequestError, match="template not found"):
            gpu.templates.get(template_id)
        gpu.registries.create("ghcr.io", "somebody", "something")
        auth = next(auth for auth in gpu.registries.list() if auth.name == "ghcr.io")
        gpu.registries.delete(auth.id)
        assert "ghcr.io" not in {auth.name for auth in gpu.registries.list()}
        assert gpu.storages.list() == []
        assert gpu.networks.list() == []

    await in_a_thread(server, use)


async def test_the_unofficial_sdk_hears_of_missing_stock(server: SimulatorServer) -> None:
    server.world.stock("B200-180GB.28c240g", "us-ca-3", 0)

    def use(gpu: Any) -> None:
        with pytest.raises(BadRequestError) as refusal:
            gpu.instances.create(
                CreateInstanceRequest(
                    product_id="B200-180GB.28c240g", gpu_num=1, rootfs_size=60, image_url="i", kind=Kind.gpu
                )
            )
        assert refusal.value.details["reason"] == "INSUFFICIENT_RESOURCE"

    await in_a_thread(server, use)


async def test_the_official_cli_lives_through_a_whole_life(
    server: SimulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It knows one host only, by name, in a global of its module.
    monkeypatch.setattr(official, "BASE_URL", server.base_url)

    def use() -> None:
        assert "AS-SGP-02 (Singapore)" in run("gpu", "clusters").output
        products = as_json("gpu", "products", "--name", "H100")["data"]
        assert products[0]["price"] == "145000"
        instance_id = as_json(
            "gpu", "create", "--product-id", products[0]["id"], "--image", "ubuntu:22.04",
            "--name", "cli-job", "--ports", "8080/http", "--billing", "spot", "--env", "A=1",
        )["id"]  # fmt: skip

        def status() -> str:
            return str(as_json("gpu", "get", instance_id)["status"])

        until("running", status)
        assert [row["id"] for row in as_json("gpu", "list", "--name", "cli")["instances"]] == [instance_id]
        assert "cli-job" in run("gpu", "list").output
        for verb, then in (("restart", "running"), ("stop", "exited"), ("start", "running")):
            run("gpu", verb, instance_id)
            until(then, status)
        run("gpu", "delete", instance_id)
        deadline = time.monotonic() + PATIENCE_S
        while as_json("gpu", "list")["total"]:
            assert time.monotonic() < deadline
        assert CliRunner().invoke(cli, [*KEY, "gpu", "get", instance_id]).exit_code == 1

    await asyncio.to_thread(use)
    assert len(server.world.machines) == 1
    assert server.world.alive() == []


async def test_the_official_cli_manages_templates(
    server: SimulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official, "BASE_URL", server.base_url)

    def use() -> None:
        assert "vLLM server" in run("template", "list", "--channel", "official").output
        created = as_json("template", "create", "--name", "mine", "--image", "ubuntu:22.04", "--env", "A=1")
        run("template", "edit", created["templateId"], "--name", "renamed")
        assert as_json("template", "get", created["templateId"])["name"] == "renamed"
        run("template", "delete", created["templateId"])

    await asyncio.to_thread(use)


async def test_the_official_cli_finds_the_reason_in_the_text(
    server: SimulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official, "BASE_URL", server.base_url)

    def use() -> Result:
        return CliRunner().invoke(cli, [*KEY, "gpu", "create", "--product-id", "26", "--image", "i"])

    refusal = await asyncio.to_thread(use)
    assert refusal.exit_code == 1
    assert "INSUFFICIENT_RESOURCE" in refusal.output


KEY = ("--api-key", "sk_test")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, [*KEY, *arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments: str) -> Any:
    return json.loads(run("--json-output", *arguments).output)


async def in_a_thread(server: SimulatorServer, use: Callable[[Any], T]) -> T:
    def work() -> T:
        with NovitaClient("sk_test", base_url=server.base_url) as client:
            return use(client.gpu)

    return await asyncio.to_thread(work)
