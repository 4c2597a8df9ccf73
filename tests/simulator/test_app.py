"""Novita's wire: types, names and errors as its documents and working clients have them."""

from __future__ import annotations

from random import Random
from typing import Any

import aiohttp
import pytest

from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.simulator_app import BASE_PATH, SimulatorServer, start_simulator
from gpuherd.simulator.world import World
from tests.simulator.builders import BOOT_S, a_body, a_request, a_running_machine, status_of
from tests.simulator.conftest import Client
from tests.support.fake_clock import FakeClock


async def test_clusters_have_labels_and_the_names_of_their_gpus(novita: Client) -> None:
    status, body = await novita.get("/clusters")
    assert status == 200
    assert set(body) == {"data"}
    by_id = {cluster["id"]: cluster for cluster in body["data"]}
    assert len(by_id) == 9
    assert by_id["cn-hongkong-1"] == {
        "id": "cn-hongkong-1",
        "name": "CN-HK-01 (Hong Kong)",
        "availableGpuType": ["L40S 48GB", "RTX 4090 24GB"],
        "supportNetworkStorage": True,
        "supportInstanceNetwork": True,
    }


async def test_a_product_has_its_documented_types(novita: Client) -> None:
    _, body = await novita.get("/products")
    product = next(each for each in body["data"] if each["id"] == "4090.16c62g")
    assert product == {
        "id": "4090.16c62g",
        "name": "RTX 4090 24GB",
        "cpuPerGpu": 16,
        "memoryPerGpu": 62,
        "diskPerGpu": 6144,
        "availableDeploy": True,
        "minRootFS": 10,
        "maxRootFS": 6144,
        "minLocalStorage": 0,
        "maxLocalStorage": 0,
        "regions": ["US-CA-06 (California)", "AS-SGP-02 (Singapore)", "EU-GB-01 (United Kingdom)"],
        "price": "35000",
        "spotPrice": "17500",
        "monthlyPrice": [{"price": "22680000", "month": 1}, {"price": "17640000", "month": 12}],
        "billingMethods": ["onDemand", "spot", "monthly"],
        "inventoryState": "high",
        "canBuy": True,
        "prices": [],
    }


async def test_the_retired_product_is_listed_without_stock_in_a_region_that_no_cluster_has(
    novita: Client,
) -> None:
    _, products = await novita.get("/products")
    _, clusters = await novita.get("/clusters")
    retired = next(each for each in products["data"] if each["id"] == "26")
    assert (retired["availableDeploy"], retired["inventoryState"], retired["spotPrice"]) == (
        False,
        "none",
        "0",
    )
    assert not set(retired["regions"]) & {cluster["name"] for cluster in clusters["data"]}


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"productName": "l40s"}, {"L40S.22c125g", "L40S.28c125g"}),
        ({"clusterId": "us-ca-3"}, {"H200-141GB.24c240g", "B200-180GB.28c240g"}),
        ({"clusterId": "us-ca-3", "billingMethod": "spot"}, {"H200-141GB.24c240g"}),
        ({"minCpuPerGpu": "28"}, {"L40S.28c125g", "B200-180GB.28c240g"}),
        ({"minMemoryPerGpu": "240", "clusterId": "eu-de-1"}, {"A100-80GB.14c240g"}),
        ({"minRootFSSize": "9999"}, set()),
        ({"type": "gpu", "name": "ignored", "clusterId": "oc-au-1"}, {"5090.16c92g"}),
    ],
)
async def test_products_are_filtered(novita: Client, query: dict[str, str], ids: set[str]) -> None:
    _, body = await novita.get("/products", **query)
    assert {product["id"] for product in body["data"]} == ids


async def test_a_bad_filter_is_refused(novita: Client) -> None:
    status, body = await novita.get("/products", gpuNum="9")
    assert (status, body["reason"]) == (400, "VALIDATOR_PARAM")


async def test_cpu_products_are_wrapped(novita: Client) -> None:
    _, body = await novita.get("/cpu/products", clusterId="eu-de-1")
    assert [(each["id"], each["cpuNum"], each["price"]) for each in body["data"]] == [
        ("cpu.16c64g", 16, "24000")
    ]


async def test_a_created_machine_can_be_read_in_full(novita: Client, world: World, clock: FakeClock) -> None:
    status, created = await novita.post(
        "/gpu/instance/create",
        a_body(
            gpuNum=2,
            billingMode="spot",
            envs=[{"key": "A", "value": "1"}],
            tools=[{"name": "Jupyter", "port": "8888", "type": "http"}],
        ),
    )
    assert status == 200
    assert set(created) == {"id"}
    await clock.advance(BOOT_S)
    _, shown = await novita.get("/gpu/instance", instanceId=created["id"])
    machine = world.machines[created["id"]]
    base = novita.base_url
    ssh = machine.proxy_ports[22]
    assert shown == {
        "id": machine.id,
        "name": "job-7",
        "clusterId": "us-ca-6",
        "clusterName": "US-CA-06 (California)",
        "status": "running",
        "statusError": {"state": "", "message": ""},
        "imageUrl": "docker.io/library/ubuntu:22.04",
        "imageAuthId": "",
        "command": "",
        "entrypoint": "",
        "cpuNum": "32",
        "memory": "124",
        "gpuNum": "2",
        "productId": "4090.16c62g",
        "productName": "RTX 4090 24GB",
        "rootfsSize": 60,
        "portMappings": [
            {"port": 8888, "endpoint": f"{base}/_apps/{machine.id}/8888", "type": "http"},
            {"port": 8080, "endpoint": f"{base}/_apps/{machine.id}/8080", "type": "http"},
            {"port": 22, "endpoint": f"127.0.0.1:{ssh}", "type": "tcp"},
        ],
        "volumeMounts": [],
        "envs": [{"key": "A", "value": "1"}],
        "kind": "gpu",
        "billingMode": "spot",
        "endTime": "-1",
        "spotStatus": "running",
        "spotReclaimTime": "0",
        "createdAt": str(int(machine.created_at)),
        "lastStartedAt": str(int(machine.turns[-1].at)),
        "lastStoppedAt": "0",
        "gpuIds": machine.gpu_ids,
        "templateId": "",
        "network": {"id": "", "ip": ""},
        "connectComponentSSH": {
            "sshCommand": f"ssh -p {ssh} root@127.0.0.1",
            "password": machine.ssh_password,
            "isRunning": True,
        },
        "connectComponentWebTerminal": {
            "address": f"{base}/_apps/{machine.id}/2223",
            "username": "root",
            "password": machine.ssh_password,
            "isRunning": True,
        },
        "connectComponentJupyter": {
            "port": "8888",
            "address": f"{base}/_apps/{machine.id}/8888",
            "isRunning": True,
        },
        "connectComponentLog": {
            "systemLogAddress": f"{base}/_apps/{machine.id}/2224/system",
            "instanceLogAddress": f"{base}/_apps/{machine.id}/2224/instance",
            "isRunning": True,
        },
        "freeStorageSize": 60,
        "keepDataDay": 7,
        "instancePrice": "35000",
        "jobs": [],
    }
    assert len(machine.id) == 16
    assert int(machine.id, 16) >= 0
    assert len(machine.gpu_ids) == 2


async def test_the_list_keeps_the_passwords_to_itself(novita: Client, world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    _, listed = await novita.get("/gpu/instances")
    assert machine.ssh_password not in str(listed)
    assert listed["instances"][0]["connectComponentSSH"]["isRunning"] is True


async def test_novitas_own_host_names_can_be_shown_instead(clock: FakeClock) -> None:
    world = World(clock, Random(7))
    server = await start_simulator(world, endpoints="novita")
    try:
        machine = await a_running_machine(world, clock)
        headers = {"Authorization": "Bearer sk_test"}
        async with aiohttp.ClientSession(headers=headers) as session:
            _, shown = await Client(session, server.base_url).get("/gpu/instance", instanceId=machine.id)
    finally:
        await server.close()
    ssh = machine.proxy_ports[22]
    assert [mapping["endpoint"] for mapping in shown["portMappings"]] == [
        f"https://{machine.id}-8080.us-ca-6.gpu-instance.novita.ai",
        f"proxy.us-ca-6.gpu-instance.novita.ai:{ssh}",
    ]
    command = shown["connectComponentSSH"]["sshCommand"]
    assert command == f"ssh -p {ssh} root@proxy.us-ca-6.gpu-instance.novita.ai"


async def test_a_subscription_has_an_end(novita: Client) -> None:
    _, created = await novita.post("/gpu/instance/create", a_body(month=2))
    _, shown = await novita.get("/gpu/instance", instanceId=created["id"])
    assert shown["billingMode"] == "monthly"
    assert int(shown["endTime"]) - int(shown["createdAt"]) == 60 * 86_400


async def test_pages_count_from_zero_or_one_and_hold_ten(novita: Client, world: World) -> None:
    for number in range(25):
        world.create(a_request(name=f"job-{number}"))

    async def names(**query: Any) -> list[str]:
        status, body = await novita.get("/gpu/instances", **query)
        assert (status, body["total"]) == (200, 25)
        return [row["name"] for row in body["instances"]]

    first = [f"job-{number}" for number in range(24, 14, -1)]
    assert await names() == await names(pageNum=0) == await names(pageNum=1) == first
    assert await names(pageSize=0) == first
    # Other people's spellings of the page have no effect.
    assert await names(pageNumber=2) == await names(page=2, page_size=5) == first
    assert await names(pageNum=2) == [f"job-{number}" for number in range(14, 4, -1)]
    assert await names(pageSize=20, pageNum=2) == [f"job-{number}" for number in range(4, -1, -1)]
    assert await names(pageSize=20, pageNum=3) == []


async def test_the_list_is_filtered_fuzzily(novita: Client, world: World, clock: FakeClock) -> None:
    await a_running_machine(world, clock, name="Alpha-one")
    world.create(a_request(name="beta-ALPHA"))
    world.create(a_request(name="gamma", product_id="H100-80GB.16c128g"))

    async def names(**query: str) -> set[str]:
        _, body = await novita.get("/gpu/instances", **query)
        assert body["total"] == len(body["instances"])
        return {row["name"] for row in body["instances"]}

    assert await names(name="alpha") == {"Alpha-one", "beta-ALPHA"}
    assert await names(productName="h100") == {"gamma"}
    assert await names(status="running") == {"Alpha-one"}


async def test_commands_answer_with_the_new_state(novita: Client, world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    body = {"instanceId": machine.id}
    for verb, state in (("restart", "toRestart"), ("stop", "toStop"), ("start", "toStart")):
        assert await novita.post(f"/gpu/instance/{verb}", body) == (
            200,
            {"instanceId": machine.id, "state": state},
        )
        await clock.advance(30)
    assert await novita.post("/gpu/instance/setAutoMigrate", {**body, "autoMigrateOpen": True}) == (200, {})
    assert machine.auto_migrate
    ports = [{"port": 9000, "type": "http"}]
    assert await novita.post("/gpu/instance/edit", {**body, "ports": ports}) == (200, {})
    upgrade = {**body, "imageUrl": "i:2", "envs": [{"key": "B", "value": "2"}], "command": "go", "save": True}
    assert await novita.post("/gpu/instance/upgrade", upgrade) == (200, {})
    assert status_of(world, machine) == "toReset"
    assert (machine.request.image_url, machine.request.envs) == ("i:2", (("B", "2"),))
    assert machine.request.ports == ((9000, "http"),)
    await clock.advance(30)
    _, migration = await novita.post("/gpu/instance/migrate", body)
    _, jobs = await novita.get("/jobs", state="running")
    assert [(job["Id"], job["type"], job["instanceId"]) for job in jobs["jobs"]] == [
        (migration["jobId"], "instanceMigrate", machine.id)
    ]
    assert await novita.post("/gpu/instance/delete", body) == (200, {})


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "delete", "edit", "migrate", "setAutoMigrate"])
async def test_an_unknown_machine_is_not_found(novita: Client, verb: str) -> None:
    status, body = await novita.post(f"/gpu/instance/{verb}", {"instanceId": "0123456789abcdef"})
    assert (status, body["reason"]) == (404, "RESOURCE_NOT_FOUND")
    assert body == {"code": 404, "reason": body["reason"], "message": body["message"], "metadata": {}}


async def test_ids_are_case_sensitive(novita: Client, world: World) -> None:
    machine_id = world.create(a_request())
    status, _ = await novita.get("/gpu/instance", instanceId=machine_id.upper())
    assert status == 404


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (a_body(productId="26", clusterId=""), "INSUFFICIENT_RESOURCE"),
        (
            a_body(productId="B200-180GB.28c240g", clusterId="", billingMode="spot"),
            "UNSUPPORTED_BILLING_MODE",
        ),
        (a_body(gpuNum=0), "VALIDATOR_PARAM"),
        (a_body(networkStorages=[{"Id": "s"}]), "NETWORK_STORAGE_NOT_FOUND"),
    ],
)
async def test_a_create_that_cannot_be_is_refused(novita: Client, body: dict[str, Any], reason: str) -> None:
    status, error = await novita.post("/gpu/instance/create", body)
    assert (status, error["code"], error["reason"]) == (400, 400, reason)


async def test_a_start_in_the_wrong_state_says_so(novita: Client, world: World) -> None:
    status, error = await novita.post("/gpu/instance/start", {"instanceId": world.create(a_request())})
    assert status == 400
    assert "invalid state change" in error["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"\xff"])
async def test_a_body_that_is_no_object_is_refused(novita: Client, body: bytes) -> None:
    status, error = await novita.ask("POST", f"{BASE_PATH}/gpu/instance/create", data=body)
    assert (status, error["reason"]) == (400, "REQUEST")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer nope", "Basic sk_test", "sk_test"])
async def test_without_a_key_nothing_is_said(server: SimulatorServer, world: World, header: str) -> None:
    async with aiohttp.ClientSession() as session:
        client = Client(session, server.base_url)
        status, error = await client.ask(
            "GET", f"{BASE_PATH}/gpu/instances", headers={"Authorization": header}
        )
    assert (status, error["reason"]) == (401, "UNAUTHORIZED")
    assert world.calls == {}


async def test_templates_are_paged_under_a_singular_key(novita: Client) -> None:
    _, body = await novita.get("/templates", pageSize=4, pageNum=1)
    assert (body["pageSize"], body["pageNum"], body["total"]) == (4, 1, 6)
    assert [template["Id"] for template in body["template"]] == ["106", "105", "104", "103"]
    _, official = await novita.get("/templates", channel="official,community", isMyCommunity="false")
    assert {template["channel"] for template in official["template"]} == {"official"}
    _, named = await novita.get("/templates", name="vllm")
    assert [template["Id"] for template in named["template"]] == ["102"]


async def test_a_template_shows_its_ports_by_type_and_its_login_by_id(novita: Client, world: World) -> None:
    _, body = await novita.get("/template", templateId="101")
    template = body["template"]
    assert template["ports"] == [{"type": "http", "ports": [8888]}, {"type": "tcp", "ports": [22]}]
    assert template["tools"] == [{"name": "Jupyter", "describe": "", "port": 8888, "type": "http"}]
    _, body = await novita.get("/template", templateId="105")
    assert body["template"]["imageAuth"] in world.account.registry_auths
    _, body = await novita.get("/template", templateId="106")
    assert body["template"]["image"] == ""


async def test_an_unknown_template_is_a_bad_request(novita: Client) -> None:
    status, error = await novita.get("/template", templateId="999")
    assert (status, error["reason"], error["message"]) == (400, "TEMPLATE_NOT_FOUND", "template not found")


async def test_own_templates_can_be_changed_and_official_ones_cannot(novita: Client) -> None:
    template = {
        "name": "mine",
        "image": "i:1",
        "rootfsSize": 30,
        "ports": [{"type": "http", "ports": [80, 81]}],
        "envs": [{"key": "A", "value": "1"}],
        "imageAuth": "",
    }
    _, created = await novita.post("/template/create", {"template": template})
    assert created == {"templateId": "107"}
    changed = {**template, "Id": "107", "name": "renamed"}
    assert await novita.post("/template/update", {"template": changed}) == (200, created)
    _, shown = await novita.get("/template", templateId="107")
    assert (shown["template"]["name"], shown["template"]["ports"]) == ("renamed", template["ports"])
    assert await novita.post("/template/delete", {"templateId": "107"}) == (200, created)
    status, error = await novita.post("/template/delete", {"templateId": "101"})
    assert (status, error["reason"]) == (403, "FORBIDDEN")
    status, error = await novita.post("/template/create", {"template": {**template, "imageAuth": "nobody"}})
    assert (status, error["reason"]) == (400, "RESOURCE_NOT_FOUND")
    status, error = await novita.post("/template/create", {})
    assert (status, error["reason"]) == (400, "VALIDATOR_PARAM")


async def test_registry_logins_come_back_in_clear(novita: Client, world: World) -> None:
    _, saved = await novita.post(
        "/repository/auth/save", {"name": "ghcr.io", "username": "me", "password": "mine"}
    )
    assert len(saved["id"]) == 32
    _, body = await novita.get("/repository/auths")
    assert {"id": saved["id"], "name": "ghcr.io", "username": "me", "password": "mine"} in body["data"]
    world.create(a_request(image_auth_id=saved["id"]))
    status, error = await novita.post("/repository/auth/delete", {"id": saved["id"]})
    assert (status, error["reason"]) == (400, "IMAGE_AUTH_IN_USE")
    world.delete(next(iter(world.machines)))
    assert await novita.post("/repository/auth/delete", {"id": saved["id"]}) == (200, {})
    status, _ = await novita.post("/repository/auth/delete", {"id": saved["id"]})
    assert status == 400


async def test_what_the_account_does_not_own_is_an_empty_list(novita: Client) -> None:
    assert await novita.get("/networkstorages/list") == (200, {"data": [], "total": 0})
    assert await novita.get("/networks") == (200, {"networks": [], "total": 0})
    assert await novita.get("/jobs") == (200, {"jobs": [], "total": 0})


@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultKind.LOST_REPLY_AFTER_COMMIT),
        Fault(FaultKind.OUTAGE, style="cut"),
    ],
)
async def test_a_cut_connection_is_no_answer_at_all(
    novita: Client, world: World, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    world.faults.add(fault)
    with pytest.raises(aiohttp.ClientConnectionError):
        await novita.post("/gpu/instance/create", a_body())
    assert len(world.machines) == (0 if fault.kind is FaultKind.OUTAGE else 1)
    world.faults.replace(())
    assert (await novita.get("/clusters"))[0] == 200
    assert caplog.records == []


async def test_an_answer_can_be_cut_midway(
    novita: Client, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.faults.add(Fault(FaultKind.GARBAGE, style="cut"))
    with pytest.raises(aiohttp.ClientPayloadError):
        await novita.post("/gpu/instance/create", a_body())
    assert len(world.machines) == 1
    assert caplog.records == []


@pytest.mark.parametrize(
    ("style", "content_type", "begins"),
    [
        ("broken_json", "application/json", b'{"id": "'),
        ("html", "text/html", b"<html>"),
        ("empty", "application/json", b""),
        ("empty_id", "application/json", b'{"id":""}'),
        ("number_id", "application/json", b'{"id":6'),
        ("null_id", "application/json", b'{"id":null}'),
        ("no_id", "application/json", b"{}"),
        ("list", "application/json", b"[]"),
        ("text", "application/json", b"ok"),
        ("binary", "application/json", b"\x00\x01"),
        ("wrong_type", "text/plain", b'{"id":"'),
    ],
)
async def test_garbage_comes_with_status_200(
    novita: Client, world: World, style: str, content_type: str, begins: bytes
) -> None:
    world.faults.add(Fault(FaultKind.GARBAGE, style=style))
    url = f"{novita.base_url}{BASE_PATH}/gpu/instance/create"
    async with novita.session.post(url, json=a_body()) as reply:
        body = await reply.read()
    assert (reply.status, reply.content_type) == (200, content_type)
    assert body.startswith(begins)
    assert len(world.machines) == 1


async def test_a_gateway_answers_with_a_page(novita: Client, world: World) -> None:
    world.faults.add(Fault(FaultKind.OUTAGE, style="html", status=504))
    async with novita.session.get(f"{novita.base_url}{BASE_PATH}/clusters") as reply:
        assert (reply.status, reply.content_type) == (504, "text/html")


async def test_advice_to_wait_is_a_header(novita: Client, world: World) -> None:
    world.faults.add(Fault(FaultKind.RATE_LIMIT, retry_after="7"))
    async with novita.session.get(f"{novita.base_url}{BASE_PATH}/clusters") as reply:
        assert (reply.status, reply.headers["Retry-After"]) == (429, "7")
        assert (await reply.json())["reason"] == "RATE_LIMIT_EXCEEDED"
