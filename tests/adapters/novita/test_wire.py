"""Novita's JSON in our words: shapes as observed, and shapes that nobody promised."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.novita import novita_json
from gpuherd.adapters.novita.redaction import WITHHELD, CallSecrets
from gpuherd.domain.cloud.machine import ConnectionDetails, LogAddresses, Machine, Phase, PortMapping
from gpuherd.domain.cloud.offer import BillingMode, Region
from gpuherd.domain.secret import Secret
from tests.adapters.novita.builders import ORDER, TAG
from tests.adapters.novita.test_fields import JSON

CLUSTERS = [
    {"id": "us-ca-6", "name": "US-CA-06 (California)", "availableGpuType": ["RTX 4090 24GB"]},
    {"id": "cn-hongkong-1", "name": "CN-HK-01 (Hong Kong)", "availableGpuType": {}},
    {"id": "old-1", "name": "OLD-01"},
]
REGIONS = novita_json.read_regions(CLUSTERS)
PRODUCT = {
    "id": "4090.16c62g",
    "name": "RTX 4090 24GB",
    "cpuPerGpu": 16,
    "memoryPerGpu": "62",
    "diskPerGpu": 6144,
    "availableDeploy": True,
    "price": "35000",
    "spotPrice": "17500",
    "minRootFS": 10,
    "maxRootFS": 6144,
    "regions": ["US-CA-06 (California)", "CN-HK-01"],
    "billingMethods": ["onDemand", "spot", "monthly"],
    "inventoryState": "normal",
    "canBuy": True,
    "prices": [],
}
MACHINE = {
    "id": "5f0c9b1d2e3a4f60",
    "name": f"job-7--{TAG}",
    "clusterId": "us-ca-6",
    "clusterName": "US-CA-06 (California)",
    "status": "running",
    "statusError": {"state": "", "message": ""},
    "imageUrl": "docker.io/library/ubuntu:22.04",
    "cpuNum": "16",
    "memory": "62",
    "gpuNum": "2",
    "productId": "4090.16c62g",
    "productName": "RTX 4090 24GB",
    "rootfsSize": 60,
    "portMappings": [
        {"port": 8080, "endpoint": "https://5f0c9b1d2e3a4f60-8080.us-ca-6.example", "type": "http"},
        {"port": "22", "endpoint": "proxy.us-ca-6.example:32787", "type": "tcp"},
        {"port": None, "endpoint": "x"},
        "nonsense",
    ],
    "envs": [{"key": "TOKEN", "value": "private"}, {"key": "GPUHERD_TAG", "value": TAG}],
    "billingMode": "spot",
    "spotStatus": "notified",
    "spotReclaimTime": "1794703600",
    "createdAt": "1794700000",
    "connectComponentSSH": {
        "sshCommand": "ssh -p 32787 root@proxy",
        "password": "hunter2",
        "isRunning": True,
    },
    "connectComponentJupyter": {"port": 8888, "address": "https://jupyter.example", "isRunning": True},
    "connectComponentWebTerminal": {"address": "https://web.example", "username": "u", "password": "hunter2"},
    "sshPassword": "hunter2",
    "aFieldOfTomorrow": [{}],
}


def test_clusters_become_regions_with_the_code_of_their_label():
    assert (
        Region("US-CA-06", "US-CA-06 (California)", "us-ca-6", ("RTX 4090 24GB",)),
        Region("CN-HK-01", "CN-HK-01 (Hong Kong)", "cn-hongkong-1"),
        Region("OLD-01", "OLD-01", "old-1"),
    ) == REGIONS


def test_a_product_becomes_an_offer_in_each_of_its_regions():
    first, second = novita_json.read_offers([PRODUCT], REGIONS)
    assert (first.region, first.cluster_id) == ("US-CA-06", "us-ca-6")
    assert (second.region, second.cluster_id) == ("CN-HK-01", "cn-hongkong-1")
    assert first.spot_usd == Decimal("0.175")
    assert first.on_demand_usd == Decimal("0.35")
    assert (first.cpu_per_gpu, first.memory_gb_per_gpu, first.disk_gb_min, first.disk_gb_max) == (
        16,
        62,
        10,
        6144,
    )
    assert first.available


def test_an_empty_list_of_regions_means_all_of_them():
    for regions in (list[str](), None):
        offers = novita_json.read_offers([PRODUCT | {"regions": regions}], REGIONS)
        assert [offer.cluster_id for offer in offers] == ["us-ca-6", "cn-hongkong-1", "old-1"]


def test_a_label_without_a_cluster_is_skipped_and_a_label_that_comes_twice_counts_once():
    labels = ["US-01 (Dallas)", "CN-HK-01 (Hong Kong)", "CN-HK-01"]
    (offer,) = novita_json.read_offers([PRODUCT | {"regions": labels}], REGIONS)
    assert offer.cluster_id == "cn-hongkong-1"


@pytest.mark.parametrize(
    ("change", "spot", "on_demand"),
    [
        ({"spotPrice": "0"}, None, "0.35"),
        ({"spotPrice": None}, None, "0.35"),
        ({"billingMethods": ["onDemand", "monthly"]}, None, "0.35"),
        ({"billingMethods": ["spot"]}, "0.175", None),
        ({"billingMethods": []}, "0.175", "0.35"),
        ({"price": 35000}, "0.175", "0.35"),
        ({"price": "free"}, "0.175", None),
    ],
)
def test_a_price_counts_only_where_the_product_is_sold_that_way(change, spot, on_demand):
    offer = novita_json.read_offers([PRODUCT | change], REGIONS)[0]
    assert offer.spot_usd == (None if spot is None else Decimal(spot))
    assert offer.on_demand_usd == (None if on_demand is None else Decimal(on_demand))


@pytest.mark.parametrize(
    ("change", "available"),
    [
        ({"availableDeploy": False}, False),
        ({"inventoryState": "none"}, False),
        ({"canBuy": False}, False),
        ({"inventoryState": "low"}, True),
        ({"availableDeploy": None, "inventoryState": None, "canBuy": None}, True),
    ],
)
def test_only_a_clear_no_makes_an_offer_unavailable(change, available):
    assert novita_json.read_offers([PRODUCT | change], REGIONS)[0].available is available


def test_a_machine_is_read_and_its_passwords_are_not():
    machine = novita_json.read_machine(MACHINE)
    assert machine == Machine(
        cloud_id="5f0c9b1d2e3a4f60",
        name=f"job-7--{TAG}",
        phase=Phase.RUNNING,
        raw_status="running",
        cluster_id="us-ca-6",
        region="US-CA-06",
        product_id="4090.16c62g",
        product_name="RTX 4090 24GB",
        gpu_num=2,
        disk_gb=60,
        image_url="docker.io/library/ubuntu:22.04",
        billing_mode="spot",
        spot_status="notified",
        spot_reclaim_at=datetime.fromtimestamp(1794703600, UTC),
        created_at=datetime.fromtimestamp(1794700000, UTC),
        env_tag=TAG,
        ports=(
            PortMapping(8080, "https://5f0c9b1d2e3a4f60-8080.us-ca-6.example", "http"),
            PortMapping(22, "proxy.us-ca-6.example:32787", "tcp"),
        ),
        connection=ConnectionDetails(
            "ssh -p 32787 root@proxy", "https://jupyter.example", "https://web.example"
        ),
    )
    assert "hunter2" not in repr(machine)
    assert "private" not in repr(machine)


STATUSES = {
    Phase.CREATING: "pending toCreate creating",
    Phase.PULLING: "pulling",
    Phase.STARTING: "toStart starting toRestart restarting toReset resetting",
    Phase.RUNNING: "running",
    Phase.STOPPING: "toStop stopping",
    Phase.STOPPED: "exited",
    Phase.MIGRATING: "migrating",
    Phase.FROZEN: "freezing",
    Phase.REMOVING: "toRemove removing",
    Phase.ABSENT: "removed",
    Phase.UNKNOWN: "Running failed quantum",
}


def test_every_status_has_a_phase(subtests: pytest.Subtests) -> None:
    for status, phase in [(status, phase) for phase, words in STATUSES.items() for status in words.split()]:
        with subtests.test(status=status, phase=phase):
            machine = novita_json.read_machine(MACHINE | {"status": status})
            assert machine is not None
            assert (machine.phase, machine.raw_status) == (phase, status)


@pytest.mark.proves("F17")
@pytest.mark.parametrize("status", [None, 7, {}, ""])
def test_a_status_that_makes_no_sense_is_unknown_and_the_machine_still_counts(status):
    machine = novita_json.read_machine(MACHINE | {"status": status})
    assert machine is not None
    assert machine.phase is Phase.UNKNOWN


def test_the_reason_of_a_failure_is_kept_short():
    machine = novita_json.read_machine(
        MACHINE | {"statusError": {"state": "x", "message": "no\nimage " + "x" * 999}}
    )
    assert machine is not None
    assert machine.error.startswith("no image xxx")
    assert len(machine.error) <= 300


def test_a_machine_without_a_usable_id_is_no_machine(subtests: pytest.Subtests) -> None:
    row_ids: list[Any] = [None, "", 7, " ", " a", "a\n", "a\0", "x" * 256, ["a"], {}]
    for row_id in row_ids:
        with subtests.test(row_id=row_id):
            assert novita_json.read_machine(MACHINE | {"id": row_id}) is None


def test_a_bare_row_is_enough_for_a_machine():
    assert novita_json.read_machine({"id": "a"}) == Machine("a", "", Phase.UNKNOWN, "")


TEMPLATE = {
    "Id": "212",
    "name": "vLLM",
    "image": "docker.io/vllm/vllm-openai:v0.8.4",
    "imageAuth": "r3g1stry",
    "startCommand": "serve \\\n  --port 8000",
    "entrypoint": "/entry.sh",
    "ports": [{"type": "http", "ports": [8000, "8001"]}, {"type": "tcp", "ports": [22]}, {"type": "udp"}, 5],
    "envs": [{"key": "A", "value": "1"}, {"key": "", "value": "2"}, {"key": "B"}],
    "channel": "official",
    "rootfsSize": 60,
}


def test_the_logs_are_where_the_cloud_says_under_either_name():
    named = {"systemLogAddress": "https://log.example/s?t=1", "instanceLogAddress": "https://log.example/i"}
    for key in ("connectComponentLog", "connectComponentSSH"):
        found = novita_json.read_log_addresses({"status": "running", key: named})
        assert found == LogAddresses(Phase.RUNNING, "https://log.example/i", "https://log.example/s?t=1")
    for odd in ({}, {"connectComponentLog": None}, {"connectComponentLog": {"systemLogAddress": 5}}):
        assert not novita_json.read_log_addresses({"status": "exited", **odd}).instance


def test_a_template_is_read_with_its_lists_of_ports():
    template = novita_json.read_template(TEMPLATE)
    assert template is not None
    assert template.template_id == "212"
    assert template.ports == ((8000, "http"), (8001, "http"), (22, "tcp"))
    assert template.envs == (("A", "1"), ("B", ""))
    assert template.registry_auth_id == "r3g1stry"
    assert template.command == "serve \\\n  --port 8000"
    assert novita_json.read_template(TEMPLATE | {"Id": 212}) == template


@pytest.mark.parametrize("row", [None, [], {}, {"Id": ""}, {"id": "212"}])
def test_a_row_without_its_id_is_no_template(row):
    assert novita_json.read_template(row) is None


def test_registry_passwords_are_known_by_the_id_of_their_credential():
    rows = [
        {"id": "a", "name": "hub", "username": "u", "password": "hunter2"},
        {"id": "b", "password": "********"},
        {"id": "c"},
        {"name": "no id", "password": "x"},
        5,
    ]
    assert novita_json.read_registry_passwords(rows) == {"a": Secret("hunter2"), "b": None, "c": None}


def test_what_is_wrong_with_a_machine_is_told_without_the_secrets_of_its_row():
    row = {
        "id": "m",
        "sshPassword": "legacy-ssh-word",
        "connectComponentSSH": {"sshCommand": "ssh root@x", "password": "ssh-word-2"},
        "envs": [{"key": "HF_TOKEN", "value": "hf_abcdefgh"}, {"key": "MODE", "value": "verbose-mode"}],
        "statusError": {"message": "login legacy-ssh-word or ssh-word-2 failed: hf_abcdefgh, verbose-mode"},
    }
    machine = novita_json.read_machine(row)
    assert machine is not None
    assert machine.error == "login *** or *** failed: ***, ***"


def test_nor_with_a_registry_password_that_is_not_known():
    row = {"id": "m", "imageAuthId": "a", "statusError": {"message": "u:hunter2 may not pull"}}
    known = novita_json.read_machine(row, lambda _: CallSecrets((Secret("hunter2"),)))
    unknown = novita_json.read_machine(row, lambda _: CallSecrets(has_unknown=True))
    assert known is not None
    assert known.error == "u:*** may not pull"
    assert unknown is not None
    assert unknown.error == WITHHELD


def test_an_order_is_written_as_novita_wants_it():
    template = replace(
        ORDER.template,
        registry_auth_id="r3g1stry",
        command="run\nme",
        entrypoint="/bin/sh",
        envs=(("A", "1"),),
    )
    assert novita_json.create_request(replace(ORDER, template=template, gpu_num=2)) == {
        "name": ORDER.name,
        "productId": "4090.16c62g",
        "gpuNum": 2,
        "rootfsSize": 60,
        "imageUrl": "docker.io/library/ubuntu:22.04",
        "imageAuthId": "r3g1stry",
        "ports": "80/http,22/tcp",
        "envs": [{"key": "A", "value": "1"}, {"key": "GPUHERD_TAG", "value": TAG}],
        "command": "run\nme",
        "entrypoint": "/bin/sh",
        "clusterId": "us-ca-6",
        "billingMode": "spot",
        "kind": "gpu",
    }


def test_what_an_order_does_not_say_is_left_out():
    request = novita_json.create_request(
        replace(ORDER, billing_mode=BillingMode.ON_DEMAND, template=replace(ORDER.template, ports=()))
    )
    assert request["billingMode"] == "onDemand"
    assert not {"imageAuthId", "imageAuth", "ports", "command", "entrypoint"} & request.keys()


def test_nobody_can_forge_the_tag_through_a_template():
    template = replace(ORDER.template, envs=(("GPUHERD_TAG", "somebody else's"),))
    assert novita_json.create_request(replace(ORDER, template=template))["envs"] == [
        {"key": "GPUHERD_TAG", "value": TAG}
    ]


def test_a_variable_of_the_wish_is_redacted_whatever_it_is_called():
    template = replace(ORDER.template, envs=(("HARMLESS", "canary-of-a-variable"), ("OTHER", "x")))
    secrets = novita_json.order_secrets(
        replace(ORDER, template=template, secret_envs=frozenset({"HARMLESS"}))
    )
    assert secrets.redact("cannot use canary-of-a-variable") == "cannot use ***"
    assert "canary" in novita_json.order_secrets(replace(ORDER, template=template)).redact(
        "cannot use canary-of-a"
    )


def test_the_least_cuda_version_is_asked_for():
    template = replace(ORDER.template, min_cuda_version="12.4")
    assert novita_json.create_request(replace(ORDER, template=template))["minCudaVersion"] == "12.4"
    read = novita_json.read_template(TEMPLATE | {"minCudaVersion": "12.1"})
    assert read is not None
    assert read.min_cuda_version == "12.1"


def test_an_order_never_has_more_variables_than_are_allowed():
    template = replace(ORDER.template, envs=tuple((f"V{n}", "x") for n in range(100)))
    assert len(novita_json.create_request(replace(ORDER, template=template))["envs"]) == 100


@given(st.dictionaries(st.sampled_from(sorted({*MACHINE, *TEMPLATE, *PRODUCT})), JSON))
def test_rows_of_any_shape_are_read_or_passed_over(change):
    machine = novita_json.read_machine(MACHINE | change)
    template = novita_json.read_template(TEMPLATE | change)
    offers = novita_json.read_offers([PRODUCT | change], REGIONS)
    # Whatever came, it can be stored.
    for thing in (machine, template, *offers):
        json.dumps(str(thing)).encode("utf-8")
        str(thing).encode("utf-8")


@given(JSON)
def test_lists_of_anything_are_read(value):
    novita_json.read_regions([value])
    novita_json.read_offers([value], REGIONS)
    novita_json.read_machine(value)
    novita_json.read_template(value)
    novita_json.read_registry_passwords([value])
    novita_json.quoting_auth_ids([value])


def test_a_list_may_be_missing_null_or_empty():
    assert novita_json.rows({"data": []}, "data") == []
    assert novita_json.rows({"data": None}, "data") == []
    assert novita_json.rows({}, "data") is None
    assert novita_json.rows({"data": {}}, "data") is None
